package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// Other processes have their turn: handoffs go on for a twentieth of a second at most. Then the
// lock is released although many still wait here.
func TestHandoffsLeaveOtherProcessesTheirTurn(t *testing.T) {
	for _, tc := range []struct {
		name    string
		work    time.Duration
		waiters int
		most    int // local holds before the other's
	}{
		{"short holds", time.Millisecond, 80, 51},
		{"long holds", 40 * time.Millisecond, 10, 2},
		{"holds that are longer than the handoff window", 2 * time.Second, 5, 1},
	} {
		for range 20 { // the handoff window is random
			synctest.Test(t, func(t *testing.T) {
				store := memory.NewStore()
				f := locktest.NewFaulty(t, store.Locker(), nil)
				f.Watcher = true
				here, there := locktest.NewClient(t, f), locktest.NewClient(t, store.Locker())
				q := newLine(t)
				for i := range tc.waiters {
					q.join(here, fmt.Sprint(i), tc.work)
					if i == 0 {
						q.join(there, "other", tc.work)
					}
				}
				q.wg.Wait()
				if at := slices.Index(q.order, "other"); at > tc.most {
					t.Errorf(tc.name+": the other process was served after %d holds of this one, want at most %d: %v", at, tc.most, q.order)
				}
				if n := f.Count(locktest.OpHandOver); tc.work < 10*time.Millisecond && n == 0 {
					t.Error(tc.name + ": no handoff")
				}
			})
		}
	}
}

// Without a Watcher there are no handoffs: waiters of other processes would hardly ever find the
// lock free.
func TestHandoffNeedsAWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFaulty(t, memory.NewStore().Locker(), nil)
		c := locktest.NewClient(t, f)
		q := newLine(t)
		for i := range 3 {
			q.join(c, fmt.Sprint(i), time.Millisecond)
		}
		q.wg.Wait()
		if a, h := f.Count(locktest.OpAcquire), f.Count(locktest.OpHandOver); a != 3 || h != 0 {
			t.Errorf("%d acquires, %d handoffs; want 3, none", a, h)
		}
	})
}

// lateWatcher is a Locker whose Watcher reports a release after a delay.
type lateWatcher struct {
	*locktest.Faulty
	after time.Duration
}

func (l lateWatcher) Capabilities() driver.Capabilities {
	a := l.Faulty.Capabilities()
	a.Waker = l
	return a
}

func (l lateWatcher) Wake(name string, waiter driver.WaiterID, wake func(driver.Wakeup)) (stop func()) {
	return l.Locker.Capabilities().Waker.Wake(name, waiter, func(up driver.Wakeup) { time.AfterFunc(l.after, func() { wake(up) }) })
}

// A process that is ten times as far from the backend has its turn too, while fifty callers of a
// near process take the lock again and again.
func TestHandoffsLeaveADistantProcessItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		at := func(d time.Duration) lateWatcher {
			return lateWatcher{locktest.NewFaulty(t, store.Locker(),
				func(string, int, holdfast.Lease) locktest.Fault { return locktest.Fault{Delay: d} }), d / 2}
		}
		here, there := locktest.NewClient(t, at(2*time.Millisecond)), locktest.NewClient(t, at(22*time.Millisecond))
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				for ctx.Err() == nil {
					if err := locktest.MustLock(t, here, "n").Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		time.Sleep(time.Second)
		start := time.Now()
		for range 10 {
			if err := locktest.MustLock(t, there, "n").Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		// Mostly 2 to 4 s. If a waiter that is woken reads before it sends its request, 25 s.
		if waited := time.Since(start); waited > 12*time.Second {
			t.Errorf("waited %v for ten locks", waited)
		}
		stop()
		wg.Wait()
	})
}

