package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/test/postgrestest"
)

// operation is a call that changes the row of a lock.
type operation struct {
	prepare func(t *testing.T, l *Locker, name string)
	call    func(ctx context.Context, l *Locker, name string) error
	// effect reports whether the call has had its effect.
	effect func(t *testing.T, l *Locker, r driver.Record) bool
}

func held(t *testing.T, l *Locker, name string) { t.Helper(); acquire(t, l, request(name, "a")) }

func leaseOf(name, id string) driver.Lease {
	return driver.Lease{Name: name, ID: driver.NewLeaseID(id), TTL: time.Hour}
}

func ownedBy(owner string) func(*testing.T, *Locker, driver.Record) bool {
	return func(_ *testing.T, _ *Locker, r driver.Record) bool {
		return r.State == driver.StateHeld && r.Owner == "owner of "+owner
	}
}

func isFree(_ *testing.T, _ *Locker, r driver.Record) bool { return r.State == driver.StateFree }

func renewedForAnHour(_ *testing.T, _ *Locker, r driver.Record) bool {
	return r.Remaining > time.Minute
}

const waiterID = driver.WaiterID("waiter")

// operations has every call that changes the row of a lock that exists, and the first grant of one that does not.
func operations() map[string]operation {
	expired := func(t *testing.T, l *Locker, name string) {
		t.Helper()
		held(t, l, name)
		if err := l.Release(bounded(t), leaseOf(name, "a")); err != nil {
			t.Fatal(err)
		}
	}
	return map[string]operation{
		"first grant": {
			func(*testing.T, *Locker, string) {},
			func(ctx context.Context, l *Locker, name string) error {
				return errOf(l.TryAcquire(ctx, request(name, "b")))
			},
			ownedBy("b"),
		},
		"grant": {
			expired,
			func(ctx context.Context, l *Locker, name string) error {
				return errOf(l.TryAcquire(ctx, request(name, "b")))
			},
			ownedBy("b"),
		},
		"repeat": {
			held,
			func(ctx context.Context, l *Locker, name string) error {
				req := request(name, "a")
				req.TTL = time.Hour
				return errOf(l.TryAcquire(ctx, req))
			},
			renewedForAnHour,
		},
		"replace": {
			held,
			func(ctx context.Context, l *Locker, name string) error {
				r, err := l.Inspect(ctx, name)
				if err != nil || r.Owner != "owner of a" {
					return err
				}
				req := request(name, "b")
				req.Replace = r.Revision
				return errOf(l.TryAcquire(ctx, req))
			},
			ownedBy("b"),
		},

		"enter the queue": {
			held,
			func(ctx context.Context, l *Locker, name string) error {
				req := request(name, "b")
				req.Waiter, req.QueueFor = waiterID, time.Hour
				var refused *driver.HeldError
				_, err := l.TryAcquire(ctx, req)
				switch {
				case !errors.As(err, &refused):
					return fmt.Errorf("not refused: %w", err)
				case refused.Record.Token == 0:
					return err // the row is locked: it was not read, and the waiter has no position yet
				}
				return nil
			},
			func(_ *testing.T, _ *Locker, r driver.Record) bool { return r.Waiters >= 1 },
		},
		"leave the queue": {
			func(t *testing.T, l *Locker, name string) {
				t.Helper()
				held(t, l, name)
				req := request(name, "b")
				req.Waiter, req.QueueFor = waiterID, time.Hour
				_, _ = l.TryAcquire(bounded(t), req)
			},
			func(ctx context.Context, l *Locker, name string) error { return l.Leave(ctx, waiterID, []string{name}) },
			func(_ *testing.T, _ *Locker, r driver.Record) bool { return r.Waiters == 0 },
		},
		"renew": {
			held,
			func(ctx context.Context, l *Locker, name string) error {
				return errOf(l.Renew(ctx, leaseOf(name, "a")))
			},
			renewedForAnHour,
		},
		"renew in a batch": {
			held,
			func(ctx context.Context, l *Locker, name string) error {
				_, errs := l.RenewBatch(ctx, []driver.Lease{leaseOf(name, "a"), leaseOf(name+" that is not", "a")})
				if errs[0] == nil && !errors.Is(errs[1], driver.ErrLost) {
					return fmt.Errorf("a lease that is not: %w", errs[1])
				}
				return errs[0]
			},
			renewedForAnHour,
		},
		"release": {
			held,
			func(ctx context.Context, l *Locker, name string) error { return l.Release(ctx, leaseOf(name, "a")) },
			isFree,
		},
		"release in a batch": {
			held,
			func(ctx context.Context, l *Locker, name string) error {
				return errors.Join(l.ReleaseBatch(ctx, []driver.Lease{leaseOf(name, "a"), leaseOf(name+" that is not", "a")})...)
			},
			isFree,
		},
		"write data": {
			held,
			func(ctx context.Context, l *Locker, name string) error {
				data, at, err := l.ReadData(ctx, name)
				if err != nil || string(data) == "written" {
					return err
				}
				return l.WriteData(ctx, leaseOf(name, "a"), []byte("written"), at)
			},
			func(_ *testing.T, _ *Locker, r driver.Record) bool { return string(r.Data) == "written" },
		},
		"break": {
			held,
			func(ctx context.Context, l *Locker, name string) error {
				return l.Break(ctx, name, driver.BreakAnybody())
			},
			func(_ *testing.T, _ *Locker, r driver.Record) bool { return r.Broken },
		},
		"free": {
			held,
			func(ctx context.Context, l *Locker, name string) error {
				return l.BreakNow(ctx, name, driver.BreakAnybody())
			},
			isFree,
		},
	}
}

