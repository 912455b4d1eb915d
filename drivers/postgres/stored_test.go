package postgres

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/postgrestest"
)

// addTrigger adds a trigger for each row to the table of the locks.
func addTrigger(t *testing.T, c *pgx.Conn, when, body string) {
	t.Helper()
	run(t, c, `CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN `+body+` END $$`)
	run(t, c, `CREATE TRIGGER "Meddles" `+when+` ON holdfast_locks FOR EACH ROW EXECUTE FUNCTION meddle()`)
}

// A trigger that a program adds while Lockers run keeps rows as they were, and the server confirms each write. No call takes that
// for a success, and no lock has two holders.
func TestTriggerThatReturnsOld(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	l, other, c, ctx := open(t, at), open(t, at), client(t, at), bounded(t)
	short := request("expires", "a")
	short.TTL = 300 * time.Millisecond
	first := acquire(t, l, short)
	held, batch := acquire(t, l, request("held", "a")), acquire(t, l, request("batch", "a"))
	record, err := l.Inspect(ctx, "held")
	if err != nil {
		t.Fatal(err)
	}
	addTrigger(t, c, "BEFORE UPDATE", "RETURN OLD;")
	postgrestest.WaitFor(t, "the lease expires", func() bool {
		return scan[bool](t, c, `SELECT expires <= clock_timestamp() FROM holdfast_locks WHERE name = 'expires'`)
	})
	for id, locker := range map[string]*Locker{"a": l, "b": l, "c": other} { // also a repeat of the first request
		lease, err := locker.TryAcquire(ctx, request("expires", id))
		if wantError(t, err, driver.ErrDenied, "trigger"); err == nil {
			t.Errorf("%s was granted the lock with token %d; the first holder had %d", id, lease.Token, first.Token)
		}
	}
	replace := request("held", "b")
	replace.Replace = record.Revision
	_, replaced := other.TryAcquire(ctx, replace)
	_, renewed := l.Renew(ctx, held)
	_, errs := l.RenewBatch(ctx, []driver.Lease{held, batch})
	for what, err := range map[string]error{
		"replace": replaced, "renew": renewed, "renew in a batch": errs[0], "and the other": errs[1],
		"release":     l.Release(ctx, held),
		"in a batch":  errors.Join(l.ReleaseBatch(ctx, []driver.Lease{held, batch})...),
		"data":        l.WriteData(ctx, held, []byte("x"), driver.DataRevision{Token: held.Token}),
		"break":       l.Break(ctx, "held", driver.BreakAnybody()),
		"break now":   l.BreakNow(ctx, "held", driver.BreakAnybody()),
		"new Locker":  errOf(Open(ctx, at, WithLogger(discard))),
		"first grant": nil, // an INSERT
	} {
		if what == "first grant" {
			acquire(t, l, request("another", "a"))
			continue
		}
		t.Log(what)
		wantError(t, err, driver.ErrDenied, "trigger")
	}
}

// A trigger that shortens leases makes no shorter lease: its holder would work longer.
func TestTriggerThatShortensLeases(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	l, c := open(t, at), client(t, at)
	first := acquire(t, l, request("job", "a"))
	addTrigger(t, c, "BEFORE INSERT OR UPDATE", "NEW.expires := least(NEW.expires, clock_timestamp() + interval '1 s'); RETURN NEW;")
	_, err := l.Renew(bounded(t), first)
	wantError(t, err, driver.ErrDenied, "trigger")
	_, err = l.TryAcquire(bounded(t), request("other", "a"))
	wantError(t, err, driver.ErrDenied, "trigger")
	if r, err := l.Inspect(bounded(t), "other"); err != nil || r.State != driver.StateFree {
		t.Errorf("the refused request left %+v, %v", r, err)
	}
}

