package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/postgrestest"
)

// waitingForLocks counts the statements that wait for a lock.
const waitingForLocks = `SELECT count(*)::int FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`

// A lease is as long as it was asked for from the beginning of the call, however long the statement waited for the row.
// If another transaction has changed the row meanwhile, that is from the end of the wait.
func TestClockAndTheWaitForARow(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	l, other, watching := open(t, at), client(t, at), client(t, at)
	ctx := bounded(t)
	lease := acquire(t, l, request("job", "first"))
	batch := acquire(t, l, request("batch", "first"))
	calls := map[string]func() error{
		"job":   func() error { _, err := l.Renew(ctx, lease); return err },
		"batch": func() error { _, errs := l.RenewBatch(ctx, []driver.Lease{batch, batch}); return errs[0] },
		"free":  func() error { _, err := l.TryAcquire(ctx, request("free", "second")); return err },
	}
	for _, change := range []bool{false, true} {
		if err := l.Release(ctx, acquire(t, l, request("free", "second"))); err != nil {
			t.Fatal(err)
		}
		for name, call := range calls {
			begun := scan[time.Time](t, other, `SELECT clock_timestamp()`)
			run(t, other, `BEGIN`)
			run(t, other, `SELECT FROM holdfast_locks WHERE name = $1 FOR UPDATE`, name)
			if change {
				run(t, other, `UPDATE holdfast_locks SET owner = owner WHERE name = $1`, name)
			}
			done := make(chan error, 1)
			go func() { done <- call() }()
			postgrestest.WaitFor(t, "the call waits", func() bool {
				return scan[int](t, watching, waitingForLocks) > 0
			})
			least := begun
			if change {
				least = scan[time.Time](t, other, `SELECT clock_timestamp()`)
			}
			run(t, other, `COMMIT`)
			if err := <-done; err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if got := scan[time.Time](t, watching, `SELECT expires FROM holdfast_locks WHERE name = $1`, name); got.Sub(least) < lease.TTL {
				t.Errorf("%s: the lease ends %v after the call or the wait, want %v", name, got.Sub(least), lease.TTL)
			}
		}
	}
}

// While a transaction guards its writes by a lease, the holder renews and releases. A take-over waits for the end of the
// transaction, but not for long: it is refused, and keeps no connection of the server.
func TestTakeOverWaitsForGuards(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	l, guard, watching := open(t, at), client(t, at), client(t, at)
	ctx := bounded(t)
	lease := acquire(t, l, request("job", "first"))
	run(t, guard, `BEGIN`)
	if n := scan[int](t, guard, `SELECT 1 FROM holdfast_locks WHERE name = 'job' AND token = $1
		AND holder <> '' AND expires > clock_timestamp() FOR KEY SHARE`, int64(lease.Token)); n != 1 {
		t.Fatal(n)
	}
	if _, err := l.Renew(ctx, lease); err != nil {
		t.Error(err)
	}
	if _, errs := l.RenewBatch(ctx, []driver.Lease{lease, lease}); errs[0] != nil {
		t.Error(errs[0])
	}
	if err := l.WriteData(ctx, lease, []byte("x"), driver.DataRevision{Token: lease.Token}); err != nil {
		t.Error(err)
	}
	wantHeld(t, l, waiting("job", "second", "w")) // it enters the queue
	if err := l.Release(ctx, lease); err != nil {
		t.Error(err)
	}
	_, err := l.TryAcquire(ctx, waiting("job", "second", "w"))
	var held *driver.HeldError
	if !errors.As(err, &held) || held.Record.State != driver.StateHeld {
		t.Errorf("while a transaction guards by the lease before, the answer is %v", err)
	}
	if n := scan[int](t, watching, `SELECT count(*)::int FROM pg_stat_activity
		WHERE state = 'active' AND datname = current_database() AND pid <> pg_backend_pid()`); n != 0 {
		t.Errorf("%d statements are still waiting", n)
	}
	granted := make(chan driver.Lease)
	go func() {
		for {
			if lease, err := l.TryAcquire(ctx, waiting("job", "second", "w")); err == nil || ctx.Err() != nil {
				granted <- lease
				return
			}
		}
	}()
	postgrestest.WaitFor(t, "a take-over waits", func() bool {
		return scan[int](t, watching, waitingForLocks) > 0
	})
	end := scan[time.Time](t, guard, `SELECT clock_timestamp()`)
	run(t, guard, `COMMIT`)
	next := <-granted
	if since := scan[time.Time](t, watching, `SELECT acquired_at FROM holdfast_locks WHERE name = 'job'`); next.Token <= lease.Token ||
		since.Before(end) {
		t.Errorf("token %d after %d, granted %v after the transaction's end", next.Token, lease.Token, since.Sub(end))
	}
	run(t, guard, `BEGIN`)
	if n := scan[int](t, guard, `SELECT count(*)::int FROM (
		SELECT 1 FROM holdfast_locks WHERE name = 'job' AND token = $1 FOR KEY SHARE) AS g`, int64(lease.Token)); n != 0 {
		t.Error("a late guard has found its token")
	}
}