func errOf[T any](_ T, err error) error { return err }

// blockRow has a transaction hold the row of a lock, or the place of one that is not there yet.
func blockRow(t *testing.T, c *pgx.Conn, name string) {
	t.Helper()
	run(t, c, `BEGIN`)
	if scan[int](t, c, `SELECT count(*) FROM holdfast_locks WHERE name = $1`, name) == 0 {
		run(t, c, `INSERT INTO holdfast_locks (name, token, holder, owner, ttl, expires, acquired_at, renewed_at)
			VALUES ($1, 1, 'x', 'x', 1000, now() + interval '1 hour', now(), now())`, name)
		return
	}
	run(t, c, `SELECT FROM holdfast_locks WHERE name = $1 FOR UPDATE`, name)
}

// checkFault checks a call that a fault has met: a result that is certain is true, and a repetition has the effect.
func checkFault(t *testing.T, op operation, l *Locker, name string, err error) {
	t.Helper()
	inspect := func() bool {
		r, err := l.Inspect(bounded(t), name)
		if err != nil {
			t.Fatal(err)
		}
		return op.effect(t, l, r)
	}
	happened := inspect()
	switch {
	case err == nil && !happened:
		t.Error("a success without effect")
	case err != nil && driver.OutcomeKnown(err) && !errors.Is(err, driver.ErrHeld):
		t.Errorf("a fault is no certain outcome: %v", err)
	case err != nil && driver.OutcomeKnown(err) && happened:
		t.Errorf("refused, and it has happened: %v", err)
	}
	if err := op.call(bounded(t), l, name); err != nil {
		t.Errorf("the repetition: %v", err)
	}
	if !inspect() {
		t.Error("a repetition without effect")
	}
}

