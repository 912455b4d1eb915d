package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/postgrestest"
)

// waiting is a request of a waiter.
func waiting(name, id string, waiter driver.WaiterID) driver.Request {
	r := request(name, id)
	r.Waiter, r.QueueFor = waiter, time.Minute
	return r
}

// wantHeld makes a request that is refused.
func wantHeld(t *testing.T, l driver.Locker, req driver.Request) driver.Record {
	t.Helper()
	_, err := l.TryAcquire(bounded(t), req)
	var held *driver.HeldError
	if !errors.As(err, &held) {
		t.Fatalf("got %v, want held", err)
	}
	return held.Record
}

// wakeupsOf returns what a waiter is notified of, and returns when waking is in effect.
func wakeupsOf(t *testing.T, l driver.Locker, name string, waiter driver.WaiterID) <-chan driver.Wakeup {
	t.Helper()
	got := make(chan driver.Wakeup, 100)
	t.Cleanup(l.Capabilities().Waker.Wake(name, waiter, func(up driver.Wakeup) { got <- up }))
	wantWakeup(t, got, driver.WakingBegan)
	return got
}

func wantWakeup(t *testing.T, got <-chan driver.Wakeup, kind driver.WakeupKind) driver.Wakeup {
	t.Helper()
	for {
		select {
		case up := <-got:
			if up.Kind == kind {
				return up
			}
		case <-bounded(t).Done():
			t.Fatalf("no wake-up of kind %d", kind)
		}
	}
}

// Each call is one statement. One more gives a waiter its position, and one more notifies the first waiters.
func TestStatementsOfCalls(t *testing.T) {
	t.Parallel()
	var sent atomic.Int32
	at := postgrestest.URL(t)
	counted := open(t, at, func(c *config) { c.sent = func() { sent.Add(1) } })
	ctx := bounded(t)
	lease := acquire(t, counted, request("job", "first"))
	for _, c := range []struct {
		what string
		want int32
		call func() error
	}{
		{"renew", 1, func() error { _, err := counted.Renew(ctx, lease); return err }},
		{"refusal", 1, func() error { wantHeld(t, counted, request("job", "second")); return nil }},
		{"release", 1, func() error { return counted.Release(ctx, lease) }},
		{"acquire", 1, func() (err error) { lease, err = counted.TryAcquire(ctx, request("job", "third")); return err }},
		{"repeat", 2, func() (err error) { lease, err = counted.TryAcquire(ctx, request("job", "third")); return err }},
		{"refusal with a new position", 2, func() error { wantHeld(t, counted, waiting("job", "fourth", "w")); return nil }},
		{"refusal with a position", 1, func() error { wantHeld(t, counted, waiting("job", "fourth", "w")); return nil }},
		{"release to a waiter", 2, func() error { return counted.Release(ctx, lease) }},
		{"grant to a waiter", 1, func() (err error) { lease, err = counted.TryAcquire(ctx, waiting("job", "fourth", "w")); return err }},
		{"inspect", 1, func() error { _, err := counted.Inspect(ctx, "job"); return err }},
	} {
		before := sent.Load()
		if err := c.call(); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		if n := sent.Load() - before; n != c.want {
			t.Errorf("%s: %d statements, want %d", c.what, n, c.want)
		}
	}
}

// A release whose answer was lost before it could notify anybody is repeated by the client, and then notifies.
func TestRepeatedReleaseWakes(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	waiter, holder, other := open(t, at), open(t, at), client(t, at)
	for i, release := range []func(driver.Lease) error{
		func(lease driver.Lease) error { return holder.Release(bounded(t), lease) },
		func(lease driver.Lease) error {
			return holder.ReleaseBatch(bounded(t), []driver.Lease{lease, lease})[0]
		},
	} {
		name := fmt.Sprint("job", i)
		lease := acquire(t, holder, request(name, "first"))
		got := wakeupsOf(t, waiter, name, "w")
		wantHeld(t, waiter, waiting(name, "second", "w"))
		run(t, other, `UPDATE holdfast_locks SET holder = '', expires = clock_timestamp() WHERE name = $1`, name) // the first release
		if err := release(lease); err != nil {
			t.Fatal(err)
		}
		wantWakeup(t, got, driver.MayBeFree)
	}
}