// A call that ends leaves nothing behind on the server that could still take the lock: its statement is cancelled.
func TestCallThatEndsIsCancelled(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	l, other, watching := open(t, at), client(t, at), client(t, at)
	run(t, other, `BEGIN; LOCK TABLE holdfast_locks IN ACCESS EXCLUSIVE MODE`)
	ctx, cancel := context.WithCancel(bounded(t))
	done := make(chan error)
	go func() {
		_, err := l.TryAcquire(ctx, request("job", "first"))
		done <- err
	}()
	waits := func() bool {
		return scan[int](t, watching, waitingForLocks) > 0
	}
	postgrestest.WaitFor(t, "the call waits", waits)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || driver.OutcomeKnown(err) {
		t.Error(err)
	}
	postgrestest.WaitFor(t, "the statement is cancelled", func() bool { return !waits() })
}

// A write that is based on a row which has changed since is not done: the decision is made again.
func TestWriteOfAChangedRow(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	l, other := open(t, at), client(t, at)
	ctx := bounded(t)
	lease := acquire(t, l, request("job", "first"))
	c, err := l.pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	k, err := readLock(ctx, c.Conn(), l.sql.inspect, "job")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Renew(ctx, lease); err != nil { // meanwhile
		t.Fatal(err)
	}
	k.BreakNow(k.now)
	if err := l.write(ctx, c.Conn(), l.sql, "job", k); !errors.Is(err, errChanging) {
		t.Errorf("written: %v", err)
	}
	if holder := scan[string](t, other, `SELECT holder FROM holdfast_locks`); holder == "" {
		t.Error("the renewed lock was freed")
	}
}

// The same holds for a later waiter whose turn has come.
func TestLaterTurnBesideAGuard(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	l, guard := open(t, at), client(t, at)
	ctx := bounded(t)
	lease := acquire(t, l, request("job", "first"))
	run(t, guard, `BEGIN`)
	run(t, guard, `SELECT 1 FROM holdfast_locks WHERE name = 'job' FOR KEY SHARE`)
	for _, waiter := range []driver.WaiterID{"w1", "w2"} {
		wantHeld(t, l, waiting("job", string(waiter), waiter))
	}
	if err := l.Release(ctx, lease); err != nil {
		t.Fatal(err)
	}
	for reserved := true; reserved; {
		_, err := l.TryAcquire(ctx, waiting("job", "w2", "w2"))
		var held *driver.HeldError
		if !errors.As(err, &held) {
			t.Fatalf("while a transaction guards by the lease before, the answer is %v", err)
		}
		reserved = held.Reserved
	}
}

// A call is made again, after a pause, if the row has changed between two of its statements.
func TestCallIsRepeatedWhenTheRowHasChanged(t *testing.T) {
	t.Parallel()
	l := open(t, postgrestest.URL(t))
	var made []time.Time
	err := l.call(bounded(t), nil, func(context.Context, *pgx.Conn) error {
		if made = append(made, time.Now()); len(made) < 3 {
			return errChanging
		}
		return nil
	})
	if err != nil || len(made) != 3 {
		t.Errorf("made %d times: %v", len(made), err)
	}
	made = nil
	err = l.call(bounded(t), nil, func(context.Context, *pgx.Conn) error { made = append(made, time.Now()); return errChanging })
	if err == nil || len(made) != mostRepeats+1 || made[mostRepeats].Sub(made[0]) < 100*time.Millisecond {
		t.Errorf("made %d times within %v: %v", len(made), made[len(made)-1].Sub(made[0]), err)
	}
}

// A fail-over, or a crash, forgets transactions, and then their numbers are given again: here to two versions of one row, which is
// what a call behind a pooler can meet that has read on the lost server and writes on the new one. One transaction that writes the
// row twice stands for the two transactions with one number.
func TestVersionThatComesAgain(t *testing.T) {
	at := postgrestest.URL(t)
	l, c := open(t, at), client(t, at)
	first := acquire(t, l, request("n", "a"))
	if err := l.Release(bounded(t), first); err != nil {
		t.Fatal(err)
	}
	tx, err := c.Begin(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	run(t, c, `UPDATE holdfast_locks SET emptied = emptied WHERE name = 'n'`) // such as a position, whose commit waits for nobody
	stale, err := readLock(bounded(t), c, l.sql.inspect, "n")
	if err != nil {
		t.Fatal(err)
	}
	run(t, c, `UPDATE holdfast_locks SET holder = 'b', owner = 'b', token = token + 100000, expires = clock_timestamp() + interval '1 h',
		acquired_at = clock_timestamp(), renewed_at = clock_timestamp() WHERE name = 'n'`) // the grant to another on the new server
	if err := tx.Commit(bounded(t)); err != nil {
		t.Fatal(err)
	}
	req := ask{Request: request("n", "c"), name: "n", holder: "c"}
	if stale.Data = nil; !req.decides(stale.Lock, stale.now) {
		t.Fatal("the row that was read is not free")
	}
	if err := l.write(bounded(t), c, l.sql, "n", stale); !errors.Is(err, errChanging) {
		t.Errorf("the grant of another is overwritten by a decision on a row that is forgotten: %v", err)
	}
	if holder := scan[string](t, c, `SELECT holder FROM holdfast_locks WHERE name = 'n'`); holder != "b" {
		t.Errorf("the holder is now %q", holder)
	}
}
