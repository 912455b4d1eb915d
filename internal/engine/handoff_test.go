package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// line starts waiters of one name, one after another. Each works with its hold, and notes its
// label.
type line struct {
	tb    testing.TB
	may   error // an error that a waiter may get instead of the lock
	check *locktest.Exclusive
	wg    sync.WaitGroup
	mu    sync.Mutex
	order []string
}

func newLine(tb testing.TB) *line { return &line{tb: tb, check: locktest.NewExclusive(tb)} }

// join starts a waiter, and returns when it is in the client's queue.
func (q *line) join(c *holdfast.Client, label string, work time.Duration) {
	q.wg.Go(func() {
		h, err := c.Lock(q.tb.Context(), "n")
		if err != nil {
			if q.may == nil || !errors.Is(err, q.may) {
				q.tb.Errorf("%s: %v", label, err)
			}
			return
		}
		q.check.Enter(h.Context(), "n", h.Token())
		time.Sleep(work)
		q.mu.Lock()
		q.order = append(q.order, label)
		q.mu.Unlock()
		if err := h.Release(q.tb.Context()); err != nil {
			q.tb.Errorf("%s: release: %v", label, err)
		}
	})
	synctest.Wait()
}

// Waiters of one process are handed the lock in the order of arrival, with one request each.
// The first acquires it, and the last releases it.
func TestHandoffInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		f := locktest.NewFaulty(t, store.Locker(), nil)
		f.Watcher = true
		var events locktest.Events
		c := locktest.NewClient(t, f, holdfast.WithObserver(events.Observe))
		q := newLine(t)
		var want []string
		for i := range 5 {
			q.join(c, fmt.Sprint(i), 1)
			want = append(want, fmt.Sprint(i))
		}
		q.wg.Wait()
		synctest.Wait()
		if !slices.Equal(q.order, want) {
			t.Errorf("served in order %v", q.order)
		}
		if a, h, r := f.Count(locktest.OpAcquire), f.Count(locktest.OpHandOver), f.Count(locktest.OpRelease); a != 1 || h != 4 || r != 1 {
			t.Errorf("%d acquires, %d handoffs, %d releases; want 1, 4, 1", a, h, r)
		}
		if locktest.IsHeld(t, store, "n") {
			t.Error("the lock is held in the end")
		}
		for i, got := range events.Types() { // the end of a hold is reported before the beginning of the next
			if want := []holdfast.EventType{holdfast.EventAcquired, holdfast.EventReleased}[i%2]; got != want {
				t.Fatalf("events %v", events.Types())
			}
		}
	})
}

// Whatever fails in a handoff, the lock has one holder at a time, every waiter is served, Release
// returns no error, and the lock is free in the end.
func TestHandoffFaults(t *testing.T) {
	for name, fault := range map[string]locktest.Fault{
		"not applied, and an error":    {Refuse: locktest.ErrInjected},
		"applied, and an error":        {Lose: locktest.ErrInjected},
		"no reply":                     {Hang: true},
		"no reply, and applied late":   {Late: 4 * time.Second},
		"applied after the time limit": {Delay: 4 * time.Second, IgnoreContext: true},
		"slow":                         {Delay: time.Second},
		"refused as invalid":           {Refuse: driver.Invalid("f", "v", "r")},
		"refused as held by another":   {Refuse: &holdfast.HeldError{Record: holdfast.Record{Name: "n", State: driver.StateHeld}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.NewStore()
				f := locktest.NewFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
					if op == locktest.OpHandOver && n%2 == 1 {
						return fault
					}
					return locktest.Fault{}
				})
				f.Watcher = true
				c := locktest.NewClient(t, f, holdfast.WithTTL(time.Minute), holdfast.WithRequestTimeout(time.Second))
				start, q := time.Now(), newLine(t)
				if errors.Is(fault.Refuse, driver.ErrInvalid) { // ends the wait, as for an acquire
					q.may = driver.ErrInvalid
				}
				for i := range 8 {
					q.join(c, fmt.Sprint(i), 1)
				}
				q.wg.Wait()
				if f.Count(locktest.OpHandOver) < 2 {
					t.Errorf("%d handoffs", f.Count(locktest.OpHandOver))
				}
				if took := time.Since(start); took > 30*time.Second {
					t.Errorf("all were served after %v: at least one lease was left to expire", took)
				}
				time.Sleep(2 * time.Minute) // for late requests and cleanups
				if locktest.IsHeld(t, store, "n") {
					t.Error("the lock is held in the end")
				}
			})
		})
	}
}