// Triggers, rules and policies that a table has when a program starts, what is refused, and what the checkup says of each.
func TestWhatStandsOnTheTable(t *testing.T) {
	t.Parallel()
	const security = `ALTER TABLE holdfast_locks ENABLE ROW LEVEL SECURITY; ALTER TABLE holdfast_locks FORCE ROW LEVEL SECURITY; `
	trigger := func(when, body string) func(*testing.T, *pgx.Conn) {
		return func(t *testing.T, c *pgx.Conn) { t.Helper(); addTrigger(t, c, when, body) }
	}
	sql := func(statements string) func(*testing.T, *pgx.Conn) {
		return func(t *testing.T, c *pgx.Conn) { t.Helper(); run(t, c, statements) }
	}
	for name, c := range map[string]struct {
		add     func(*testing.T, *pgx.Conn)
		refused error
		subject string
		want    string // in the error and in the finding
	}{
		"returns old":       {trigger("BEFORE UPDATE", "RETURN OLD;"), driver.ErrDenied, subjectTable, `"Meddles"`},
		"discards inserts":  {trigger("BEFORE INSERT", "RETURN NULL;"), driver.ErrDenied, subjectTable, `"Meddles"`},
		"discards updates":  {trigger("BEFORE UPDATE", "RETURN NULL;"), driver.ErrDenied, subjectTable, `"Meddles"`},
		"changes the token": {trigger("BEFORE UPDATE", "NEW.token := OLD.token; RETURN NEW;"), driver.ErrDenied, subjectTable, `"Meddles"`},
		"refuses writes":    {trigger("BEFORE UPDATE", "RAISE 'never';"), driver.ErrDenied, subjectTable, `never`},
		"after":             {trigger("AFTER UPDATE", "DELETE FROM holdfast_locks; RETURN NULL;"), driver.ErrDenied, subjectTable, `"Meddles"`},
		"harmless":          {trigger("BEFORE INSERT OR UPDATE", "NEW.owner := upper(NEW.owner); RETURN NEW;"), nil, subjectTable, `"Meddles"`},
		"of deletions":      {trigger("BEFORE DELETE", "RETURN NULL;"), nil, subjectTable, "has what locks need"},
		"disabled": {sql(`CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END';
			CREATE TRIGGER m BEFORE UPDATE ON holdfast_locks FOR EACH ROW EXECUTE FUNCTION meddle();
			ALTER TABLE holdfast_locks DISABLE TRIGGER m`), nil, subjectTable, "has what locks need"},
		"rule": {sql(`CREATE RULE "Keeps" AS ON UPDATE TO holdfast_locks DO INSTEAD NOTHING`), driver.ErrDamaged, subjectTable, `"Keeps"`},
		"rule of deletions": {sql(`CREATE RULE keeps AS ON DELETE TO holdfast_locks DO INSTEAD NOTHING`), nil, subjectTable,
			"has what locks need"},
		"no policy": {sql(security), driver.ErrDenied, subjectRows, "SELECT, INSERT, UPDATE"},
		"of a reader": {sql(security + `CREATE POLICY p ON holdfast_locks FOR SELECT USING (true)`),
			driver.ErrDenied, subjectRows, "INSERT, UPDATE"},
		"by holder": {sql(security + `CREATE POLICY p ON holdfast_locks USING (holder = '')`),
			driver.ErrDenied, subjectRows, "SELECT, INSERT, UPDATE"},
		"of inserts": {sql(security + `CREATE POLICY p ON holdfast_locks FOR INSERT WITH CHECK (true)`),
			driver.ErrDenied, subjectRows, "SELECT, UPDATE"},
		"of others": {sql(security + `CREATE POLICY p ON holdfast_locks TO pg_monitor USING (true)`),
			driver.ErrDenied, subjectRows, "SELECT, INSERT, UPDATE"},
		"restrictive": {sql(security + `CREATE POLICY p ON holdfast_locks USING (true);
			CREATE POLICY r ON holdfast_locks AS RESTRICTIVE FOR UPDATE USING (broken)`), driver.ErrDenied, subjectRows, "UPDATE"},
		"for everybody": {sql(security + `CREATE POLICY p ON holdfast_locks USING (true)`), nil, subjectRows, "no policy hides"},
		"one each": {sql(security + `CREATE POLICY r ON holdfast_locks FOR SELECT TO CURRENT_USER USING (true);
			CREATE POLICY i ON holdfast_locks FOR INSERT WITH CHECK (true); CREATE POLICY u ON holdfast_locks FOR UPDATE USING (true)`),
			nil, subjectRows, "no policy hides"},
		"for its owner": {sql(`ALTER TABLE holdfast_locks ENABLE ROW LEVEL SECURITY`), nil, subjectRows, "no policy hides"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := postgrestest.URL(t)
			closeLocker(t, open(t, at))
			conn := client(t, at)
			c.add(t, conn)
			l, err := Open(bounded(t), at, WithLogger(discard))
			reader, unread := driver.OpenForReading(bounded(t), at)
			if unread == nil {
				closeLocker(t, reader)
			}
			if hides := c.refused != nil && strings.Contains(c.want, "SELECT"); hides != (unread != nil) {
				t.Errorf("to read locks: %v", unread)
			}
			level := driver.LevelOK
			if c.refused == nil {
				if err != nil {
					t.Fatal(err)
				}
				defer closeLocker(t, l)
				lease := acquire(t, l, request("job", "a"))
				if _, err := l.Renew(bounded(t), lease); err != nil {
					t.Error(err)
				}
			} else {
				level = driver.LevelWrong
				wantError(t, err, c.refused, c.want, "holdfast_locks")
				if c.subject == subjectRows {
					wantError(t, err, c.refused, "("+c.want+")", "DISABLE ROW LEVEL SECURITY")
				}
			}
			wantFinding(t, examine(t, at), c.subject, level, c.want)
			run(t, conn, `ALTER TABLE holdfast_locks NO FORCE ROW LEVEL SECURITY`)
			if n := scan[int](t, conn, `SELECT count(*) FROM holdfast_locks WHERE name <> 'job'`); n != 0 {
				t.Errorf("%d rows are left of the trial", n)
			}
		})
	}
}

// A program that uses an UNLOGGED table is warned when it starts.
func TestUnloggedTable(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	closeLocker(t, open(t, at))
	run(t, client(t, at), `ALTER TABLE holdfast_locks SET UNLOGGED`)
	var log bytes.Buffer
	l := open(t, at, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	if text := log.String(); !strings.Contains(text, "level=WARN") || !strings.Contains(text, "UNLOGGED") || strings.Count(text, "\n") != 1 {
		t.Errorf("logged: %s", text)
	}
	if l.Info().Failover != driver.GrantsMayBeForgotten {
		t.Error("grants survive")
	}
}