// Many waiters that enter a queue at a time all get a position, and are granted the lock in their order, also in every
// isolation level and beside the holder's renewals.
func TestManyEnterAQueue(t *testing.T) {
	t.Parallel()
	for _, level := range []string{`read\ committed`, "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			at := with(postgrestest.URL(t), "options="+queryEscape("-c default_transaction_isolation="+level))
			l := open(t, at)
			lease := acquire(t, l, request("job", "first"))
			const n = 40
			done := make(chan error, n)
			for i := range n {
				go func() {
					for ctx := bounded(t); ; {
						_, err := l.TryAcquire(ctx, waiting("job", fmt.Sprint("id", i), driver.WaiterID(fmt.Sprint("w", i))))
						var held *driver.HeldError
						switch {
						case !errors.As(err, &held):
						case held.Record.Token == 0:
							continue // another had locked the row for long: the request was refused unread
						case held.Record.Position == 0:
							err = fmt.Errorf("waiter %d has no position", i)
						default:
							err = nil
						}
						done <- err
						return
					}
				}()
				if _, err := l.Renew(bounded(t), lease); err != nil {
					t.Error(err)
				}
			}
			for range n {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			r, err := l.Inspect(bounded(t), "job")
			if err != nil || r.Waiters != n {
				t.Errorf("%d waiters, %v", r.Waiters, err)
			}
			names := []string{"job", "absent"}
			for i := range n - 1 {
				if err := l.Leave(bounded(t), driver.WaiterID(fmt.Sprint("w", i)), names); err != nil {
					t.Error(err)
				}
			}
			if last := wantHeld(t, l, waiting("job", "last", driver.WaiterID(fmt.Sprint("w", n-1)))); last.Waiters != 1 || last.Position != 1 {
				t.Errorf("position %d of %d", last.Position, last.Waiters)
			}
		})
	}
}

// A waiter that nothing wakes enters only a queue of others, and the one that two others empty in turn.
func TestPollingWaiter(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	polling := open(t, with(at, "listen="+queryEscape("postgres://x@127.0.0.1:1/x")))
	blind := make(chan driver.Wakeup, 10)
	t.Cleanup(polling.Wake("job", "w", func(up driver.Wakeup) { blind <- up }))
	wantWakeup(t, blind, driver.WakingEnded)
	l := open(t, at)
	lease := acquire(t, l, request("job", "first"))
	if r := wantHeld(t, polling, waiting("job", "second", "w")); r.Position != 0 || r.Waiters != 0 {
		t.Errorf("position %d of %d in a queue of its like", r.Position, r.Waiters)
	}
	wantHeld(t, l, waiting("job", "third", "v"))
	if r := wantHeld(t, polling, waiting("job", "second", "w")); r.Position != 2 {
		t.Errorf("position %d of %d behind a waiter that is woken", r.Position, r.Waiters)
	}
	if err := l.Release(bounded(t), lease); err != nil {
		t.Fatal(err)
	}
	lease = acquire(t, l, waiting("job", "third", "v"))
	if err := l.Release(bounded(t), lease); err != nil {
		t.Fatal(err)
	}
	lease = acquire(t, polling, waiting("job", "second", "w"))
	if lease.Contended {
		t.Error("the queue is empty")
	}
	_ = polling.Release(bounded(t), lease)
	// Two others hand the lock to each other: the queue is empty after each grant.
	lease = acquire(t, l, request("job", "fourth"))
	wantHeld(t, l, waiting("job", "fifth", "v"))
	_ = l.Release(bounded(t), lease)
	acquire(t, l, waiting("job", "fifth", "v"))
	if r := wantHeld(t, polling, waiting("job", "sixth", "w")); r.Position != 1 {
		t.Errorf("position %d of %d in the queue that was emptied", r.Position, r.Waiters)
	}
}

// A release whose notification fails, here since its connection ends between the two, notifies nevertheless.
func TestNotificationIsRepeated(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	control := client(t, at)
	var armed atomic.Bool
	var sent atomic.Int32
	holder := open(t, victim(t, at), func(c *config) {
		c.sent = func() {
			if armed.Load() && sent.Add(1) == 2 { // the notification follows the release; the backend is gone before it is sent
				_, _ = control.Exec(context.Background(), `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
					WHERE application_name = 'victim' AND datname = current_database() AND pid <> pg_backend_pid()`)
			}
		}
	})
	waiter := open(t, at)
	lease := acquire(t, holder, request("job", "first"))
	woken := wakeupsOf(t, waiter, "job", "w")
	wantHeld(t, waiter, waiting("job", "second", "w"))
	armed.Store(true)
	if err := holder.Release(bounded(t), lease); err != nil {
		t.Logf("the release: %v", err) // an error is right, too: the caller repeats it
		if err := holder.Release(bounded(t), lease); err != nil {
			t.Fatal(err)
		}
	}
	wantWakeup(t, woken, driver.MayBeFree)
}
