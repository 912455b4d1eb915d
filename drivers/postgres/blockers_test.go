package postgres

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/postgrestest"
)

// console is a connection of somebody who has forgotten it, and its process.
func console(t *testing.T, at string, statements ...string) (c *pgx.Conn, pid string) {
	t.Helper()
	c = client(t, with(at, "application_name=forgotten%20console"))
	pid = fmt.Sprint(scan[int](t, c, `SELECT pg_backend_pid()`))
	run(t, c, `BEGIN`)
	run(t, c, `SELECT 'private'`)
	for _, s := range statements {
		run(t, c, s)
	}
	return c, pid
}

// wantNamed checks that a text names the process and how to end it, and shows nothing of what it does.
func wantNamed(t *testing.T, what, text, pid string) {
	t.Helper()
	for _, part := range []string{"process " + pid + " ", `"forgotten console"`, postgrestest.AppUser, "idle in transaction",
		"pg_terminate_backend(" + pid + ")"} {
		if !strings.Contains(text, part) {
			t.Errorf("%s does not say %q: %s", what, part, text)
		}
	}
	if strings.Contains(text, "private") || strings.Contains(text, "SELECT 'p") {
		t.Errorf("%s shows a query: %s", what, text)
	}
}

// Somebody's open transaction, or DDL, keeps a free lock from everybody. The request, what people see of the lock and the checkup name it.
func TestOpenTransactionIsNamed(t *testing.T) {
	t.Parallel()
	const jobs = `CREATE TABLE jobs (name text COLLATE "C" REFERENCES holdfast_locks (name))`
	for name, c := range map[string]struct {
		statements []string
		waits      string // of another console, which waits
		table      bool   // it is of the whole table
		perhaps    bool   // which row it has locked is unknown
	}{
		"for update":   {statements: []string{`SELECT FROM holdfast_locks WHERE name = 'job' FOR UPDATE`}},
		"for share":    {statements: []string{`SELECT FROM holdfast_locks WHERE name = 'job' FOR SHARE`}},
		"foreign key":  {statements: []string{jobs, `COMMIT`, `BEGIN`, `INSERT INTO jobs VALUES ('job')`}},
		"its own row":  {statements: []string{`INSERT INTO holdfast_locks SELECT 'new', 1, '', '', 1, now(), now(), now()`}, perhaps: true},
		"locked table": {statements: []string{`LOCK TABLE holdfast_locks IN ACCESS EXCLUSIVE MODE`}, table: true},
		"migration": {statements: []string{`SELECT FROM holdfast_locks`}, waits: `ALTER TABLE holdfast_locks ADD COLUMN team text`,
			table: true},
		"exclusive":     {statements: []string{`LOCK TABLE holdfast_locks IN EXCLUSIVE MODE`}, table: true},
		"of other rows": {statements: []string{`SELECT FROM holdfast_locks WHERE name = 'other' FOR UPDATE`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := postgrestest.URL(t)
			l := open(t, at)
			for _, name := range []string{"job", "other"} {
				if err := l.Release(bounded(t), acquire(t, l, request(name, "a"))); err != nil {
					t.Fatal(err)
				}
			}
			reader, err := driver.OpenForReading(bounded(t), at)
			if err != nil {
				t.Fatal(err)
			}
			defer closeLocker(t, reader)
			forgotten, pid := console(t, at, c.statements...)
			var all sync.WaitGroup
			if c.waits != "" {
				migration := client(t, victim(t, at))
				all.Go(func() { run(t, migration, c.waits) })
				waitsFor(t, client(t, at), "Lock")
			}
			lock := "job"
			if c.perhaps {
				lock = "new"
			}
			limited, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err = l.TryAcquire(limited, request(lock, "b"))
			record, unread := reader.Inspect(limited, lock)
			if name == "of other rows" {
				if err != nil || unread != nil || record.Blocked != "" {
					t.Errorf("another lock: %v, %q, %v", err, record.Blocked, unread)
				}
				return
			}
			wantNamed(t, "the request", fmt.Sprint(err), pid)
			if !c.table {
				wantError(t, err, driver.ErrHeld)
			}
			if !c.table && !c.perhaps {
				wantNamed(t, "the record", record.Blocked, pid)
			}
			if c.table || name == "for update" {
				if control := client(t, at); !c.table {
					postgrestest.WaitFor(t, "the transaction is open for long", func() bool {
						return scan[bool](t, control, `SELECT xact_start < now() - interval '11 s' FROM pg_stat_activity WHERE pid = $1::text::int`, pid)
					})
				}
				f := examine(t, at)[subjectTransactions]
				wantNamed(t, "the checkup", f.Detail+" "+f.Command, pid)
			}
			run(t, forgotten, `ROLLBACK`)
			all.Wait()
			acquire(t, l, request(lock, "b"))
			if record, err := reader.Inspect(bounded(t), lock); err != nil || record.Blocked != "" {
				t.Errorf("afterwards: %q, %v", record.Blocked, err)
			}
		})
	}
}

