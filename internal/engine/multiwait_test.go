package engine_test

import (
	"context"
	"errors"
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

// distant is a store that takes a millisecond to answer.
func distant(store *memory.Store) driver.Locker {
	return driver.Intercept(store.Locker(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
		time.Sleep(time.Millisecond)
		return next(ctx, call)
	})
}

// 50 Clients want random sets of 2 to 8 of 20 names: there is no deadlock, no name has two holders, and nobody
// starves, whatever mix of Clients and of single locks it is.
func TestSeveralNamesUnderContention(t *testing.T) {
	for what, change := range map[string]struct {
		m     func(*locktest.MultiContention)
		means float64
	}{
		"short work":       {func(*locktest.MultiContention) {}, 12},
		"long work":        {func(m *locktest.MultiContention) { m.Work, m.Rounds = 2*time.Second, 10 }, 12},
		"one client":       {func(m *locktest.MultiContention) { m.Clients = -m.Clients }, 12},
		"single locks too": {func(m *locktest.MultiContention) { m.Singles = 20 }, 12},
	} {
		locktest.Bubble(t, what, func(t *testing.T) {
			m := locktest.FiftyOfTwenty(20, 5*time.Millisecond)
			change.m(&m)
			store, clients := memory.NewStore(), 1
			if m.Clients > 0 {
				clients = m.Clients
			}
			m.Clients = max(m.Clients, -m.Clients)
			var all []*holdfast.Client
			for range clients {
				all = append(all, locktest.NewClient(t, distant(store)))
			}
			r := m.Run(t, func(i int) *holdfast.Client { return all[i%clients] })
			t.Log(r)
			if r.Unfairness() > change.means || r.Holds != m.Clients*m.Rounds {
				t.Errorf("the longest wait is %.1f times the mean, after %d holds", r.Unfairness(), r.Holds)
			}
			for _, name := range locktest.Names("account-", m.Names) {
				if locktest.IsHeld(t, store, name) {
					t.Errorf("%s is held in the end", name)
				}
			}
		})
	}
}

// A caller that waits for a name that is held for long lets go of the others, keeps its position, and
// gets all names in the end.
func TestWaitingHoldsNothingForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		leader := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "b")
		c, other := locktest.NewClient(t, store.Locker()), locktest.NewClient(t, store.Locker())
		var got *holdfast.MultiHold
		var wg sync.WaitGroup
		wg.Go(func() {
			m, err := c.LockAll(t.Context(), []string{"c", "b", "a"})
			if err != nil {
				t.Error(err)
			}
			got = m
		})
		time.Sleep(500 * time.Millisecond)
		if !locktest.IsHeld(t, store, "a") {
			t.Error("a is not held in the beginning")
		}
		time.Sleep(600 * time.Millisecond)
		for range 600 { // ten minutes
			for _, name := range []string{"a", "c"} {
				if locktest.IsHeld(t, store, name) {
					t.Fatalf("%s is held by a caller that waits for b", name)
				}
			}
			time.Sleep(time.Second)
		}
		if r, err := other.Inspect(t.Context(), "b"); err != nil || r.Waiters != 1 {
			t.Errorf("%d wait for b, %v", r.Waiters, err)
		}
		late := make(chan error, 1)
		go func() { late <- other.DoAll(t.Context(), []string{"a", "b"}, locktest.EmptyTask) }()
		synctest.Wait()
		_ = leader.Release(t.Context())
		wg.Wait()
		if names := got.Names(); !slices.Equal(names, []string{"a", "b", "c"}) || got.Err() != nil {
			t.Errorf("got %v, %v", got, got.Err())
		}
		_ = got.Release(t.Context())
		if err := <-late; err != nil {
			t.Error(err)
		}
	})
}

// A program that waits for several names while it holds another lock, by a context that does not show it, does not
// deadlock with one that holds some of them.
func TestNestedOrderDoesNotDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		one, two := locktest.NewClient(t, store.Locker()), locktest.NewClient(t, store.Locker())
		b := locktest.MustLock(t, one, "b")
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := two.DoAll(t.Context(), []string{"a", "b"}, locktest.EmptyTask); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		time.Sleep(100 * time.Millisecond) // two holds a and waits for b
		if err := one.DoAll(t.Context(), []string{"a", "c"}, locktest.EmptyTask); err != nil {
			t.Error(err)
		}
		_ = b.Release(t.Context())
		wg.Wait()
	})
}

