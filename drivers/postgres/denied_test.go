package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/postgrestest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

const secretID = "5f0c2f3e-9a3b-4c55-8f7e-1d3c5a7b9e0f"

// wantError checks an error: its kind, and what its text must and must not have.
func wantError(t *testing.T, err error, kind error, parts ...string) {
	t.Helper()
	if !errors.Is(err, kind) || !driver.OutcomeKnown(err) {
		t.Errorf("the error is %v, want %v", err, kind)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error %q does not have %q", err, part)
		}
	}
	for _, secret := range []string{secretID, postgrestest.AppPassword, postgrestest.AdminPassword} {
		if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, errors.Unwrap(err)), secret) {
			t.Errorf("the error shows a secret: %v", err)
		}
	}
}

// A table of another program, or of an older version, is refused with the name of what is wrong, and stays as it is.
func TestForeignTable(t *testing.T) {
	t.Parallel()
	good := createTable(DefaultTable)
	for name, c := range map[string]struct{ table, want string }{
		"other columns":     {`CREATE TABLE holdfast_locks (id int)`, "the column name is missing"},
		"older version":     {strings.Replace(good, "\temptied boolean NOT NULL DEFAULT false,", "", 1), "the column emptied is missing"},
		"other type":        {strings.Replace(good, "ttl bigint", "ttl integer", 1), "the column ttl has the type integer, and must have bigint"},
		"other collation":   {strings.Replace(good, `COLLATE "C" `, "", 1), `the collation "C"`},
		"no key of guards":  {strings.Replace(good, "UNIQUE (name, token)", "CHECK (true)", 1), "no unique index on (name, token)"},
		"another not null":  {strings.Replace(good, "\tUNIQUE", "\tteam text NOT NULL,\n\tUNIQUE", 1), `"team", which is NOT NULL`},
		"view":              {`CREATE VIEW holdfast_locks AS SELECT 1 AS name`, "a view"},
		"partitioned table": {`CREATE TABLE holdfast_locks (name text) PARTITION BY HASH (name)`, "partitioned"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := postgrestest.URL(t)
			c1 := client(t, at)
			run(t, c1, c.table)
			const columns = `SELECT string_agg(attname || ' ' || atttypid, ', ' ORDER BY attnum) FROM pg_attribute
				WHERE attrelid = 'holdfast_locks'::regclass AND attnum > 0`
			before := scan[string](t, c1, columns)
			_, err := Open(bounded(t), at, WithLogger(discard))
			wantError(t, err, driver.ErrDamaged, c.want, `"holdfast_locks"`)
			if after := scan[string](t, c1, columns); after != before {
				t.Errorf("the table was changed from %s to %s", before, after)
			}
		})
	}
}

// Columns that another program adds do no harm.
func TestOtherColumns(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	run(t, client(t, at), strings.Replace(createTable(DefaultTable), "(\n",
		"(\n\tteam text,\n\tsince timestamptz NOT NULL DEFAULT now(),\n", 1))
	l := open(t, at)
	acquire(t, l, request("job", "first"))
	if r, err := l.Inspect(bounded(t), "job"); err != nil || r.State != driver.StateHeld {
		t.Error(r, err)
	}
}