// A transaction that guards its writes delays neither renewals nor, while the lock is held, anybody else: nothing advises people to end it.
func TestGuardIsNoBlockerOfAHeldLock(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	acquire(t, open(t, at), longRequest("job", "a"))
	reader, err := driver.OpenForReading(bounded(t), at)
	if err != nil {
		t.Fatal(err)
	}
	defer closeLocker(t, reader)
	_, pid := console(t, at, `SELECT FROM holdfast_locks WHERE name = 'job' FOR KEY SHARE`)
	young := scan[bool](t, client(t, at), `SELECT xact_start > now() - interval '9 s' FROM pg_stat_activity WHERE pid = $1::text::int`, pid)
	if r, err := reader.Inspect(bounded(t), "job"); err != nil || young && r.Blocked != "" {
		t.Errorf("%q, %v", r.Blocked, err)
	}
	for _, c := range []struct {
		b    blocker
		held bool
		want int
	}{
		{blocker{rank: 0, seconds: 3}, true, 0},
		{blocker{rank: 0, seconds: 3}, false, 1},
		{blocker{rank: 0, seconds: 11}, true, 1},
		{blocker{rank: 0, seconds: -1}, true, 1}, // this user may not see it
		{blocker{rank: 1, seconds: 3}, true, 1},
		{blocker{rank: 2, seconds: 3}, false, 0},
		{blocker{rank: 2, seconds: 11}, false, 1},
	} {
		if got := len(mattering([]blocker{c.b}, c.held)); got != c.want {
			t.Errorf("%+v of a lock that is held, %v: %d, want %d", c.b, c.held, got, c.want)
		}
	}
}

// The holder whose row is locked cannot renew, and a waiter gives up: both say who has locked it.
func TestOpenTransactionInErrorsOfHolderAndWaiter(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	l := open(t, at)
	held := acquire(t, l, request("job", "a"))
	if err := l.Release(bounded(t), acquire(t, l, request("free", "a"))); err != nil {
		t.Fatal(err)
	}
	transaction, pid := console(t, at, `SELECT FROM holdfast_locks FOR UPDATE`)
	var all sync.WaitGroup
	all.Go(func() {
		_, err := l.Renew(bounded(t), held)
		wantUnknown(t, err)
		wantNamed(t, "the renewal", fmt.Sprint(err), pid)
	})
	c, err := holdfast.New(open(t, at))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	_, err = c.Lock(ctx, "free")
	wantNamed(t, "the waiter", fmt.Sprint(err), pid)
	all.Wait()
	run(t, transaction, `ROLLBACK`)
	if err := c.Shutdown(bounded(t)); err != nil {
		t.Error(err)
	}
}

// A role's statement_timeout ends the wait for a row before the driver's own limit. That is the same to the requests that wait.
func TestStatementTimeoutWhileTheRowIsLocked(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	l := open(t, at)
	if err := l.Release(bounded(t), acquire(t, l, request("free", "a"))); err != nil {
		t.Fatal(err)
	}
	held := acquire(t, l, longRequest("held", "a"))
	transaction, pid := console(t, at, `SELECT FROM holdfast_locks FOR UPDATE`)
	for _, connections := range []string{"pool_max_conns=1", "pool_max_conns=4"} {
		impatient := open(t, with(at, "options=-c%20statement_timeout%3D700", connections))
		_, err := impatient.TryAcquire(bounded(t), request("free", "b"))
		wantError(t, err, driver.ErrHeld)
		wantNamed(t, connections+": the request", fmt.Sprint(err), pid)
		_, err = impatient.Renew(bounded(t), held)
		wantUnknown(t, err)
		wantNamed(t, connections+": the renewal", fmt.Sprint(err), pid)
	}
	run(t, transaction, `ROLLBACK`)
}

// Where commits are slow, a row is locked for longer than a request first waits. Requests that meet then are not refused unread.
func TestRepeatsOfARowThatIsLockedForAMoment(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	l := open(t, at)
	acquire(t, l, request("job", "a"))
	blocker := client(t, at)
	run(t, blocker, `BEGIN`)
	run(t, blocker, `SELECT FROM holdfast_locks WHERE name = 'job' FOR UPDATE`)
	var calls sync.WaitGroup
	for range 16 {
		calls.Go(func() {
			if _, err := l.TryAcquire(bounded(t), request("job", "a")); err != nil {
				t.Errorf("the holder's repeat: %v", err)
			}
		})
	}
	time.Sleep(200 * time.Millisecond) // as long as a slow commit
	run(t, blocker, `ROLLBACK`)
	calls.Wait()
}

// Requests for the locks of many guarded transactions wait for their rows. Those for other locks are granted meanwhile.
func TestGuardedTransactionsDelayNoOtherLock(t *testing.T) {
	t.Parallel()
	const guarded = 60
	at := postgrestest.URL(t)
	l := open(t, at)
	run(t, client(t, at), `INSERT INTO holdfast_locks (name, token, holder, owner, ttl, expires, acquired_at, renewed_at)
		SELECT 'guarded ' || n, 1, '', '', 1000, now(), now(), now() FROM generate_series(0, $1) AS n`, guarded)
	guarding := client(t, at)
	run(t, guarding, `BEGIN`)
	run(t, guarding, `SELECT FROM holdfast_locks WHERE name LIKE 'guarded %' FOR KEY SHARE`)
	ctx, stop := context.WithCancel(t.Context())
	var asking, free sync.WaitGroup
	for n := range guarded {
		asking.Go(func() {
			for ctx.Err() == nil {
				_, _ = l.TryAcquire(ctx, request(fmt.Sprint("guarded ", n), "b"))
			}
		})
	}
	for n := range 12 {
		free.Go(func() { acquire(t, l, request(fmt.Sprint("free ", n), "b")) })
	}
	free.Wait()
	stop()
	asking.Wait()
}
