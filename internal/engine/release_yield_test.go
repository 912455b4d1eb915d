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

// Waiters of one process are served in the order of arrival.
func TestWaitersAreServedInOrder(t *testing.T) {
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
		for i, got := range events.Types() { // the end of a hold is reported before the beginning of the next
			if want := []holdfast.EventType{holdfast.EventAcquired, holdfast.EventReleased}[i%2]; got != want {
				t.Fatalf("events %v", events.Types())
			}
		}
	})
}

// Other processes have their turn, although many still wait here.
func TestOtherProcessesHaveTheirTurn(t *testing.T) {
	for _, work := range []time.Duration{time.Millisecond, 40 * time.Millisecond, 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			f := locktest.NewFaulty(t, store.Locker(), nil)
			f.Watcher = true
			here, there := locktest.NewClient(t, f), locktest.NewClient(t, store.Locker())
			q := newLine(t)
			for i := range 10 {
				q.join(here, fmt.Sprint(i), work)
				if i == 0 {
					q.join(there, "other", work)
				}
			}
			q.wg.Wait()
			if at := slices.Index(q.order, "other"); at > 1 {
				t.Errorf("holds of %v: the other process was served after %d holds of this one: %v", work, at, q.order)
			}
		})
	}
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
func TestADistantProcessHasItsTurn(t *testing.T) {
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

// A waiter that leaves or is shut down while it yields to other processes returns at once, and
// sends no request.
func TestWaiterLeavesWhileItYields(t *testing.T) {
	locktest.Rows(t, map[string]func(c *holdfast.Client, leave func()){
		"leaves":   func(_ *holdfast.Client, leave func()) { leave() },
		"shutdown": func(c *holdfast.Client, _ func()) { go func() { _ = c.Shutdown(context.Background()) }() },
	}, func(t *testing.T, end func(c *holdfast.Client, leave func())) {
		f := locktest.NewFaulty(t, memory.NewStore().Locker(), func(op string, _ int, _ holdfast.Lease) locktest.Fault {
			return locktest.Fault{Delay: 50 * time.Millisecond}
		})
		f.Watcher = true
		c := locktest.NewClient(t, f)
		h := locktest.MustLock(t, c, "n")
		time.Sleep(2 * time.Second)
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
