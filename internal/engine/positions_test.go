package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/waitqueue"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// waitersOf returns how many positions the queue of "job" has.
func waitersOf(t *testing.T, store *memory.Store) int {
	t.Helper()
	r, err := store.Locker().Inspect(context.Background(), "job")
	if err != nil {
		t.Fatal(err)
	}
	return r.Waiters
}

// queued is a Locker with a queue, to whose calls faults happen.
func queued(t *testing.T, store *memory.Store, faults locktest.Faults) *locktest.Faulty {
	t.Helper()
	f := locktest.NewFaulty(t, store.Locker(), faults)
	f.Watcher, f.Queue = true, true
	return f
}

// The caller gives up while its first request is on the way, which enters the queue after the process has left it.
// The process leaves it again.
func TestLateRequestLeavesNoPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		deadHolder(t, store, "job", time.Hour)
		c := locktest.NewClient(t, queued(t, store, locktest.Each(locktest.OpAcquire, locktest.Fault{Late: 3 * time.Second})))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Lock(ctx, "job"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if n := waitersOf(t, store); n != 1 {
			t.Fatalf("%d waiters: the request has not come late", n)
		}
		time.Sleep(waitqueue.LeaveAgain)
		if n := waitersOf(t, store); n != 0 {
			t.Errorf("%d waiters", n)
		}
	})
}

// The first of two requests, whose outcome is unknown, enters the queue after the second was granted the lock.
func TestLateRequestAfterAGrantLeavesNoPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := locktest.NewClient(t, queued(t, store, locktest.First(locktest.OpAcquire, locktest.Fault{Late: 5 * time.Second})))
		h := locktest.MustLock(t, c, "job", holdfast.WithRequestTimeout(time.Second))
		_ = h.Release(t.Context())
		deadHolder(t, store, "job", time.Hour)
		time.Sleep(20 * time.Second)
		if n := waitersOf(t, store); n != 0 {
			t.Errorf("%d waiters", n)
		}
	})
}

// Two Clients on one Locker have a position each, and are granted the lock in their order.
func TestClientsOnOneLockerHavePositions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		first, _ := process(t, store)
		h := locktest.MustLock(t, first, "job")
		shared := store.Locker()
		order := make(chan int, 2)
		for i := range 2 {
			c := locktest.NewClient(t, driver.Intercept(shared, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
				if call.Method == driver.MethodClose {
					return driver.Answer{}
				}
				return next(ctx, call)
			}))
			go func() {
				h, err := c.Lock(t.Context(), "job")
				if err != nil {
					t.Error(err)
					return
				}
				order <- i
				_ = h.Release(t.Context())
			}()
			time.Sleep(time.Second)
		}
		if n := waitersOf(t, store); n != 2 {
			t.Errorf("%d waiters, want 2", n)
		}
		_ = h.Release(t.Context())
		if a, b := <-order, <-order; a != 0 || b != 1 {
			t.Errorf("granted to %d, then to %d", a, b)
		}
	})
}

// Shutdown leaves the queues of the locks that the process waits for, at once, and before it closes the Locker.
func TestShutdownLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		deadHolder(t, store, "job", time.Hour)
		c, f := process(t, store)
		go func() { _, _ = c.Lock(t.Context(), "job") }()
		time.Sleep(time.Second)
		if n := waitersOf(t, store); n != 1 {
			t.Fatalf("%d waiters", n)
		}
		began := time.Now()
		if err := c.Shutdown(t.Context()); err != nil || time.Since(began) > 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if n := waitersOf(t, store); n != 0 {
			t.Errorf("%d waiters, after %d calls", n, f.Total())
		}
	})
}

