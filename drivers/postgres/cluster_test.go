package postgres

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/postgrestest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// longRequest is a request whose lease outlasts a test on a busy machine.
func longRequest(name, id string) driver.Request {
	req := request(name, id)
	req.TTL = time.Hour
	return req
}

// sameDatabase makes a database of the same name on another server.
func sameDatabase(t *testing.T, at string, server *postgrestest.Server) {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	postgrestest.SQL(t, server.AdminURL(""), "CREATE DATABASE "+u.Path[1:]+" OWNER "+postgrestest.AppUser)
}

// switched is a Locker of a program's own pool, whose hook decides to which server each new connection leads.
func switched(t *testing.T, at string) (*Locker, func(*postgrestest.Server)) {
	t.Helper()
	settings, err := pgxpool.ParseConfig(at)
	if err != nil {
		t.Fatal(err)
	}
	var to atomic.Pointer[postgrestest.Server]
	settings.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		if server := to.Load(); server != nil {
			host, port, err := net.SplitHostPort(server.Addr())
			if err != nil {
				return err
			}
			number, err := strconv.ParseUint(port, 10, 16)
			c.Host, c.Port = host, uint16(number)
			return err
		}
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	l, err := New(bounded(t), pool, WithLogger(discard))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeLocker(t, l) })
	return l, func(s *postgrestest.Server) { to.Store(s) }
}

// heldOn reports whether a server has a lock of this name as held.
func heldOn(t *testing.T, at, name string) bool {
	t.Helper()
	c := client(t, at)
	return scan[bool](t, c, `SELECT to_regclass('holdfast_locks') IS NOT NULL`) &&
		scan[bool](t, c, `SELECT EXISTS (SELECT FROM holdfast_locks WHERE name = $1 AND holder <> '')`, name)
}

// Promise 1: a host that says that it is a primary is refused if it belongs to another cluster: the locks of the first are not there.
// The error lasts only if no host may come back.
func TestOtherClusterIsRefused(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	first, second := postgrestest.Start(t, postgrestest.Options{}), postgrestest.Start(t, postgrestest.Options{})
	at := first.Database(t)
	sameDatabase(t, at, second)
	closeLocker(t, open(t, second.At(t, at))) // it has a table
	l := open(t, both(t, at, second))
	own, lead := switched(t, at)
	lease := acquire(t, l, longRequest("job", "a"))
	lead(second)
	own.pool.Reset()
	_, err := own.TryAcquire(bounded(t), longRequest("job", "b"))
	wantError(t, err, driver.ErrDenied, "another cluster", "system identifier", "pg_upgrade")
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{errOf(l.Renew(bounded(t), lease)), errOf(l.TryAcquire(bounded(t), longRequest("job", "b")))} {
		if err == nil || errors.Is(err, driver.ErrDenied) || errors.Is(err, driver.ErrLost) || !strings.Contains(err.Error(), "another cluster") {
			t.Errorf("without the first server: %v", err)
		}
	}
	if err := first.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := certain(t, func() error { return errOf(l.Renew(bounded(t), lease)) }); err != nil {
		t.Errorf("with the first server again: %v", err)
	}
	lead(nil)
	if _, err := own.TryAcquire(bounded(t), longRequest("job", "b")); !errors.Is(err, driver.ErrHeld) {
		t.Error(err)
	}
	if heldOn(t, second.At(t, at), "job") {
		t.Error("the lock was granted in the other cluster")
	}
}