// A program that may not create tables, or lacks a right on the table, gets an error that says what to grant.
func TestRights(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t, postgrestest.Options{})
	admin := client(t, server.AdminURL(""))
	run(t, admin, `CREATE DATABASE app`)
	asAdmin := server.AdminURL("app")
	as := strings.Replace(asAdmin, postgrestest.AdminUser+":"+postgrestest.AdminPassword, postgrestest.AppUser+":"+postgrestest.AppPassword, 1)
	owner := client(t, asAdmin)
	run(t, owner, `REVOKE ALL ON SCHEMA public FROM PUBLIC`)
	ctx := bounded(t)

	_, err := Open(ctx, as, WithLogger(discard))
	wantError(t, err, driver.ErrDenied, "schema")
	run(t, owner, `GRANT USAGE ON SCHEMA public TO `+postgrestest.AppUser)
	_, err = Open(ctx, as, WithLogger(discard))
	wantError(t, err, driver.ErrDenied, "permission denied for schema public")

	reader, err := driver.OpenForReading(ctx, as)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeLocker(t, reader) })
	if r, err := reader.Inspect(ctx, "job"); err != nil || r.State != driver.StateFree {
		t.Errorf("without a table the lock is %v, error %v", r, err)
	}
	if missing, err := driver.MissingStore(ctx, reader); missing != `the table "holdfast_locks"` || err != nil {
		t.Errorf("missing: %q, error %v", missing, err)
	}

	run(t, owner, Schema) // the migration
	_, err = Open(ctx, as, WithLogger(discard))
	wantError(t, err, driver.ErrDenied, "GRANT SELECT, INSERT, UPDATE ON", "holdfast_locks")
	run(t, owner, `GRANT SELECT ON holdfast_locks TO `+postgrestest.AppUser)
	if r, err := reader.Inspect(ctx, "job"); err != nil || r.State != driver.StateFree {
		t.Errorf("a reader gets %v, error %v", r, err)
	}
	_, err = reader.TryAcquire(ctx, request("job", secretID))
	wantError(t, err, driver.ErrDenied, "permission denied for table holdfast_locks", "acquire", "job")
	_, err = Open(ctx, as, WithLogger(discard))
	wantError(t, err, driver.ErrDenied, "GRANT INSERT, UPDATE ON")
	run(t, owner, `GRANT INSERT, UPDATE ON holdfast_locks TO `+postgrestest.AppUser)
	l := open(t, as)
	lease := acquire(t, l, request("job", secretID))
	if err := l.Release(ctx, driver.Lease{Name: "job", ID: driver.NewLeaseID("nobody's")}); err != nil { // no further right is needed
		t.Errorf("a release that finds no lease: %v", err)
	}
	run(t, owner, `REVOKE UPDATE ON holdfast_locks FROM `+postgrestest.AppUser)
	_, err = l.Renew(ctx, lease)
	wantError(t, err, driver.ErrDenied, "permission denied for table holdfast_locks")
	_, err = Open(ctx, strings.Replace(as, postgrestest.AppPassword, "wrong", 1), WithLogger(discard))
	wantError(t, err, driver.ErrDenied, "password authentication failed")
	_, err = Open(ctx, with(as, "schema=absent"), WithLogger(discard))
	wantError(t, err, driver.ErrDenied, "absent")
	_, err = Open(ctx, strings.Replace(as, "/app", "/absent", 1), WithLogger(discard))
	wantError(t, err, driver.ErrDenied, "absent")
}

// A server or a database that only reads refuses locks with an error that says so. A list of hosts leads to the primary.
func TestReadOnly(t *testing.T) {
	serverprocess.Long(t, "starts servers with a standby or a pooler")
	t.Parallel()
	server := postgrestest.Start(t, postgrestest.Options{})
	at := server.Database(t)
	ctx := bounded(t)
	_, err := Open(ctx, with(at, "options=-c%20default_transaction_read_only%3Don"), WithLogger(discard))
	wantError(t, err, driver.ErrDenied, "read-only transaction", "default_transaction_read_only")
	l := open(t, at)
	lease := acquire(t, l, request("job", secretID))
	readOnly := open(t, with(at, "options=-c%20default_transaction_read_only%3Don"))
	_, err = readOnly.Renew(ctx, lease)
	wantError(t, err, driver.ErrDenied, "read-only transaction")

	// A connection that cannot write is not used again: the next one may be able to.
	owner, database := client(t, at), scan[string](t, client(t, at), `SELECT current_database()`)
	run(t, owner, `ALTER DATABASE `+database+` SET default_transaction_read_only = on`)
	stale := open(t, at)
	_, err = stale.Renew(ctx, lease)
	wantError(t, err, driver.ErrDenied, "read-only transaction")
	run(t, owner, `ALTER DATABASE `+database+` RESET default_transaction_read_only`)
	if _, err := stale.Renew(ctx, lease); err != nil {
		t.Error(err)
	}

	standby := server.Standby(t, true)
	_, err = open(t, standby.At(t, at)).TryAcquire(ctx, request("other", secretID))
	wantError(t, err, driver.ErrDenied, "read-only transaction", "primary")
	both := strings.Replace(at, server.Addr(), standby.Addr()+","+server.Addr(), 1)
	acquire(t, open(t, both), request("other", secretID))
}

