package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

func TestThousandLocalWaitersInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		f := newFaulty(t, memory.NewStore().Locker(), nil)
		c := newClient(t, f)
		first := mustLock(t, c, "job")
		var order []int // guarded by the lock under test
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				h := mustLock(t, c, "job")
				order = append(order, i)
				_ = h.Release(t.Context())
			})
			synctest.Wait() // it has queued up
		}
		before := f.total()
		time.Sleep(time.Second)
		if f.total() != before {
			t.Error("waiters ask the backend although their own process holds the lock")
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
		if calls := float64(f.total()-before) / n; calls > 3 {
			t.Errorf("%.1f backend calls per hand-over", calls)
		}
	})
}

func TestOneAskerPerNameAndProcess(t *testing.T) {
	for _, looks := range []bool{false, true} {
		t.Run(fmt.Sprintf("batch reads %v", looks), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.NewStore()
				holder := newClient(t, store.Locker())
				h := mustLock(t, holder, "job")
				f := newFaulty(t, store.Locker(), nil)
				f.noLooks = !looks
				c := newClient(t, f, holdfast.WithPollInterval(10*time.Second))
				var wg sync.WaitGroup
				for range 100 {
					wg.Go(func() { _ = mustLock(t, c, "job").Release(t.Context()) })
				}
				time.Sleep(10 * time.Minute)
				// Per minute: 6 polls. The holder's own end never comes: it renews.
				if n := f.total(); n < 50 || n > 90 {
					t.Errorf("100 waiters made %d calls in 10 minutes at a poll interval of 10 s", n)
				}
				if n := f.count(opAcquire); looks && n != 1 {
					t.Errorf("%d attempts where a look would do", n)
				}
				_ = h.Release(t.Context())
				wg.Wait()
			})
		})
	}
}

func TestWaiterWakes(t *testing.T) {
	// How long after what happens at 100 s the waiter may get the lock, with a poll
	// interval of an hour.
	const poll = time.Hour
	t.Run("by the watcher, on a release", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			h := mustLock(t, newClient(t, store.Locker()), "job")
			c := newClient(t, store.Locker(), holdfast.WithPollInterval(poll), holdfast.WithTTL(time.Hour))
			var released time.Time
			go func() {
				time.Sleep(100 * time.Second)
				released = time.Now()
				_ = h.Release(t.Context())
			}()
			mustLock(t, c, "job")
			if d := time.Since(released); d != 0 {
				t.Errorf("granted %v after the release", d)
			}
		})
	})
	t.Run("by itself, when a dead holder's time ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			dead := store.Locker()
			if _, err := dead.TryAcquire(t.Context(), driver.Request{Name: "job", ID: driver.NewLeaseID("dead"), TTL: 100 * time.Second}); err != nil {
				t.Fatal(err)
			}
			c := newClient(t, newFaulty(t, store.Locker(), nil), holdfast.WithPollInterval(poll))
			start := time.Now()
			mustLock(t, c, "job")
			if d := time.Since(start) - 100*time.Second; d < 0 || d > 20*time.Millisecond {
				t.Errorf("granted %v after the expiry", d)
			}
		})
	})
	t.Run("by polling, when nothing else can wake it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			h := mustLock(t, newClient(t, store.Locker()), "job")
			c := newClient(t, blind{newFaulty(t, store.Locker(), nil)}, holdfast.WithPollInterval(10*time.Second))
			time.AfterFunc(100*time.Second, func() { _ = h.Release(t.Context()) })
			start := time.Now()
			mustLock(t, c, "job")
			if d := time.Since(start) - 100*time.Second; d < 0 || d > 12*time.Second {
				t.Errorf("granted %v after the release", d)
			}
		})
	})
	t.Run("by polling, when the watcher missed it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			h := mustLock(t, newClient(t, store.Locker()), "job")
			f := newFaulty(t, store.Locker(), nil)
			f.watcher = true
			c := newClient(t, deafWatcher{f})
			time.AfterFunc(100*time.Second, func() { _ = h.Release(t.Context()) })
			start := time.Now()
			mustLock(t, c, "job")
			if d := time.Since(start) - 100*time.Second; d < 0 || d > 20*time.Second {
				t.Errorf("granted %v after the release", d)
			}
		})
	})
}

// blind tells nothing of a holder but that there is one.
type blind struct{ holdfast.Locker }

