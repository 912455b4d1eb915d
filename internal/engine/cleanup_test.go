package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// Requests of one caller may land until one TTL after the last of them was sent, and are cleaned
// up until then.
func TestCleanUpLastsForTheLatestRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 30 * time.Second
		store := memory.NewStore()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var mu sync.Mutex
		var last time.Time
		start := time.Now()
		c := locktest.FaultyClient(t, store.Locker(), func(op string, _ int, _ holdfast.Lease) locktest.Fault {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case op != locktest.OpAcquire:
				return locktest.Fault{}
			case time.Since(start) < 10*time.Second:
				return locktest.Fault{Refuse: locktest.ErrInjected}
			}
			last = time.Now()
			time.AfterFunc(time.Second, cancel)
			return locktest.Fault{Late: ttl - time.Second} // lands although the caller has gone
		}, holdfast.WithTTL(ttl))
		if _, err := c.Lock(ctx, "job"); !errors.Is(err, context.Canceled) {
			t.Errorf("Lock: %v", err)
		}
		mu.Lock()
		landed := time.Until(last.Add(ttl - time.Second))
		mu.Unlock()
		time.Sleep(landed + 2*time.Second)
		if locktest.IsHeld(t, store, "job") {
			t.Error("the cleanup ended one TTL after the first request, before the last one landed")
		}
	})
}

// Cleanups that never return do not count towards the limit forever.
func TestCleanUpsThatNeverReturnFreeTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		f := locktest.NeverAnswers(t, store, locktest.OpRelease)
		deaf := f.Faults
		f.Faults = func(op string, n int, l holdfast.Lease) locktest.Fault {
			if op == locktest.OpAcquire {
				return locktest.Fault{Lose: locktest.ErrInjected}
			}
			return deaf(op, n, l)
		}
		c := locktest.NewClient(t, f, holdfast.WithTTL(5*time.Minute))
		for i := range 100 {
			_, _ = c.TryLock(t.Context(), fmt.Sprint("ill ", i))
		}
		_, _ = c.TryLock(t.Context(), "well")
		time.Sleep(time.Minute)
		if locktest.IsHeld(t, store, "well") {
			t.Error("not cleaned up")
		}
	})
}

// Shutdown waits for the cleanups, whose failed releases are retried, but not for their backoff: one more release, sent at once, ends it.
func TestShutdownEndsCleanUps(t *testing.T) {
	for after, row := range map[time.Duration]struct {
		fail  int // so many releases
		limit time.Duration
	}{0: {3, 10 * time.Second}, 12 * time.Second: {0, 100 * time.Millisecond}} { // the backoff is seconds by then
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			c := locktest.FaultyClient(t, store.Locker(), locktest.Together(lost,
				locktest.UpTo(locktest.OpRelease, row.fail, locktest.Fault{Refuse: locktest.ErrInjected})))
			if _, err := c.TryLock(t.Context(), "job"); !errors.Is(err, locktest.ErrInjected) {
				t.Fatalf("TryLock: %v", err)
			}
			time.Sleep(after)
			start := time.Now()
			if err := c.Shutdown(t.Context()); err != nil || time.Since(start) > row.limit {
				t.Errorf("Shutdown: %v after %v", err, time.Since(start))
			}
			if locktest.IsHeld(t, store, "job") {
				t.Error("held after Shutdown")
			}
		})
	}
}

// So it is with a cleanup that plans its next release at the moment when Shutdown begins.
func TestShutdownHurriesACleanUpBeingPlanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var slow atomic.Bool // the clock's next reading takes a second
		planning := make(chan struct{})
		f := locktest.NewFaulty(t, memory.New(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
			switch {
			case op == locktest.OpAcquire:
				return locktest.Fault{Lose: locktest.ErrInjected}
			case op == locktest.OpRelease && n == 6: // the next would come after about 7 s
				slow.Store(true)
			}
			return locktest.Fault{}
		})
		c := locktest.NewClient(t, f, holdfast.WithElapsed(func() time.Duration {
			if slow.CompareAndSwap(true, false) {
				close(planning)
				time.Sleep(time.Second)
			}
			return time.Since(start)
		}))
		if _, err := c.TryLock(t.Context(), "job"); !errors.Is(err, locktest.ErrInjected) {
			t.Fatalf("TryLock: %v", err)
		}
		<-planning
		time.Sleep(500 * time.Millisecond)
		began := time.Now()
		if err := c.Shutdown(t.Context()); err != nil || time.Since(began) > 600*time.Millisecond {
			t.Errorf("Shutdown: %v after %v", err, time.Since(began))
		}
		if n := f.Count(locktest.OpRelease); n != 7 {
			t.Errorf("%d releases were sent, want one more", n)
		}
	})
}

// A Locker that was closed ends cleanups at once: nothing can be sent any more.
func TestClosedLockerEndsCleanUps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen locktest.Events
		var closed atomic.Bool
		f := locktest.NewFaulty(t, memory.New(), func(op string, _ int, _ holdfast.Lease) locktest.Fault {
			switch {
			case closed.Load():
				return locktest.Fault{Refuse: holdfast.ErrClosed}
			case op == locktest.OpAcquire:
				return locktest.Fault{Lose: locktest.ErrInjected}
			}
			return locktest.Fault{}
		})
		c := locktest.NewClient(t, f, holdfast.WithObserver(seen.Observe))
		if _, err := c.TryLock(t.Context(), "job"); !errors.Is(err, locktest.ErrInjected) {
			t.Fatalf("TryLock: %v", err)
		}
		time.Sleep(time.Second)
		before := f.Count(locktest.OpRelease)
		closed.Store(true)
		time.Sleep(time.Minute)
		if n := f.Count(locktest.OpRelease) - before; n != 1 {
			t.Errorf("%d releases were sent to a closed Locker", n)
		}
		if err := c.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if n := seen.Count(holdfast.EventError); n != 2 { // the acquire and the one release
			t.Errorf("%d failures were reported", n)
		}
	})
}

// A request in doubt may have been granted, which ends the position that the waiters of a process share. After its cleanup the
// first of them asks again, instead of at its next refresh.
func TestWaiterAsksAfterACleanUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		other := locktest.FaultyClient(t, store.Locker(), func(string, int, holdfast.Lease) locktest.Fault { return locktest.Fault{} })
		held, err := other.Lock(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		var lose atomic.Bool
		var acquires atomic.Int64
		c := locktest.FaultyClient(t, store.Locker(), func(op string, _ int, _ holdfast.Lease) (f locktest.Fault) {
			if op == locktest.OpAcquire {
				if acquires.Add(1); lose.Swap(false) {
					f.Lose = locktest.ErrInjected
				}
			}
			return f
		})
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		waiting.Go(func() { _, _ = c.Lock(ctx, "job") })
		time.Sleep(time.Second)
		before := acquires.Load()
		lose.Store(true)
		if h, err := c.TryLock(ctx, "job"); err == nil {
			t.Errorf("granted: %v", h)
		}
		time.Sleep(time.Second)
		if n := acquires.Load() - before; n != 2 {
			t.Errorf("%d requests, want that of the try and one of the waiter", n)
		}
		cancel()
		waiting.Wait()
		if err := held.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