// A policy that hides the row of a lock that is held makes it nobody else's: the request is refused with the name of the cause.
func TestRowLevelSecurity(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	l, c := open(t, at), client(t, at)
	held := acquire(t, l, request("job", secretID))
	run(t, c, `ALTER TABLE holdfast_locks ENABLE ROW LEVEL SECURITY; ALTER TABLE holdfast_locks FORCE ROW LEVEL SECURITY`)
	for _, policy := range []string{
		`FOR ALL USING (holder = '') WITH CHECK (true)`, `FOR SELECT USING (holder = '')`, `FOR UPDATE USING (false)`,
	} {
		run(t, c, `CREATE POLICY hides ON holdfast_locks `+policy)
		run(t, c, `CREATE POLICY inserts ON holdfast_locks FOR INSERT WITH CHECK (true)`)
		_, err := l.TryAcquire(bounded(t), request("job", "another"))
		wantError(t, err, driver.ErrDenied, "row-level security")
		if _, err := l.Renew(bounded(t), held); !errors.Is(err, driver.ErrLost) {
			t.Errorf("%s: a renewal without effect: %v", policy, err)
		}
		run(t, c, `DROP POLICY hides ON holdfast_locks`)
		run(t, c, `DROP POLICY inserts ON holdfast_locks`)
	}
}

// A row that is damaged, or of another program, is an error that names the column, for that lock alone. Nothing counts as
// free, and nothing is written.
func TestDamagedRow(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	l, c := open(t, at), client(t, at)
	ctx := bounded(t)
	for column, value := range map[string]string{
		"token": "-1", "ttl": "0", "expires": "'infinity'", "acquired_at": "'-infinity'", "renewed_at": "'infinity'", "renewals": "-1",
		"queue": `'"x"'`, "history": `'{"a":1}'`,
	} {
		name := "damaged/" + column
		lease := acquire(t, l, request(name, secretID))
		good := acquire(t, l, request("good/"+column, secretID))
		run(t, c, `UPDATE holdfast_locks SET `+column+` = `+value+` WHERE name = $1`, name)
		before := scan[string](t, c, `SELECT l::text FROM holdfast_locks AS l WHERE name = $1`, name)
		_, err := l.TryAcquire(ctx, request(name, "another"))
		wantError(t, err, driver.ErrDamaged, column, name)
		shown, err := l.Inspect(ctx, name)
		wantError(t, err, driver.ErrDamaged, column, name)
		if shown.State == driver.StateFree {
			t.Errorf("%s: a damaged row is shown as free", column)
		}
		wantError(t, l.Break(ctx, name, driver.BreakAnybody()), driver.ErrDamaged, column, name)
		if after := scan[string](t, c, `SELECT l::text FROM holdfast_locks AS l WHERE name = $1`, name); after != before {
			t.Errorf("a damaged row was changed from %s to %s", before, after)
		}
		records, errs := l.InspectBatch(ctx, "", []string{good.Name, name})
		if errs[0] != nil || records[0].Token != good.Token {
			t.Errorf("%s: the other lock is %v, %v", column, records[0], errs[0])
		}
		if column != "history" { // a batch does not read it
			wantError(t, errs[1], driver.ErrDamaged, column, name)
		}
		if errs := l.ReleaseBatch(ctx, []driver.Lease{good, lease}); errs[0] != nil {
			t.Errorf("%s: the other lock was not released: %v", column, errs[0])
		}
	}
	run(t, c, `INSERT INTO holdfast_locks SELECT 'damaged/tokens/max', 9223372036854775807, '', '', 1000,
		now() - interval '1 day', now(), now()`)
	_, err := l.TryAcquire(ctx, request("damaged/tokens/max", secretID))
	wantError(t, err, driver.ErrDamaged)

	run(t, c, `UPDATE holdfast_locks SET ttl = 0 WHERE name = 'damaged/token'`)
	var names []string
	for r, err := range l.Capabilities().Lister.List(ctx, "damaged/t") {
		names = append(names, r.Name)
		wantError(t, err, driver.ErrDamaged, r.Name)
	}
	if got := strings.Join(names, " "); got != "damaged/token damaged/tokens/max damaged/ttl" {
		t.Errorf("listed: %s", got)
	}
}