func (b blind) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	l, err := b.Locker.TryAcquire(ctx, req)
	if errors.Is(err, holdfast.ErrHeld) {
		err = &holdfast.HeldError{Record: holdfast.Record{Name: req.Name, State: driver.StateHeld}}
	}
	return l, err
}

// deafWatcher comes into effect and then never wakes anybody.
type deafWatcher struct{ holdfast.Locker }

func (d deafWatcher) Capabilities() driver.Capabilities { return driver.Capabilities{Watcher: d} }

func (deafWatcher) Watch(_ string, wake func()) (stop func()) {
	wake()
	return func() {}
}

func TestWaitingEndsWithBothReasons(t *testing.T) {
	t.Run("held", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			mustLock(t, newClient(t, store.Locker(), holdfast.WithOwner("web-3")), "job")
			c := newClient(t, store.Locker())
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for range 3 { // also those who wait behind another
				go func() { _, _ = c.Lock(t.Context(), "job") }()
			}
			_, err := c.Lock(ctx, "job")
			var held *holdfast.HeldError
			if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &held) || held.Record.Owner != "web-3" {
				t.Errorf("err = %v", err)
			}
			_ = c.Shutdown(t.Context())
		})
	})
	t.Run("held by this process", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t, memory.NewStore().Locker())
			h := mustLock(t, c, "job", holdfast.WithOwner("me"))
			boss := errors.New("the boss said so")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(boss) })
			_, err := c.Lock(ctx, "job")
			var held *holdfast.HeldError
			if !errors.Is(err, context.Canceled) || !errors.Is(err, boss) || !errors.As(err, &held) || held.Record.Token != h.Token() {
				t.Errorf("err = %v", err)
			}
		})
	})
	t.Run("backend failure", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t, newFaulty(t, memory.NewStore().Locker(), func(op string, _ int, _ holdfast.Lease) fault {
				return map[string]fault{opAcquire: {refuse: errInjected}}[op]
			}))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := c.Lock(ctx, "job")
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errInjected) || errors.Is(err, holdfast.ErrHeld) {
				t.Errorf("err = %v", err)
			}
		})
	})
}

func TestCanceledWaiterIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, memory.NewStore().Locker())
		h := mustLock(t, c, "job")
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

func TestTryLockTellsTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := newClient(t, store.Locker())
		h := mustTryLock(t, c, "job", holdfast.WithOwner("web-3"), holdfast.WithData([]byte("x")))
		time.Sleep(3 * time.Second)
		_, err := c.TryLock(t.Context(), "job")
		var held *holdfast.HeldError
		if !errors.As(err, &held) || held.Record.Owner != "web-3" || held.Record.Token != h.Token() || held.Record.Remaining != 27*time.Second {
			t.Errorf("err = %v", err)
		}
		if err := h.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		r, err := c.Inspect(t.Context(), "job")
		if err != nil || r.State != driver.StateFree || string(r.Data) != "x" {
			t.Errorf("Inspect: %+v, %v", r, err)
		}
	})
}

// A hold that is lost and never released does not keep this process's own waiters.
func TestLocalWaiterFollowsALostHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newFaulty(t, memory.NewStore().Locker(), func(op string, _ int, _ holdfast.Lease) fault {
			return map[string]fault{opRenew: {refuse: errInjected}}[op]
		}))
		first := mustLock(t, c, "job")
		start := time.Now()
		second := mustLock(t, c, "job")
		if d := time.Since(start) - 30*time.Second; d < 0 || d > time.Second || first.Err() == nil {
			t.Errorf("granted %v after the expiry", d)
		}
		_ = second.Release(t.Context())
	})
}

// A backend whose refusals do not name the holder is asked once who it is.
func TestUnnamedHolderIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		h := mustLock(t, newClient(t, store.Locker(), holdfast.WithOwner("web-3")), "job")
		var seen events
		c := newClient(t, blind{newFaulty(t, store.Locker(), nil)}, holdfast.WithObserver(seen.observe))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		_, _ = c.Lock(ctx, "job")
		synctest.Wait()
		if n := seen.count(holdfast.EventHolderSeen); n != 1 || seen.list[0].Owner != "web-3" || seen.list[0].Token != h.Token() {
			t.Errorf("told %d times: %v", n, seen.list)
		}
	})
}
