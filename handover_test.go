package holdfast_test

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
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// line has waiters of one name begin one after the other. Each works with its hold, and
// notes its label.
type line struct {
	tb    testing.TB
	may   error // what a waiter may meet instead
	check *exclusive
	wg    sync.WaitGroup
	mu    sync.Mutex
	order []string
}

func newLine(tb testing.TB) *line { return &line{tb: tb, check: newExclusive(tb)} }

// join puts a waiter with a label into the queue of a client, and returns when it is there.
func (q *line) join(c *holdfast.Client, label string, work time.Duration) {
	q.wg.Go(func() {
		h, err := c.Lock(q.tb.Context(), "n")
		if err != nil {
			if q.may == nil || !errors.Is(err, q.may) {
				q.tb.Errorf("%s: %v", label, err)
			}
			return
		}
		q.check.enter(h.Context(), "n", h.Token())
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

// Within a process a lock goes from hand to hand in the order of arrival, by one request
// each; the first has it by an acquire, the last gives it back by a release.
func TestHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		f := newFaulty(t, store.Locker(), nil)
		f.watcher = true
		var told events
		c := newClient(t, f, holdfast.WithObserver(told.observe))
		q := newLine(t)
		var want []string
		for i := range 5 {
			q.join(c, fmt.Sprint(i), time.Millisecond)
			want = append(want, fmt.Sprint(i))
		}
		q.wg.Wait()
		synctest.Wait()
		if !slices.Equal(q.order, want) {
			t.Errorf("served in order %v", q.order)
		}
		if a, h, r := f.count(opAcquire), f.count(opHandOver), f.count(opRelease); a != 1 || h != 4 || r != 1 {
			t.Errorf("%d acquires, %d hand-overs, %d releases; want 1, 4, 1", a, h, r)
		}
		if isHeld(t, store, "n") {
			t.Error("the lock is held in the end")
		}
		for i, got := range told.types() { // a hold is told to be over before the next one is told of
			if want := []holdfast.EventType{holdfast.EventAcquired, holdfast.EventReleased}[i%2]; got != want {
				t.Fatalf("events %v", told.types())
			}
		}
	})
}

// Other processes have their turn: the lock is passed on so many times in a row, or for so
// long, and is then released, while many still wait here.
func TestHandOverLetsOthersIn(t *testing.T) {
	for _, tc := range []struct {
		name string
		work time.Duration
		most int // local holds before the other's
	}{
		{"short holds", time.Millisecond, 17},
		{"long holds", 400 * time.Millisecond, 3},
		{"holds that last longer than passing on does", 2 * time.Second, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.NewStore()
				f := newFaulty(t, store.Locker(), nil)
				f.watcher = true
				here, there := newClient(t, f), newClient(t, store.Locker())
				q := newLine(t)
				for i := range 30 {
					q.join(here, fmt.Sprint(i), tc.work)
					if i == 0 {
						q.join(there, "other", tc.work)
					}
				}
				q.wg.Wait()
				if at := slices.Index(q.order, "other"); at > tc.most {
					t.Errorf("the other process was served after %d holds of this one, at most %d are to be: %v", at, tc.most, q.order)
				}
				if n := f.count(opHandOver); tc.work < time.Second && n == 0 {
					t.Error("nothing was passed on")
				}
			})
		})
	}
}

// Whatever becomes of the request that passes a lock on, no two hold it, every waiter is
// served, Release says that the lock was given back, and it is free in the end.
func TestHandOverFaults(t *testing.T) {
	for name, strike := range map[string]fault{
		"not done, and an error":     {refuse: errInjected},
		"done, and an error":         {lose: errInjected},
		"no answer":                  {hang: true},
		"no answer, and done late":   {late: 4 * time.Second},
		"done after the time limit":  {delay: 4 * time.Second, deaf: true},
		"slow":                       {delay: time.Second},
		"refused as invalid":         {refuse: &holdfast.InvalidError{Field: "f", Value: "v", Rule: "r"}},
		"said to be held by another": {refuse: &holdfast.HeldError{Record: holdfast.Record{Name: "n", State: holdfast.StateHeld}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.NewStore()
				f := newFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) fault {
					if op == opHandOver && n%2 == 1 {
						return strike
					}
					return fault{}
				})
				f.watcher = true
				c := newClient(t, f, holdfast.WithTTL(time.Minute), holdfast.WithTryTimeout(time.Second))
				start, q := time.Now(), newLine(t)
				if errors.Is(strike.refuse, holdfast.ErrInvalid) { // ends the waiting, as that of an acquire does
					q.may = holdfast.ErrInvalid
				}
				for i := range 8 {
					q.join(c, fmt.Sprint(i), time.Millisecond)
				}
				q.wg.Wait()
				if f.count(opHandOver) < 2 {
					t.Errorf("%d hand-overs", f.count(opHandOver))
				}
				if took := time.Since(start); took > 30*time.Second {
					t.Errorf("all were served after %v: one lease at least was left to expire", took)
				}
				time.Sleep(2 * time.Minute) // what lands late, and what is cleaned up
				if isHeld(t, store, "n") {
					t.Error("the lock is held in the end")
				}
			})
		})
	}
}