// A backend that does not answer the call that leaves a queue delays neither callers nor, for longer than its context
// allows, Shutdown.
func TestLeavingAQueueHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		deadHolder(t, store, "job", time.Hour)
		var hung atomic.Int64
		f := queued(t, store, nil)
		f.Locker = driver.Intercept(f.Locker, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			if call.Method == driver.MethodLeave {
				hung.Add(1)
				<-ctx.Done()
				return driver.Answer{Err: ctx.Err()}
			}
			return next(ctx, call)
		})
		c := locktest.NewClient(t, f)
		for range 3 {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, _ = c.Lock(ctx, "job")
			cancel()
			if took := time.Since(began); took != time.Second {
				t.Errorf("a caller whose time was over after 1 s waited %v", took)
			}
			time.Sleep(10 * time.Second)
		}
		if n := hung.Load(); n != 3 {
			t.Errorf("%d calls", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, _ = c.Lock(ctx, "job")
		cancel()
		time.Sleep(waitqueue.LeaveDelay)
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := c.Shutdown(ctx); err == nil || time.Since(began) > 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// A call that leaves a queue and ignores its time limit keeps other queues waiting for a limited time. Shutdown does the rest of
// its work, and waits for the call as long as its context allows.
func TestLeavingAQueueIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		deadHolder(t, store, "stuck", time.Hour)
		deadHolder(t, store, "job", time.Hour)
		returns := make(chan struct{})
		f := queued(t, store, nil)
		f.Locker = driver.Intercept(f.Locker, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			if call.Method == driver.MethodLeave && call.Names[0] == "stuck" {
				<-returns
			}
			return next(ctx, call)
		})
		c := locktest.NewClient(t, f)
		for _, name := range []string{"stuck", "job"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, _ = c.Lock(ctx, name)
			cancel()
			time.Sleep(2 * waitqueue.LeaveDelay)
		}
		time.Sleep(2 * waitqueue.LeaveTimeout)
		if n := waitersOf(t, store); n != 0 {
			t.Errorf("%d waiters of a lock that nobody waits for", n)
		}
		h := locktest.MustLock(t, c, "held")
		limited, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began, done := time.Now(), make(chan error, 1)
		go func() { done <- c.Shutdown(limited) }()
		<-h.Context().Done()
		time.Sleep(time.Second)
		if locktest.IsHeld(t, store, "held") {
			t.Error("Shutdown has not released the lock")
		}
		if err := <-done; err == nil || !strings.Contains(err.Error(), "queues") || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		close(returns)
	})
}

// A call that leaves a queue is given up as hung, and removes the position of a caller that came later. The caller enters
// the queue again when the call returns, not only with its next poll.
func TestLeavingAQueueTakesEffectLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		deadHolder(t, store, "job", time.Hour)
		f := queued(t, store, nil)
		var left atomic.Int64
		f.Locker = driver.Intercept(f.Locker, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			if call.Method == driver.MethodLeave && left.Add(1) == 1 {
				time.Sleep(time.Minute) // whatever its context says
				ctx = context.WithoutCancel(ctx)
			}
			return next(ctx, call)
		})
		c := locktest.NewClient(t, f)
		limited, cancel := context.WithTimeout(t.Context(), time.Second)
		_, _ = c.Lock(limited, "job")
		cancel()
		time.Sleep(30 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _, _ = c.Lock(ctx, "job") }()
		time.Sleep(time.Second)
		if n := waitersOf(t, store); n != 1 || left.Load() != 1 {
			t.Fatalf("%d waiters after %d calls", n, left.Load())
		}
		time.Sleep(30 * time.Second)
		if n := waitersOf(t, store); n != 1 {
			t.Errorf("%d waiters after the call", n)
		}
	})
}

// While a queue waits to be left once more, another is left as soon as ever, and Shutdown leaves both.
func TestLeavingAgainDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		deadHolder(t, store, "job", time.Hour)
		deadHolder(t, store, "late", time.Hour)
		c := locktest.NewClient(t, queued(t, store, func(op string, _ int, l holdfast.Lease) (fault locktest.Fault) {
			if op == locktest.OpAcquire && l.Name == "late" {
				fault.Late = 3 * time.Second
			}
			return fault
		}))
		for _, name := range []string{"late", "job"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := c.Lock(ctx, name); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			cancel()
			time.Sleep(2 * waitqueue.LeaveDelay)
		}
		if n := waitersOf(t, store); n != 0 {
			t.Errorf("%d waiters of a lock that nobody waits for", n)
		}
		began := time.Now()
		if err := c.Shutdown(t.Context()); err != nil || time.Since(began) > 2*waitqueue.LeaveDelay {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