// A waiter that leaves during a handoff delays nobody: the next waiter has the lock as soon as
// the release is done.
func TestHandoffToALeavingWaiter(t *testing.T) {
	for name, fault := range map[string]locktest.Fault{
		"not applied":      {Hang: true},
		"applied too late": {Late: time.Millisecond},
		"applied":          {Lose: locktest.ErrInjected, Delay: 20 * time.Millisecond, IgnoreContext: true},
		"left before":      {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.NewStore()
				f := locktest.NewFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
					if op == locktest.OpHandOver && n == 1 {
						return fault
					}
					return locktest.Fault{}
				})
				f.Watcher = true
				c := locktest.NewClient(t, f, holdfast.WithTTL(time.Minute))
				check := locktest.NewExclusive(t)
				first := locktest.MustLock(t, c, "n")
				check.Enter(first.Context(), "n", first.Token())
				ctx, leave := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				wg.Go(func() {
					if h, err := c.Lock(ctx, "n"); !errors.Is(err, context.Canceled) {
						t.Errorf("got %v, %v; want canceled", h, err)
					}
				})
				synctest.Wait()
				start := time.Now()
				wg.Go(func() {
					h := locktest.MustLock(t, c, "n")
					check.Enter(h.Context(), "n", h.Token())
					if waited := time.Since(start); waited > time.Second {
						t.Errorf("the next waited %v", waited)
					}
					locktest.Release(t, h)
				})
				synctest.Wait()
				if fault == (locktest.Fault{}) {
					leave()
				}
				time.AfterFunc(10*time.Millisecond, leave)
				locktest.Release(t, first)
				wg.Wait()
				time.Sleep(2 * time.Minute)
				if locktest.IsHeld(t, store, "n") {
					t.Error("the lock is held in the end")
				}
			})
		})
	}
}

// A release that hands over ends within the hold's own request timeout, whatever the waiter's is.
func TestHandoffEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFaulty(t, memory.NewStore().Locker(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
			return locktest.Fault{Hang: op == locktest.OpHandOver}
		})
		f.Watcher = true
		c := locktest.NewClient(t, f, holdfast.WithTTL(10*time.Minute), holdfast.WithRequestTimeout(time.Minute))
		h := locktest.MustLock(t, c, "n", holdfast.WithRequestTimeout(time.Second))
		q := newLine(t)
		q.join(c, "next", 0)
		start := time.Now()
		if err := h.Release(t.Context()); err != nil || time.Since(start) > 2*time.Second {
			t.Errorf("released after %v, %v", time.Since(start), err)
		}
		q.wg.Wait()
	})
}

// A release whose context has ended does not hand over. It sends one request, and returns after
// its time limit.
func TestNoHandoffWithAnEndedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFaulty(t, memory.NewStore().Locker(), func(op string, _ int, _ holdfast.Lease) locktest.Fault {
			return locktest.Fault{Hang: op == locktest.OpHandOver || op == locktest.OpRelease}
		})
		f.Watcher = true
		c := locktest.NewClient(t, f, holdfast.WithTTL(time.Minute), holdfast.WithRequestTimeout(3*time.Second))
		h := locktest.MustLock(t, c, "n")
		waiting, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := c.Lock(waiting, "n"); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want canceled", err)
			}
		})
		synctest.Wait()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		if err := h.Release(ended); err == nil || time.Since(start) > 4*time.Second {
			t.Errorf("returned after %v: %v", time.Since(start), err)
		}
		leave()
		wg.Wait()
	})
}

// A lock that an operator has freed, and another process has taken, is not handed over.
func TestNoHandoffOfAnothersLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		f := locktest.NewFaulty(t, store.Locker(), nil)
		f.Watcher = true
		here, there := locktest.NewClient(t, f), locktest.NewClient(t, store.Locker())
		h := locktest.MustLock(t, here, "n")
		q := newLine(t)
		q.join(here, "next", time.Millisecond)
		if err := f.Locker.Capabilities().Breaker.BreakNow(t.Context(), "n", driver.BreakAnybody()); err != nil {
			t.Fatal(err)
		}
		taken := locktest.MustTryLock(t, there, "n")
		locktest.Release(t, h)
		synctest.Wait()
		if f.Count(locktest.OpHandOver) != 1 || len(q.order) != 0 || taken.Err() != nil {
			t.Errorf("%d handoffs, served %v, the other's hold: %v", f.Count(locktest.OpHandOver), q.order, taken.Err())
		}
		q.check.Enter(taken.Context(), "n", taken.Token())
		locktest.Release(t, taken)
		q.wg.Wait()
	})
}