// A statement that waits for a row is cancelled, or its backend terminated. No result is wrong, and a repetition succeeds.
func TestStatementEndsWhileItWaitsForARow(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	l := open(t, victim(t, at))
	blocker, control := client(t, at), client(t, at)
	for name, op := range operations() {
		for _, end := range []string{"pg_cancel_backend", "pg_terminate_backend"} {
			t.Run(name+" "+end, func(t *testing.T) {
				key := name + " " + end
				op.prepare(t, l, key)
				blockRow(t, blocker, key)
				wait := later(func() error { return op.call(bounded(t), l, key) })
				pid := waitsFor(t, control, "Lock")
				if !scan[bool](t, control, `SELECT `+end+`($1)`, pid) {
					t.Error("the backend is gone")
				}
				err := wait(t)
				run(t, blocker, `ROLLBACK`)
				checkFault(t, op, l, key, err)
			})
		}
	}
}

// A row that stays locked delays no call for long, and leaves no statement behind.
func TestRowStaysLocked(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	l := open(t, victim(t, at))
	blocker, control := client(t, at), client(t, at)
	for name, op := range operations() {
		t.Run(name, func(t *testing.T) {
			op.prepare(t, l, name)
			blockRow(t, blocker, name)
			begin := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			err := op.call(ctx, l, name)
			if took := time.Since(begin); took > 20*time.Second || err == nil {
				t.Errorf("after %v: %v", took, err)
			}
			postgrestest.WaitFor(t, "no statement is left", func() bool {
				return scan[int](t, control, `SELECT count(*) FROM pg_stat_activity
					WHERE application_name = 'victim' AND datname = current_database() AND state = 'active' AND wait_event_type = 'Lock'`) == 0
			})
			run(t, blocker, `ROLLBACK`)
			checkFault(t, op, l, name, err)
		})
	}
}

// The connection ends before a request arrives, or after it and before its answer; or nothing arrives any more.
func TestNetworkEnds(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	l := open(t, at)
	for name, op := range operations() {
		for what, f := range map[string]fault{"request lost": resetting, "answer lost": forgetful, "silence": silent} {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				key := name + " " + what
				op.prepare(t, l, key)
				net, through := throughNetwork(t, at)
				faulty := open(t, through)
				acquire(t, faulty, request("other "+key, "x")) // there is a connection
				net.set(f)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				if f == silent {
					ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				}
				defer cancel()
				err := op.call(ctx, faulty, key)
				if f == silent {
					wantUnknown(t, err)
				}
				checkFault(t, op, l, key, err)
				net.closeAll()
				checkFault(t, op, faulty, key, nil)
			})
		}
	}
}

// The lease of the holder expires while a request waits for the row, to enter the queue. The request is granted the lock,
// with a token of its own, and it is in the row.
func TestExpiryWhileEnteringTheQueue(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	l := open(t, victim(t, at))
	blocker, control := client(t, at), client(t, at)
	for _, polls := range []bool{false, true} {
		name := fmt.Sprint("polls ", polls)
		first := request(name, "a")
		first.TTL = 500 * time.Millisecond
		before := acquire(t, l, first)
		blockRow(t, blocker, name)
		wait := later(func() error {
			return l.do(bounded(t), "acquire", name, nil, func(ctx context.Context, c *pgx.Conn) error {
				req := request(name, "b")
				req.QueueFor = time.Minute
				lease, err := l.grant(ctx, c, ask{Request: req, name: name, holder: lockrecord.Digest(req.ID), waiter: "l.w", polls: polls})
				if err == nil && lease.Token <= before.Token {
					t.Errorf("token %d after %d", lease.Token, before.Token)
				}
				return err
			})
		})
		if !polls { // it does not enter an empty queue
			waitsFor(t, control, "Lock")
		}
		postgrestest.WaitFor(t, "the lease expires", func() bool {
			return scan[bool](t, control, `SELECT expires < clock_timestamp() FROM holdfast_locks WHERE name = $1`, name)
		})
		run(t, blocker, `ROLLBACK`)
		err := wait(t)
		r, inspected := l.Inspect(bounded(t), name)
		if inspected != nil {
			t.Fatal(inspected)
		}
		if granted := r.State == driver.StateHeld && r.Owner == "owner of b"; granted != (err == nil) {
			t.Errorf("the result is %v, and the lock %+v", err, r)
		}
	}
}