// Times that no lease has, such as those of an operator who ends one by hand, do not damage the history of the next holders.
func TestHistoryOfImpossibleTimes(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	l, c := open(t, at), client(t, at)
	for _, set := range []string{
		"expires = '-infinity'", "expires = '0044-03-15 BC'", "expires = now(), acquired_at = '-infinity'",
		"expires = now(), acquired_at = '20000-01-01'",
	} {
		acquire(t, l, request(set, "a"))
		run(t, c, `UPDATE holdfast_locks SET `+set+` WHERE name = $1`, set)
		second := acquire(t, l, request(set, "b"))
		run(t, c, `UPDATE holdfast_locks SET acquired_at = 'infinity' WHERE name = $1`, set)
		if err := l.Release(bounded(t), second); err != nil {
			t.Errorf("%s: %v", set, err)
		}
		third := acquire(t, l, request(set, "c"))
		if r := wantHeld(t, l, request(set, "d")); r.Token != third.Token {
			t.Errorf("%s: held by %+v", set, r)
		}
		if r, err := l.Inspect(bounded(t), set); err != nil || len(r.History) != 2 || r.History[0].Owner != second.Owner {
			t.Errorf("%s: %+v, %v", set, r.History, err)
		}
	}
}

// Names of 1 kB of any bytes that are UTF-8 are kept apart, and longer ones are refused. All fit into the index.
func TestLongNames(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	l := open(t, at)
	names := []string{strings.Repeat("x", 1024), strings.Repeat("\x00", 1024), strings.Repeat("\x01", 1024), strings.Repeat("\x00\x01", 512),
		strings.Repeat("€", 341)}
	tokens := map[string]uint64{}
	for _, name := range names {
		tokens[name] = acquire(t, l, request(name, secretID)).Token
	}
	found := 0
	for r, err := range l.Capabilities().Lister.List(bounded(t), "") {
		if found++; err != nil || tokens[r.Name] != r.Token {
			t.Errorf("%.10q: token %d, %v", r.Name, r.Token, err)
		}
	}
	if found != len(names) {
		t.Errorf("%d names are listed, want %d", found, len(names))
	}
	for _, name := range names { // a notification has room for each
		woken := wakeupsOf(t, l, name, "w")
		wantHeld(t, l, waiting(name, "another", "w"))
		if err := l.Release(bounded(t), leaseOf(name, secretID)); err != nil {
			t.Fatal(err)
		}
		wantWakeup(t, woken, driver.MayBeFree)
	}
	for _, name := range []string{"", strings.Repeat("x", 1025), "\xff"} {
		_, err := l.TryAcquire(bounded(t), request(name, secretID))
		wantError(t, err, driver.ErrInvalid, "Name")
	}
	for _, err := range l.Capabilities().Lister.List(bounded(t), "\xff") {
		wantError(t, err, driver.ErrInvalid, "prefix", "UTF-8")
	}
}

// The rows of other programs and of a schema that the URL names are told apart, whatever the search path is.
func TestTableName(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	c := client(t, at)
	run(t, c, `CREATE SCHEMA "Team One"`)
	named := open(t, with(at, "schema=Team%20One", "table=my%20Locks.x"))
	plain := open(t, at)
	acquire(t, named, request("job", "first"))
	acquire(t, plain, request("job", "second"))
	if n := scan[int](t, c, `SELECT count(*)::int FROM "Team One"."my Locks.x"`); n != 1 {
		t.Errorf("%d rows", n)
	}
	run(t, c, `CREATE TABLE "Team One".holdfast_locks (id int)`)
	moved := open(t, with(at, "search_path=absent,public")) // the table is that of the first schema that has it
	if _, err := moved.TryAcquire(bounded(t), request("job", "third")); !errors.Is(err, driver.ErrHeld) {
		t.Error(err)
	}
}

// Several processes that start at a time make one table.
func TestTableIsMadeOnce(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	errs := make(chan error)
	for range 8 {
		go func() {
			l, err := Open(bounded(t), at, WithLogger(discard))
			if err == nil {
				err = l.Close(context.WithoutCancel(t.Context()))
			}
			errs <- err
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