// After a Shutdown during a handoff, nobody has the lock.
func TestHandoffDuringShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		f := locktest.NewFaulty(t, store.Locker(), locktest.Each(locktest.OpHandOver, locktest.Fault{Delay: time.Second, IgnoreContext: true}))
		f.Watcher = true
		c := locktest.NewClient(t, f)
		h := locktest.MustLock(t, c, "n")
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := c.Lock(t.Context(), "n"); !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("got %v, want closed", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			locktest.Release(t, h)
		})
		synctest.Wait()
		locktest.ShutDown(t, c)
		wg.Wait()
		if locktest.IsHeld(t, store, "n") {
			t.Error("the lock is held after Shutdown")
		}
	})
}

// A hold that was lost hands nothing over, although others wait when it is released.
func TestNoHandoffAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		f := locktest.NewFaulty(t, store.Locker(), nil)
		f.Watcher = true
		c := locktest.NewClient(t, f, holdfast.WithTTL(9*time.Millisecond)) // the loss comes within the handoff window
		lost := locktest.MustLock(t, c, "n")
		store.Remove("n")
		<-lost.Context().Done()
		next := locktest.MustLock(t, c, "n")
		q := newLine(t)
		q.join(c, "last", 0)
		locktest.Release(t, lost)
		synctest.Wait()
		if n := f.Count(locktest.OpHandOver); n != 0 || next.Err() != nil || len(q.order) != 0 {
			t.Errorf("%d handoffs; the present hold: %v; served %v", n, next.Err(), q.order)
		}
		locktest.Release(t, next)
		q.wg.Wait()
	})
}

// The end of a hold is reported before the beginning of the next one, also if the reply to the
// handoff's request is lost and the release that follows is slow.
func TestHandoffEventsAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFaulty(t, memory.NewStore().Locker(), func(op string, _ int, _ holdfast.Lease) locktest.Fault {
			switch op {
			case locktest.OpHandOver:
				return locktest.Fault{Lose: locktest.ErrInjected}
			case locktest.OpRelease:
				return locktest.Fault{Delay: time.Second}
			}
			return locktest.Fault{}
		})
		f.Watcher = true
		var events locktest.Events
		c := locktest.NewClient(t, f, holdfast.WithObserver(events.Observe))
		h := locktest.MustLock(t, c, "n")
		q := newLine(t)
		q.join(c, "next", 10*time.Second)
		locktest.Release(t, h)
		q.wg.Wait()
		synctest.Wait()
		got := slices.DeleteFunc(events.Types(), func(e holdfast.EventType) bool { return e == holdfast.EventError })
		want := []holdfast.EventType{holdfast.EventAcquired, holdfast.EventReleased, holdfast.EventAcquired, holdfast.EventReleased}
		if !slices.Equal(got, want) {
			t.Errorf("events %v", got)
		}
	})
}

// Each slot is handed over like a lock if this process holds all of them.
func TestHandoffOfSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		f := locktest.NewFaulty(t, store.Locker(), nil)
		f.Watcher = true
		c := locktest.NewClient(t, f)
		check := locktest.NewExclusive(t)
		var wg sync.WaitGroup
		for i := range 9 {
			wg.Go(func() {
				h := locktest.MustLock(t, c, "pool", holdfast.WithSlots(3))
				check.Enter(h.Context(), h.Name(), h.Token())
				time.Sleep(time.Duration(10 + i)) // one is released at a time
				locktest.Release(t, h)
			})
			synctest.Wait()
		}
		wg.Wait()
		if h, r := f.Count(locktest.OpHandOver), f.Count(locktest.OpRelease); h != 6 || r != 3 {
			t.Errorf("%d handoffs and %d releases, 6 of 9 waited", h, r)
		}
	})
}

// A waiter that already sends requests for the slots of other processes is not offered a slot,
// and gets the one that is released here by an ordinary request. A waiter that may not take a
// slot is not offered it.
func TestNoHandoffOfASlotToAWaiterThatCannotUseIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		f := locktest.NewFaulty(t, store.Locker(), nil)
		f.Watcher = true
		here, there := locktest.NewClient(t, f), locktest.NewClient(t, store.Locker())
		for _, tc := range []struct {
			other *holdfast.Client // has the other of two slots
			slots int              // that the waiter may take
		}{{there, 2}, {here, 1}} {
			others := locktest.MustLock(t, tc.other, "pool", holdfast.WithSlots(2))
			own := locktest.MustLock(t, here, "pool", holdfast.WithSlots(2))
			if tc.slots == 1 && own.Slot() == 0 {
				own, others = others, own
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				h := locktest.MustLock(t, here, "pool", holdfast.WithSlots(tc.slots))
				locktest.Release(t, h)
			})
			synctest.Wait()
			before := f.Count(locktest.OpHandOver)
			locktest.Release(t, own)
			synctest.Wait()
			if n := f.Count(locktest.OpHandOver) - before; n != 0 {
				t.Errorf("%d slots: %d handoffs", tc.slots, n)
			}
			locktest.Release(t, others)
			wg.Wait()
		}
	})
}
