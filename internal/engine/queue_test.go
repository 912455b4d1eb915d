package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

func TestThousandLocalWaitersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		f := locktest.NewFaulty(t, memory.NewStore().Locker(), nil)
		c := locktest.NewClient(t, f)
		first := locktest.MustLock(t, c, "job")
		var order []int // guarded by the lock under test
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				h := locktest.MustLock(t, c, "job")
				order = append(order, i)
				_ = h.Release(t.Context())
			})
			synctest.Wait() // it has joined the queue
		}
		before := f.Total()
		time.Sleep(time.Second)
		if f.Total() != before {
			t.Error("waiters send requests although their own process holds the lock")
		}
		_ = first.Release(t.Context())
		wg.Wait()
		for i, got := range order {
			if got != i {
				t.Fatalf("waiter %d got the lock in place %d", got, i)
			}
		}
		if len(order) != n {
			t.Fatalf("%d of %d waiters got the lock", len(order), n)
		}
		if calls := float64(f.Total()-before) / n; calls > 3 {
			t.Errorf("%.1f backend calls for each waiter", calls)
		}
	})
}

func TestOnlyTheFirstWaiterSendsRequests(t *testing.T) {
	for _, batchReads := range []bool{false, true} {
		locktest.Bubble(t, fmt.Sprintf("batch reads %v", batchReads), func(t *testing.T) {
			store := memory.NewStore()
			holder := locktest.NewClient(t, store.Locker())
			h := locktest.MustLock(t, holder, "job")
			f := locktest.NewFaulty(t, store.Locker(), nil)
			f.NoBatchReads = !batchReads
			c := locktest.NewClient(t, f, holdfast.WithPollInterval(10*time.Second))
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() { _ = locktest.MustLock(t, c, "job").Release(t.Context()) })
			}
			time.Sleep(10 * time.Minute)
			// 6 polls a minute. The holder renews, so its expiry never comes.
			if n := f.Total(); n < 50 || n > 90 {
				t.Errorf("100 waiters made %d calls in 10 minutes at a poll interval of 10 s", n)
			}
			if n := f.Count(locktest.OpAcquire); batchReads && n != 1 {
				t.Errorf("%d requests although reads are possible", n)
			}
			_ = h.Release(t.Context())
			wg.Wait()
		})
	}
}

func TestCanceledWaiterIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.NewClient(t, memory.NewStore().Locker())
		h := locktest.MustLock(t, c, "job")
		var wg sync.WaitGroup
		got := 0
		for i := range 10 {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			wg.Go(func() {
				h, err := c.Lock(ctx, "job")
				if (err == nil) != (i%2 == 1) {
					t.Errorf("waiter %d: %v", i, err)
				}
				if err == nil {
					got++
					_ = h.Release(t.Context())
				}
			})
			synctest.Wait()
			if i%2 == 0 {
				cancel()
			}
		}
		_ = h.Release(t.Context())
		wg.Wait()
		if got != 5 {
			t.Errorf("%d waiters got the lock", got)
		}
	})
}

// A hold that is lost and never released does not keep the lock from this process's own waiters.
func TestLocalWaiterSucceedsALostHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.FaultyClient(t, memory.NewStore().Locker(), locktest.Each(locktest.OpRenew, locktest.Fault{Refuse: locktest.ErrInjected}))
		first := locktest.MustLock(t, c, "job")
		start := time.Now()
		second := locktest.MustLock(t, c, "job")
		if d := time.Since(start) - 30*time.Second; d < 0 || d > time.Second || first.Err() == nil {
			t.Errorf("granted %v after the expiry", d)
		}
		_ = second.Release(t.Context())
	})
}

// A release by this process wakes this process's first waiter, also during that waiter's turn.
func TestOwnReleaseWakesTheFirstWaiter(t *testing.T) {
	locktest.Bubble(t, "of a lost hold", func(t *testing.T) {
		under := locktest.NewFaulty(t, memory.New(), locktest.Refuse(locktest.OpRenew))
		c := locktest.NewClient(t, locktest.Anonymous{Locker: under}, holdfast.WithPollInterval(time.Hour), holdfast.WithTTL(30*time.Minute))
		h := locktest.MustLock(t, c, "job")
		done := make(chan time.Time)
		go func() { _ = locktest.MustLock(t, c, "job").Release(t.Context()); done <- time.Now() }()
		<-h.Context().Done()
		time.Sleep(time.Second)
		_ = h.Release(t.Context())
		freed := time.Now()
		if d := (<-done).Sub(freed); d > time.Second {
			t.Errorf("granted %v after the release in the same process", d)
		}
	})
	locktest.Bubble(t, "of a TryLock in between", func(t *testing.T) {
		store := memory.NewStore()
		other := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
		c := locktest.NewClient(t, locktest.Anonymous{Locker: locktest.NewFaulty(t, store.Locker(), nil)}, holdfast.WithPollInterval(time.Hour))
		done := make(chan time.Time)
		go func() { _ = locktest.MustLock(t, c, "job").Release(t.Context()); done <- time.Now() }()
		time.Sleep(time.Second)
		_ = other.Release(t.Context())
		_ = locktest.MustTryLock(t, c, "job").Release(t.Context())
		freed := time.Now()
		if d := (<-done).Sub(freed); d > time.Second {
			t.Errorf("granted %v after the release in the same process", d)
		}
	})
}