// Promise 1: an old primary that comes back is refused by a process that has used the new one, also on connections that were made
// before the fail-over. The next host is used.
func TestOldPrimaryIsRefused(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	old := postgrestest.Start(t, postgrestest.Options{})
	at := old.Database(t)
	standby := old.Standby(t, true)
	l := open(t, both(t, at, standby))
	own, lead := switched(t, at)
	acquire(t, own, longRequest("before", "a"))
	lease := acquire(t, l, longRequest("job", "a"))
	if err := old.Kill(); err != nil {
		t.Fatal(err)
	}
	standby.Promote(t)
	if err := certain(t, func() error { return errOf(l.Renew(bounded(t), lease)) }); err != nil {
		t.Fatalf("after the fail-over: %v", err)
	}
	if err := old.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	postgrestest.SQL(t, old.AdminURL(""), "ALTER SYSTEM SET synchronous_standby_names = ''", "SELECT pg_reload_conf()")

	l.pool.Reset() // as after a failure: new connections begin at the first host
	for _, name := range []string{"second", "third"} {
		acquire(t, l, longRequest(name, "a"))
		if heldOn(t, old.At(t, at), name) || !heldOn(t, standby.At(t, at), name) {
			t.Errorf("%s was granted on the old primary", name)
		}
	}

	// This one has used the old primary alone, and then meets both. Its connection has ended with the server.
	own.pool.Reset()
	acquire(t, own, longRequest("old", "a"))
	if !heldOn(t, old.At(t, at), "old") {
		t.Error("the test's connection does not lead to the old primary")
	}
	earlier, err := own.pool.Acquire(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	lead(standby)
	acquire(t, own, longRequest("new", "a"))
	earlier.Release()
	acquire(t, own, longRequest("newer", "a"))
	if heldOn(t, old.At(t, at), "newer") || !heldOn(t, standby.At(t, at), "newer") {
		t.Error("an earlier connection to the old primary was used")
	}
	lead(nil)
	own.pool.Reset()
	_, err = own.TryAcquire(bounded(t), longRequest("newest", "a"))
	if err == nil || errors.Is(err, driver.ErrDenied) ||
		!strings.Contains(err.Error(), "old primary: its timeline is 1, and this program has used 2") ||
		!strings.Contains(err.Error(), "restart the program if that one was given up") {
		t.Errorf("of the old primary alone: %v", err)
	}
}

// A server that does not say to which cluster it belongs is used, and asked once.
func TestServerThatDoesNotSayItsIdentity(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t, postgrestest.Options{})
	at := server.Database(t)
	run(t, client(t, asAdmin(at)), `REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC`)
	l := open(t, at)
	lease := acquire(t, l, request("job", "a"))
	if l.cluster.asks() {
		t.Error("each connection asks again")
	}
	l.pool.Reset()
	if _, err := l.Renew(bounded(t), lease); err != nil {
		t.Error(err)
	}
	wantFinding(t, examine(t, at), subjectHosts, driver.LevelUnchecked, "GRANT EXECUTE ON FUNCTION pg_control_system()")
}

// A hosted service refuses with a code of its own, and its locks work.
func TestServerThatRefusesInItsOwnWay(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	run(t, client(t, at), `CREATE FUNCTION pg_control_system(OUT system_identifier bigint) LANGUAGE plpgsql AS
		$$ BEGIN RAISE 'not on this service' USING ERRCODE = 'HV000'; END $$`)
	l := open(t, with(at, "options="+queryEscape("-c search_path=public,pg_catalog")))
	acquire(t, l, request("job", "a"))
	if l.cluster.asks() {
		t.Error("each connection asks again")
	}
}

// A standby that cannot answer, here for the isolation level of the user, is not used. So it does not decide that nobody is asked.
func TestStandbyThatCannotAnswer(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	server := postgrestest.Start(t, postgrestest.Options{})
	at := server.Database(t)
	standby := server.Standby(t, true)
	run(t, client(t, asAdmin(at)), `ALTER ROLE `+postgrestest.AppUser+` SET default_transaction_isolation = 'serializable'`)
	l := open(t, both(t, standby.At(t, at), server))
	acquire(t, l, request("job", "a"))
	if !l.cluster.asks() || l.cluster.system == "" {
		t.Error("the cluster is unknown")
	}
}

// What is remembered is that of primaries, and a standby of the same cluster is no old primary.
func TestAdmit(t *testing.T) {
	t.Parallel()
	k := &cluster{}
	for n, step := range []struct {
		id   identity
		want error
	}{
		{identity{system: "2", standby: true}, nil}, // its primary is unknown
		{identity{system: "1", timeline: 3}, nil},
		{identity{system: "1", standby: true}, nil},
		{identity{system: "2", standby: true}, errOtherCluster},
		{identity{system: "2", timeline: 9}, errOtherCluster},
		{identity{system: "1", timeline: 2}, errOldPrimary},
		{identity{}, nil},
		{identity{system: "1", timeline: 4}, nil},
		{identity{system: "1", timeline: 3}, errOldPrimary},
	} {
		if err := k.admit(step.id); !errors.Is(err, step.want) {
			t.Errorf("step %d: %v, want %v", n, err, step.want)
		}
	}
	if !k.asks() {
		t.Error("a cluster that has said its identity is no longer asked")
	}
}
