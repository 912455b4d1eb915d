package postgres

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/postgrestest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// examine returns what Check finds by a URL, by subject, the worst of each.
func examine(t *testing.T, rawURL string) map[string]driver.Finding {
	t.Helper()
	l, err := driver.OpenForCheck(bounded(t), rawURL)
	if err != nil {
		t.Fatal(err)
	}
	defer closeLocker(t, l)
	all := map[string]driver.Finding{}
	if err := l.Capabilities().Checker.Check(bounded(t), func(f driver.Finding) {
		if before, there := all[f.Subject]; !there || before.Level < f.Level {
			all[f.Subject] = f
		}
		if f.Level > driver.LevelUnchecked && f.Remedy == "" {
			t.Errorf("no remedy: %+v", f)
		}
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// wantFinding checks that a subject has a level and a text, and that no other is worse than OK, except those named.
func wantFinding(t *testing.T, all map[string]driver.Finding, subject string, level driver.Level, part string, except ...string) {
	t.Helper()
	f, there := all[subject]
	if !there || f.Level != level || !strings.Contains(f.Detail+f.Remedy+f.Command, part) {
		t.Errorf("%s: %v %q %q, want %v and %q", subject, f.Level, f.Detail, f.Remedy, level, part)
	}
	for other, f := range all {
		if other != subject && f.Level > driver.LevelUnchecked && !strings.Contains(strings.Join(except, " "), other) {
			t.Errorf("also %+v", f)
		}
	}
}

// A table that is right has no findings; without one, nothing is made.
func TestCheckFindsNothing(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	wantFinding(t, examine(t, at), subjectTable, driver.LevelOK, "none yet")
	if n := scan[int](t, client(t, at), `SELECT count(*)::int FROM pg_class WHERE relname = 'holdfast_locks'`); n != 0 {
		t.Error("the check has made a table")
	}
	acquire(t, open(t, at), request("job", "first"))
	all := examine(t, at)
	wantFinding(t, all, subjectWaking, driver.LevelOK, "arrives")
	if len(all) != 10 {
		t.Errorf("%d subjects: %v", len(all), all)
	}
}

// Each thing that may be wrong with the table and the settings of the user is found.
func TestCheckFindsTheTable(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t, postgrestest.Options{})
	for name, c := range map[string]struct {
		statement, params, subject string
		level                      driver.Level
		want                       string
	}{
		"unlogged":      {`ALTER TABLE holdfast_locks SET UNLOGGED`, "", subjectTable, driver.LevelWrong, "SET LOGGED"},
		"older version": {`ALTER TABLE holdfast_locks DROP COLUMN emptied`, "", subjectTable, driver.LevelWrong, "the column emptied is missing"},
		"rights":        {`REVOKE UPDATE ON holdfast_locks FROM app`, "", subjectRights, driver.LevelWrong, "GRANT UPDATE ON"},
		"row security": {`ALTER TABLE holdfast_locks ENABLE ROW LEVEL SECURITY;
			ALTER TABLE holdfast_locks FORCE ROW LEVEL SECURITY`, "", subjectRows, driver.LevelWrong, "DISABLE ROW LEVEL SECURITY"},
		"clock": {`INSERT INTO holdfast_locks SELECT 'x', 1, '', '', 1, now(), now(),
			now() + interval '1 hour'`, "", subjectClock, driver.LevelDoubtful, "stepped back"},
		"read only":    {"", "default_transaction_read_only%3Don", subjectPrimary, driver.LevelWrong, "default_transaction_read_only is on"},
		"commit off":   {"", "synchronous_commit%3Doff", subjectDurability, driver.LevelOK, "off by default, and on for every grant"},
		"commit local": {"", "synchronous_commit%3Dlocal", subjectDurability, driver.LevelOK, "local by default, and on for every grant"},
		"remote write": {"", "synchronous_commit%3Dremote_write", subjectDurability, driver.LevelOK, "is flushed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := server.Database(t)
			closeLocker(t, open(t, at))
			if c.statement != "" {
				run(t, client(t, at), c.statement)
			}
			if c.params != "" {
				at = with(at, "options=-c%20"+c.params)
			}
			wantFinding(t, examine(t, at), c.subject, c.level, c.want)
		})
	}
}

// Standbys that can forget a grant, those that are missing, a URL that leads to one, and how old it is, are found.
func TestCheckFindsStandbys(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	server := postgrestest.Start(t, postgrestest.Options{})
	at := server.Database(t)
	closeLocker(t, open(t, at))
	admin := strings.Replace(at, postgrestest.AppUser+":"+postgrestest.AppPassword, postgrestest.AdminUser+":"+postgrestest.AdminPassword, 1)
	wantFinding(t, examine(t, at), subjectStandbys, driver.LevelOK, "none is connected")
	standby := server.Standby(t, false)
	wantFinding(t, examine(t, at), subjectStandbys, driver.LevelDoubtful, "can forget")
	wantFinding(t, examine(t, admin), subjectStandbys, driver.LevelDoubtful, "asynchronous: \"standby")
	acquire(t, open(t, at), request("job", "first"))
	onStandby := client(t, standby.AdminURL(""))
	postgrestest.WaitFor(t, "the standby has replayed a transaction", func() bool {
		return scan[bool](t, onStandby, `SELECT pg_last_xact_replay_timestamp() IS NOT NULL`)
	})
	wantFinding(t, examine(t, standby.At(t, at)), subjectPrimary, driver.LevelWrong, " old")
	server.Standby(t, true)
	found := examine(t, admin)
	wantFinding(t, found, subjectStandbys, driver.LevelDoubtful, "Fail over to a synchronous one only")
	if got := found[subjectStandbys].Server; got != "standbys: 2, synchronous: 1" {
		t.Errorf("the server is %q", got)
	}
	wantFinding(t, examine(t, at), subjectStandbys, driver.LevelUnchecked, "pg_monitor")
	remoteWrite := with(at, "options=-c%20synchronous_commit%3Dremote_write")
	wantFinding(t, examine(t, remoteWrite), subjectDurability, driver.LevelDoubtful, "remote_write")
	set := func(name, value string) {
		server.Set(t, name, value)
		postgrestest.WaitFor(t, "the setting is in effect", func() bool {
			return scan[string](t, client(t, server.AdminURL("")), `SHOW `+name) == value
		})
	}
	set("synchronous_standby_names", "nobody")
	// Its own notification does not wait for the standby.
	wantFinding(t, examine(t, admin), subjectStandbys, driver.LevelWrong, "no such standby is connected")
	set("fsync", "off")
	wantFinding(t, examine(t, admin), subjectDurability, driver.LevelWrong, "fsync is off", subjectStandbys)
}

// A standby that receives what the primary writes and does not replay it falls behind.
func TestCheckFindsLag(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	server := postgrestest.Start(t, postgrestest.Options{})
	at := server.Database(t)
	l := open(t, at)
	standby := server.Standby(t, false)
	lease := acquire(t, l, request("job", "first"))
	standby.PauseReplay(t)
	admin := strings.Replace(at, postgrestest.AppUser+":"+postgrestest.AppPassword, postgrestest.AdminUser+":"+postgrestest.AdminPassword, 1)
	checked := open(t, admin)
	postgrestest.WaitFor(t, "the standby is behind", func() (found bool) {
		if _, err := l.Renew(bounded(t), lease); err != nil {
			t.Fatal(err)
		}
		if err := checked.Check(bounded(t), func(f driver.Finding) {
			found = found || f.Subject == subjectStandbys && f.Level == driver.LevelDoubtful &&
				strings.Contains(f.Detail, "s behind: a fail-over takes")
		}); err != nil {
			t.Fatal(err)
		}
		return found
	})
	standby.ResumeReplay(t)
}

// What reads the changes of a database is no standby.
func TestLogicalReplicationIsNoStandby(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	server := postgrestest.Start(t, postgrestest.Options{Settings: map[string]string{"wal_level": "logical"}})
	at := server.Database(t)
	admin := strings.Replace(at, postgrestest.AppUser+":"+postgrestest.AppPassword, postgrestest.AdminUser+":"+postgrestest.AdminPassword, 1)
	control := client(t, admin)
	run(t, control, `SELECT pg_create_logical_replication_slot('reader', 'pgoutput')`)
	run(t, control, `CREATE PUBLICATION all_tables FOR ALL TABLES`)
	reader, err := pgconn.Connect(bounded(t), with(admin, "replication=database"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reader.Close(bounded(t)) })
	reader.Frontend().SendQuery(&pgproto3.Query{
		String: `START_REPLICATION SLOT reader LOGICAL 0/0 (proto_version '1', publication_names 'all_tables')`,
	})
	if err := reader.Frontend().Flush(); err != nil {
		t.Fatal(err)
	}
	postgrestest.WaitFor(t, "the reader is connected", func() bool {
		return scan[int](t, control, `SELECT count(*) FROM pg_stat_replication`) == 1
	})
	wantFinding(t, examine(t, admin), subjectStandbys, driver.LevelOK, "none is connected")
}

// A pooler that delivers no notifications is found, and a second URL mends it.
func TestCheckFindsPoolers(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	server := postgrestest.Start(t, postgrestest.Options{})
	at := server.Database(t)
	pooled := postgrestest.PgBouncer(t, server, postgrestest.TransactionMode).At(t, at)
	closeLocker(t, open(t, at))
	wantFinding(t, examine(t, pooled), subjectWaking, driver.LevelDoubtful, "waiters poll")
	wantFinding(t, examine(t, with(pooled, "listen="+queryEscape(at))), subjectWaking, driver.LevelOK, "arrives")
	absent := strings.Replace(at, server.Addr(), "127.0.0.1:1", 1)
	wantFinding(t, examine(t, with(pooled, "listen="+queryEscape(absent))), subjectWaking, driver.LevelDoubtful, "cannot be opened")
}

// A query of the check that fails is no fault of what it examines, and says what to do.
func TestCheckThatIsNotAnswered(t *testing.T) {
	t.Parallel()
	var found []driver.Finding
	c := &checkup{l: open(t, postgrestest.URL(t)), Report: func(f driver.Finding) { found = append(found, f) }}
	if c.read(bounded(t), subjectClock, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SELECT 1/0")
		return err
	}) {
		t.Error("a query that fails has answered")
	}
	if len(found) != 1 || found[0].Level != driver.LevelDoubtful || found[0].Remedy == "" || !strings.Contains(found[0].Detail, "division") {
		t.Errorf("%+v", found)
	}
}

// The lock that examined a backend is removed, and no other.
func TestRemoveProbe(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	l, ctx := open(t, at), bounded(t)
	held := acquire(t, l, request("held", "first"))
	withData := request("data", "second")
	withData.Data = []byte("x")
	_ = l.Release(ctx, acquire(t, l, withData))
	_ = l.Release(ctx, acquire(t, l, request("free", "third")))
	_ = l.Release(ctx, acquire(t, l, request("future", "fourth"))) // the next token could not be greater if the clock made it
	run(t, client(t, at), `UPDATE holdfast_locks SET token = token + 3600000 WHERE name = 'future'`)
	for _, name := range []string{"held", "data", "free", "future", "absent"} {
		if err := l.RemoveProbe(context.WithoutCancel(ctx), name); err != nil {
			t.Error(name, err)
		}
	}
	if names := scan[string](t, client(t, at), `SELECT string_agg(name, ' ' ORDER BY name) FROM holdfast_locks`); names != "data future held" {
		t.Errorf("%s remain, token %d", names, held.Token)
	}
}
