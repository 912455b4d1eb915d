package postgres

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/postgrestest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// Where the connection that listens leads to another database, no pooler is to blame.
func TestListeningElsewhere(t *testing.T) {
	t.Parallel()
	at, other := postgrestest.URL(t), postgrestest.URL(t)
	closeLocker(t, open(t, at))
	wantFinding(t, examine(t, with(at, "listen="+queryEscape(other))), subjectWaking, driver.LevelDoubtful,
		"leads elsewhere, so no notification arrives: to the database \"test_")
}

// The same for a server of another cluster, and a database of the same name there.
func TestListeningInAnotherCluster(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	other := postgrestest.Start(t, postgrestest.Options{})
	at := postgrestest.URL(t)
	sameDatabase(t, at, other)
	closeLocker(t, open(t, at))
	wantFinding(t, examine(t, with(at, "listen="+queryEscape(other.At(t, at)))), subjectWaking, driver.LevelDoubtful,
		"a server of another cluster")
}

// What doctor reports as the promise of the backend is what it has found: a healthy server without standbys, and one with a
// synchronous standby, keep their grants.
func TestCheckFindsWhatSurvives(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	server := postgrestest.Start(t, postgrestest.Options{})
	at := server.Database(t)
	closeLocker(t, open(t, at))
	want := func(when string, want driver.Failover) {
		t.Helper()
		l, err := driver.OpenForCheck(bounded(t), asAdmin(at)) // others may not see who the standbys are
		if err != nil {
			t.Fatal(err)
		}
		defer closeLocker(t, l)
		if err := l.Capabilities().Checker.Check(bounded(t), func(driver.Finding) {}); err != nil {
			t.Fatal(err)
		}
		if got := l.Info().Failover; got != want {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	want("a single server", driver.GrantsSurvive)
	one := at
	at = strings.Replace(at, server.Addr(), server.Addr()+","+server.Addr(), 1)
	at = strings.Replace(at, ","+"127.0.0.1", ",localhost", 1)
	want("several hosts", driver.GrantsMayBeForgotten)
	at = one
	run(t, client(t, at), `ALTER TABLE holdfast_locks SET UNLOGGED`)
	want("an UNLOGGED table", driver.GrantsMayBeForgotten)
	run(t, client(t, at), `CREATE RULE r AS ON INSERT TO holdfast_locks DO ALSO NOTHING`)
	want("an UNLOGGED table with a rule", driver.GrantsMayBeForgotten)
	run(t, client(t, at), `DROP RULE r ON holdfast_locks`)
	run(t, client(t, at), `ALTER TABLE holdfast_locks SET LOGGED`)
	admin := client(t, server.AdminURL(""))
	run(t, admin, `SELECT pg_create_physical_replication_slot('away')`)
	want("a standby that is not connected", driver.GrantsMayBeForgotten)
	run(t, admin, `SELECT pg_drop_replication_slot('away')`)
	name := func(names string) {
		t.Helper()
		server.Set(t, "synchronous_standby_names", names)
		postgrestest.WaitFor(t, "the setting is in effect", func() bool {
			return scan[string](t, client(t, server.AdminURL("")), `SHOW synchronous_standby_names`) == names
		})
	}
	server.Standby(t, true)
	want("a synchronous standby", driver.GrantsSurvive)
	server.Standby(t, false)
	want("an asynchronous one beside it", driver.GrantsSurvive)
	name("nobody")
	want("a standby that is missing", driver.GrantsMayBeForgotten)
	name("")
	want("asynchronous standbys", driver.GrantsMayBeForgotten)
}

// When the connection that listens is lost, it is opened again, and waiters learn that they may have missed something.
func TestListenerIsReplaced(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	waiter, holder, admin := open(t, at), open(t, at), client(t, at)
	lease := acquire(t, holder, request("job", "first"))
	got := wakeupsOf(t, waiter, "job", "w")
	wantHeld(t, waiter, waiting("job", "second", "w"))
	for range 2 {
		if n := scan[int](t, admin, `SELECT count(pg_terminate_backend(pid))::int FROM pg_stat_activity
			WHERE query LIKE 'LISTEN "holdfast%' AND datname = current_database()`); n != 1 {
			t.Fatalf("%d connections listen", n)
		}
		wantWakeup(t, got, driver.WakingBegan)
	}
	if err := holder.Release(bounded(t), lease); err != nil {
		t.Fatal(err)
	}
	wantWakeup(t, got, driver.MayBeFree)
	acquire(t, waiter, waiting("job", "second", "w"))
}