// When a wait ends, by its context or by Shutdown, the caller holds nothing, has no position, and the error says what was taken.
func TestWaitForSeveralNamesEnds(t *testing.T) {
	names := []string{"a", "b", "c"}
	ends := func(after time.Duration) func(t *testing.T, c *holdfast.Client) error {
		return func(t *testing.T, c *holdfast.Client) error {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			_, err := c.LockAll(ctx, names)
			if !errors.Is(err, holdfast.ErrHeld) {
				t.Errorf("err = %v", err)
			}
			return err
		}
	}
	shut := func(call func(ctx context.Context, c *holdfast.Client) error) func(t *testing.T, c *holdfast.Client) error {
		return func(t *testing.T, c *holdfast.Client) error {
			ended := make(chan error, 1)
			go func() { ended <- call(t.Context(), c) }()
			synctest.Wait()
			locktest.ShutDown(t, c)
			return <-ended
		}
	}
	for what, test := range map[string]struct {
		end  func(t *testing.T, c *holdfast.Client) error
		want error
	}{
		"while the others are held": {ends(100 * time.Millisecond), context.DeadlineExceeded},
		"later":                     {ends(time.Minute), context.DeadlineExceeded},
		"Shutdown, LockAll": {shut(func(ctx context.Context, c *holdfast.Client) error {
			_, err := c.LockAll(ctx, names)
			return err
		}), holdfast.ErrClosed},
		"Shutdown, DoAll": {shut(func(ctx context.Context, c *holdfast.Client) error {
			return c.DoAll(ctx, names, locktest.EmptyTask)
		}), holdfast.ErrClosed},
	} {
		locktest.Bubble(t, what, func(t *testing.T) {
			store := memory.NewStore()
			other := locktest.NewClient(t, store.Locker())
			locktest.MustLock(t, other, "b")
			if err := test.end(t, locktest.NewClient(t, store.Locker())); !errors.Is(err, test.want) {
				t.Errorf("err = %v", err)
			}
			if locktest.IsHeld(t, store, "a") || locktest.IsHeld(t, store, "c") {
				t.Error("a or c is held")
			}
			time.Sleep(10 * time.Second)
			if r, err := other.Inspect(t.Context(), "b"); err != nil || r.Waiters != 0 {
				t.Errorf("%d wait for b, %v", r.Waiters, err)
			}
		})
	}
}

// A lock that is lost while its caller waits for the others is released with all others at once, and the caller still
// gets all names.
func TestLossDuringTheWaitForSeveralNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		leader := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "c")
		var lost atomic.Bool
		f := locktest.NewFaulty(t, store.Locker(), func(op string, _ int, l holdfast.Lease) locktest.Fault {
			if op == locktest.OpRenew && l.Name == "a" && lost.CompareAndSwap(false, true) {
				return locktest.Fault{Refuse: driver.ErrLost}
			}
			return locktest.Fault{}
		})
		f.Queue, f.Watcher = true, true
		events := &locktest.Events{}
		c := locktest.NewClient(t, f, holdfast.WithTTL(2*time.Second), holdfast.WithObserver(events.Observe)) // renewed before the patience ends
		var got *holdfast.MultiHold
		var wg sync.WaitGroup
		wg.Go(func() { got, _ = c.LockAll(t.Context(), []string{"a", "b", "c"}) })
		time.Sleep(800 * time.Millisecond)
		if !lost.Load() || locktest.IsHeld(t, store, "b") {
			t.Error("held after the loss")
		}
		_ = leader.Release(t.Context())
		wg.Wait()
		if got == nil || got.Err() != nil || len(got.Tokens()) != 3 {
			t.Fatalf("got %v", got)
		}
	})
}

// A damaged or denied name is an error at once; nothing stays held.
func TestSeveralNamesOneDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		f := locktest.NewFaulty(t, store.Locker(), locktest.Named(locktest.OpAcquire, "b", locktest.Fault{Refuse: driver.ErrDenied}))
		c := locktest.NewClient(t, f)
		start := time.Now()
		_, err := c.LockAll(t.Context(), []string{"a", "b"})
		_, err2 := c.TryLockAll(t.Context(), []string{"a", "b"})
		if !errors.Is(err, holdfast.ErrDenied) || !errors.Is(err2, holdfast.ErrDenied) || time.Since(start) > time.Second {
			t.Errorf("%v, %v after %v", err, err2, time.Since(start))
		}
		if locktest.IsHeld(t, store, "a") {
			t.Error("a is held")
		}
	})
}

func BenchmarkSeveralNames(b *testing.B) {
	store := memory.NewStore()
	locktest.FiftyOfTwenty(20, 5*time.Millisecond).Bench(b, 50, func() holdfast.Locker { return store.Locker() })
}
