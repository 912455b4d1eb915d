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
	"github.com/holdfast-go/holdfast/driver"
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
			q.join(c, fmt.Sprint(i), 1)
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
		"refused as invalid":         {refuse: driver.Invalid("f", "v", "r")},
		"said to be held by another": {refuse: &holdfast.HeldError{Record: holdfast.Record{Name: "n", State: driver.StateHeld}}},
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
				c := newClient(t, f, holdfast.WithTTL(time.Minute), holdfast.WithRequestTimeout(time.Second))
				start, q := time.Now(), newLine(t)
				if errors.Is(strike.refuse, driver.ErrInvalid) { // ends the waiting, as that of an acquire does
					q.may = driver.ErrInvalid
				}
				for i := range 8 {
					q.join(c, fmt.Sprint(i), 1)
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
		c := newClient(t, f, holdfast.WithTTL(10*time.Minute), holdfast.WithRequestTimeout(time.Minute))
		h := mustLock(t, c, "n", holdfast.WithRequestTimeout(time.Second))
		q := newLine(t)
		q.join(c, "next", 0)
		start := time.Now()
		if err := h.Release(t.Context()); err != nil || time.Since(start) > 2*time.Second {
			t.Errorf("released after %v, %v", time.Since(start), err)
		}
		q.wg.Wait()
	})
}

// A release whose context has ended sends one request, and is back after its time limit.
func TestHandOverNotByEndedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t, memory.NewStore().Locker(), func(op string, _ int, _ holdfast.Lease) fault {
			return fault{hang: op == opHandOver || op == opRelease}
		})
		f.watcher = true
		c := newClient(t, f, holdfast.WithTTL(time.Minute), holdfast.WithRequestTimeout(3*time.Second))
		h := mustLock(t, c, "n")
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
			t.Errorf("back after %v: %v", time.Since(start), err)
		}
		leave()
		wg.Wait()
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
		if err := f.Locker.Capabilities().Breaker.BreakNow(t.Context(), "n"); err != nil {
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
		c := newClient(t, f, holdfast.WithTTL(9*time.Millisecond)) // a loss is known while it could be passed on
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

// A hold is told to be over before the next one of the process is told of, also if the reply
// to the request that passes the lock on is lost, and the release that follows is slow.
func TestHandOverEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t, memory.NewStore().Locker(), func(op string, _ int, _ holdfast.Lease) fault {
			switch op {
			case opHandOver:
				return fault{lose: errInjected}
			case opRelease:
				return fault{delay: time.Second}
			}
			return fault{}
		})
		f.watcher = true
		var told events
		c := newClient(t, f, holdfast.WithObserver(told.observe))
		h := mustLock(t, c, "n")
		q := newLine(t)
		q.join(c, "next", 10*time.Second)
		if err := h.Release(t.Context()); err != nil {
			t.Error(err)
		}
		q.wg.Wait()
		synctest.Wait()
		got := slices.DeleteFunc(told.types(), func(e holdfast.EventType) bool { return e == holdfast.EventError })
		want := []holdfast.EventType{holdfast.EventAcquired, holdfast.EventReleased, holdfast.EventAcquired, holdfast.EventReleased}
		if !slices.Equal(got, want) {
			t.Errorf("events %v", got)
		}
	})
}