// A waiter with a shorter TTL is not handed the lock: other processes have seen the longer TTL,
// and would notice the crash of the new holder too late.
func TestNoHandoffToAShorterTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		var cut atomic.Bool
		f := locktest.NewFaulty(t, store.Locker(), locktest.While(&cut, locktest.Fault{Refuse: locktest.ErrInjected}))
		f.Watcher = true
		here, there := locktest.NewClient(t, f), locktest.NewClient(t, store.Locker())
		q := newLine(t)
		h := locktest.MustLock(t, here, "n", holdfast.WithTTL(10*time.Minute))
		var next *holdfast.Hold
		q.wg.Go(func() { next = locktest.MustLock(t, here, "n", holdfast.WithTTL(2*time.Second)) })
		synctest.Wait()
		q.join(there, "other", 0)
		locktest.Release(t, h)
		synctest.Wait()
		if next != nil {
			cut.Store(true)
			q.check.Enter(next.Context(), "n", next.Token())
		}
		start := time.Now()
		q.wg.Wait()
		if waited := time.Since(start); waited > 4*time.Second {
			t.Errorf("a holder with a TTL of 2 s was succeeded after %v", waited)
		}
		if n := f.Count(locktest.OpHandOver); n != 0 {
			t.Errorf("%d handoffs", n)
		}
	})
}

// A waiter that leaves or is shut down while it yields to other processes returns at once, and
// sends no request.
func TestWaiterLeavesWhileItYields(t *testing.T) {
	for name, end := range map[string]func(c *holdfast.Client, leave func()){
		"leaves":   func(_ *holdfast.Client, leave func()) { leave() },
		"shutdown": func(c *holdfast.Client, _ func()) { go func() { _ = c.Shutdown(context.Background()) }() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := locktest.NewFaulty(t, memory.NewStore().Locker(), func(op string, _ int, _ holdfast.Lease) locktest.Fault {
					return locktest.Fault{Delay: 50 * time.Millisecond}
				})
				f.Watcher = true
				c := locktest.NewClient(t, f)
				h := locktest.MustLock(t, c, "n")
				time.Sleep(2 * time.Second) // longer than the handoff window
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				done := make(chan time.Time)
				go func() {
					if _, err := c.Lock(ctx, "n"); !errors.Is(err, context.Canceled) && !errors.Is(err, holdfast.ErrClosed) {
						t.Errorf("got %v, want canceled or closed", err)
					}
					done <- time.Now()
				}()
				synctest.Wait()
				locktest.Release(t, h)
				synctest.Wait()
				left, calls := time.Now(), f.Total()
				end(c, leave)
				if took := (<-done).Sub(left); took > 10*time.Millisecond {
					t.Errorf("left after %v", took)
				}
				time.Sleep(time.Minute)
				if n := f.Total() - calls; n != 0 {
					t.Errorf("%d calls", n)
				}
			})
		})
	}
}

// If a waiter leaves while it yields to other processes, the next waiter yields in its place.
func TestYieldOutlivesTheWaiterThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		at := func() lateWatcher {
			return lateWatcher{locktest.NewFaulty(t, store.Locker(), func(op string, _ int, _ holdfast.Lease) locktest.Fault {
				return map[bool]locktest.Fault{true: {Delay: 50 * time.Millisecond}}[op == locktest.OpRelease]
			}), 20 * time.Millisecond}
		}
		here, there := locktest.NewClient(t, at()), locktest.NewClient(t, at())
		q := newLine(t)
		h := locktest.MustLock(t, here, "n")
		ctx, leave := context.WithCancel(t.Context())
		q.wg.Go(func() {
			if _, err := here.Lock(ctx, "n"); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want canceled", err)
			}
		})
		synctest.Wait()
		q.join(here, "own", 0)
		q.join(there, "other", 0)
		time.Sleep(time.Second)
		locktest.Release(t, h)
		leave() // the other process does not know of the release yet
		q.wg.Wait()
		if want := []string{"other", "own"}; !slices.Equal(q.order, want) {
			t.Errorf("served in order %v", q.order)
		}
	})
}
