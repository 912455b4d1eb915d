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
	"github.com/holdfast-go/holdfast/internal/locktest"
)

// Other processes have their turn: the lock is passed on for a twentieth of a second at most, and
// is then released, while many still wait here.
func TestHandOverLetsOthersIn(t *testing.T) {
	for _, tc := range []struct {
		name    string
		work    time.Duration
		waiters int
		most    int // local holds before the other's
	}{
		{"short holds", time.Millisecond, 80, 51},
		{"long holds", 40 * time.Millisecond, 10, 2},
		{"holds that last longer than passing on does", 2 * time.Second, 5, 1},
	} {
		for range 20 { // chance has a part in it
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
					t.Errorf(tc.name+": the other process was served after %d holds of this one, at most %d are to be: %v", at, tc.most, q.order)
				}
				if n := f.Count(locktest.OpHandOver); tc.work < 10*time.Millisecond && n == 0 {
					t.Error(tc.name + ": nothing was passed on")
				}
			})
		}
	}
}

// Where nothing wakes the waiters of other processes nothing is passed on, for those would
// hardly ever find the lock free.
func TestHandOverNeedsWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFaulty(t, memory.NewStore().Locker(), nil)
		c := locktest.NewClient(t, f)
		q := newLine(t)
		for i := range 3 {
			q.join(c, fmt.Sprint(i), time.Millisecond)
		}
		q.wg.Wait()
		if a, h := f.Count(locktest.OpAcquire), f.Count(locktest.OpHandOver); a != 3 || h != 0 {
			t.Errorf("%d acquires, %d hand-overs; want 3, none", a, h)
		}
	})
}

// tardy is a Locker whose Watcher tells of a release so much later.
type tardy struct {
	*locktest.Faulty
	after time.Duration
}

func (l tardy) Capabilities() driver.Capabilities {
	a := l.Faulty.Capabilities()
	a.Watcher = l
	return a
}

func (l tardy) Watch(name string, wake func()) (stop func()) {
	return l.Locker.Capabilities().Watcher.Watch(name, func() { time.AfterFunc(l.after, wake) })
}

// A process that is ten times as far from the backend has its turn too, though fifty
// waiters of a near one keep passing the lock on.
func TestHandOverLetsDistantIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		at := func(d time.Duration) tardy {
			return tardy{locktest.NewFaulty(t, store.Locker(), func(string, int, holdfast.Lease) locktest.Fault { return locktest.Fault{Delay: d} }), d / 2}
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
		for range 5 {
			start := time.Now()
			if err := locktest.MustLock(t, there, "n").Release(t.Context()); err != nil {
				t.Error(err)
			}
			if waited := time.Since(start); waited > 10*time.Second {
				t.Errorf("waited %v", waited)
			}
		}
		stop()
		wg.Wait()
	})
}

// Others have seen the holder's TTL and act on it: a lease with a shorter one is not passed
// on, and so its holder's crash is noticed when that shorter TTL is over.
func TestHandOverNotToShorterTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		var cut atomic.Bool
		f := locktest.NewFaulty(t, store.Locker(), func(string, int, holdfast.Lease) locktest.Fault {
			if cut.Load() {
				return locktest.Fault{Refuse: locktest.ErrInjected}
			}
			return locktest.Fault{}
		})
		f.Watcher = true
		here, there := locktest.NewClient(t, f), locktest.NewClient(t, store.Locker())
		q := newLine(t)
		h := locktest.MustLock(t, here, "n", holdfast.WithTTL(10*time.Minute))
		var next *holdfast.Hold
		q.wg.Go(func() { next = locktest.MustLock(t, here, "n", holdfast.WithTTL(2*time.Second)) })
		synctest.Wait()
		q.join(there, "other", 0)
		if err := h.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
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
			t.Errorf("%d hand-overs", n)
		}
	})
}

// Who lets others ask first, and leaves or is shut down meanwhile, has asked nobody; and the
// next one of its process does not go ahead of the others either.
func TestHandOverYieldEnds(t *testing.T) {
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
				time.Sleep(2 * time.Second) // too long for passing on
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
				if err := h.Release(t.Context()); err != nil {
					t.Error(err)
				}
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

// One who leaves while it lets others ask first does not have the next go ahead of them.
func TestHandOverYieldOutlivesLeaver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		at := func() tardy {
			return tardy{locktest.NewFaulty(t, store.Locker(), func(op string, _ int, _ holdfast.Lease) locktest.Fault {
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
		if err := h.Release(t.Context()); err != nil {
			t.Error(err)
		}
		leave() // the other is yet to be told
		q.wg.Wait()
		if want := []string{"other", "own"}; !slices.Equal(q.order, want) {
			t.Errorf("served in order %v", q.order)
		}
	})
}