// A waiter that goes away while a lock is on its way to it keeps it from nobody: the next
// one has it as soon as the release is through.
func TestHandOverToOneWhoLeaves(t *testing.T) {
	for name, strike := range map[string]fault{
		"not done":       {hang: true},
		"done, too late": {late: time.Millisecond},
		"done":           {lose: errInjected, delay: 20 * time.Millisecond, deaf: true},
		"gone before":    {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.NewStore()
				f := newFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) fault {
					if op == opHandOver && n == 1 {
						return strike
					}
					return fault{}
				})
				f.watcher = true
				c := newClient(t, f, holdfast.WithTTL(time.Minute))
				check := newExclusive(t)
				first := mustLock(t, c, "n")
				check.enter(first.Context(), "n", first.Token())
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
					h := mustLock(t, c, "n")
					check.enter(h.Context(), "n", h.Token())
					if waited := time.Since(start); waited > time.Second {
						t.Errorf("the next waited %v", waited)
					}
					if err := h.Release(t.Context()); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
				if strike == (fault{}) {
					leave()
				}
				time.AfterFunc(10*time.Millisecond, leave)
				if err := first.Release(t.Context()); err != nil {
					t.Error(err)
				}
				wg.Wait()
				time.Sleep(2 * time.Minute)
				if isHeld(t, store, "n") {
					t.Error("the lock is held in the end")
				}
			})
		})
	}
}

// A release whose lock is passed on ends no later than the hold's own time limit, whatever
// the waiter's is.
func TestHandOverEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t, memory.NewStore().Locker(), func(op string, n int, _ holdfast.Lease) fault {
			return fault{hang: op == opHandOver}
		})
		f.watcher = true
		c := newClient(t, f, holdfast.WithTTL(10*time.Minute), holdfast.WithTryTimeout(time.Minute))
		h := mustLock(t, c, "n", holdfast.WithTryTimeout(time.Second))
		q := newLine(t)
		q.join(c, "next", 0)
		start := time.Now()
		if err := h.Release(t.Context()); err != nil || time.Since(start) > 2*time.Second {
			t.Errorf("released after %v, %v", time.Since(start), err)
		}
		q.wg.Wait()
	})
}

// Where nothing wakes the waiters of other processes nothing is passed on, for those would
// hardly ever find the lock free.
func TestHandOverNeedsWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t, memory.NewStore().Locker(), nil)
		c := newClient(t, f)
		q := newLine(t)
		for i := range 3 {
			q.join(c, fmt.Sprint(i), time.Millisecond)
		}
		q.wg.Wait()
		if a, h := f.count(opAcquire), f.count(opHandOver); a != 3 || h != 0 {
			t.Errorf("%d acquires, %d hand-overs; want 3, none", a, h)
		}
	})
}

// A lock that an operator has freed and another process has taken is not passed on.
func TestHandOverOfWhatAnotherHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		f := newFaulty(t, store.Locker(), nil)
		f.watcher = true
		here, there := newClient(t, f), newClient(t, store.Locker())
		h := mustLock(t, here, "n")
		q := newLine(t)
		q.join(here, "next", time.Millisecond)
		if err := f.Locker.Abilities().Breaker.BreakNow(t.Context(), "n"); err != nil {
			t.Fatal(err)
		}
		taken := mustTryLock(t, there, "n")
		if err := h.Release(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if f.count(opHandOver) != 1 || len(q.order) != 0 || taken.Err() != nil {
			t.Errorf("%d hand-overs, served %v, the other's hold: %v", f.count(opHandOver), q.order, taken.Err())
		}
		q.check.enter(taken.Context(), "n", taken.Token())
		if err := taken.Release(t.Context()); err != nil {
			t.Error(err)
		}
		q.wg.Wait()
	})
}

// Shutdown while a lock is on its way: nobody gets it, and it is free afterwards.
func TestHandOverDuringShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		f := newFaulty(t, store.Locker(), func(op string, _ int, _ holdfast.Lease) fault {
			if op == opHandOver {
				return fault{delay: time.Second, deaf: true}
			}
			return fault{}
		})
		f.watcher = true
		c := newClient(t, f)
		h := mustLock(t, c, "n")
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := c.Lock(t.Context(), "n"); !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("got %v, want closed", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if err := h.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if err := c.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if isHeld(t, store, "n") {
			t.Error("the lock is held after Shutdown")
		}
	})
}

// A hold that was lost has nothing to pass on, though its Release comes while others wait.
func TestHandOverOfWhatWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		f := newFaulty(t, store.Locker(), nil)
		f.watcher = true
		c := newClient(t, f, holdfast.WithTTL(600*time.Millisecond)) // a loss is known while it could be passed on
		lost := mustLock(t, c, "n")
		store.Remove("n")
		<-lost.Context().Done()
		next := mustLock(t, c, "n")
		q := newLine(t)
		q.join(c, "last", 0)
		if err := lost.Release(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := f.count(opHandOver); n != 0 || next.Err() != nil || len(q.order) != 0 {
			t.Errorf("%d hand-overs; the present hold: %v; served %v", n, next.Err(), q.order)
		}
		if err := next.Release(t.Context()); err != nil {
			t.Error(err)
		}
		q.wg.Wait()
	})
}

// Who lets others ask first leaves as soon as its context ends.
func TestHandOverYieldEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t, memory.NewStore().Locker(), func(op string, _ int, _ holdfast.Lease) fault {
			if op == opRelease {
				return fault{delay: 50 * time.Millisecond}
			}
			return fault{}
		})
		f.watcher = true
		c := newClient(t, f)
		h := mustLock(t, c, "n")
		time.Sleep(2 * time.Second) // too long for passing on
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan time.Time)
		go func() {
			if _, err := c.Lock(ctx, "n"); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want canceled", err)
			}
			done <- time.Now()
		}()
		synctest.Wait()
		if err := h.Release(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		left := time.Now()
		leave()
		if took := (<-done).Sub(left); took > 10*time.Millisecond {
			t.Errorf("left after %v", took)
		}
	})
}
