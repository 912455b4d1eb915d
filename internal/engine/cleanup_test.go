package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/locktest"
)

// Requests that were sent one after another may land until one TTL after the last of them,
// and are cleaned up until then.
func TestCleanUpLastsForTheLatestRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 30 * time.Second
		store := memory.NewStore()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var mu sync.Mutex
		var last time.Time
		start := time.Now()
		c := locktest.NewClient(t, locktest.NewFaulty(t, store.Locker(), func(op string, _ int, _ holdfast.Lease) locktest.Fault {
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
		}), holdfast.WithTTL(ttl))
		if _, err := c.Lock(ctx, "job"); !errors.Is(err, context.Canceled) {
			t.Errorf("Lock: %v", err)
		}
		mu.Lock()
		landed := time.Until(last.Add(ttl - time.Second))
		mu.Unlock()
		time.Sleep(landed + 2*time.Second)
		if locktest.IsHeld(t, store, "job") {
			t.Error("the clean-up ended one TTL after the first request, before the last one landed")
		}
	})
}

// WithRequestTimeout "bounds each single backend call": a clean-up's calls have TTL/10.
func TestCorner_CleanUpHasTheTryTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := locktest.NewClient(t, locktest.NewFaulty(t, store.Locker(), func(op string, _ int, _ holdfast.Lease) locktest.Fault {
			switch op {
			case locktest.OpAcquire:
				return locktest.Fault{Lose: locktest.ErrInjected}
			case locktest.OpRelease:
				return locktest.Fault{Delay: 5 * time.Second} // a slow backend, well within its limit
			}
			return locktest.Fault{}
		}), holdfast.WithTTL(30*time.Second), holdfast.WithGrace(10*time.Second), holdfast.WithRequestTimeout(8*time.Second))
		_, _ = c.TryLock(t.Context(), "job")
		time.Sleep(20 * time.Second)
		if locktest.IsHeld(t, store, "job") {
			t.Error("the clean-up did not get through within 20 s")
		}
	})
}

// A release that failed goes on in the background: the lock does not stay taken for the
// rest of its TTL.
func TestFailedReleaseIsCleanedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := locktest.NewClient(t, locktest.NewFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
			if op == locktest.OpRelease && n == 1 {
				return locktest.Fault{Refuse: locktest.ErrInjected}
			}
			return locktest.Fault{}
		}))
		h := locktest.MustLock(t, c, "job")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := h.Release(ctx); !errors.Is(err, locktest.ErrInjected) {
			t.Errorf("Release: %v", err)
		}
		time.Sleep(time.Second)
		if locktest.IsHeld(t, store, "job") {
			t.Error("still held")
		}
	})
}

func TestCleanUpsThatNeverReturnKeepNoPlace(t *testing.T) {
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
