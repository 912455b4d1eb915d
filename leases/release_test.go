package leases_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// Remove names what could not be released, and nothing else, to each of several callers.
func TestManagerRemoveNamesWhatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.FaultyClient(t, memory.New(), func(op string, _ int, l holdfast.Lease) locktest.Fault {
			if op == locktest.OpRelease && strings.HasPrefix(l.Name, "bad") {
				return locktest.Fault{Refuse: locktest.ErrInjected}
			}
			return locktest.Fault{}
		})
		m := locktest.NewManager(t, c)
		locktest.MustAdd(t, m, "bad", "good")
		synctest.Wait()
		done := make(chan error, 2)
		for range 2 {
			go func() { done <- m.Remove(t.Context(), "bad", "good", "bad", "never added") }()
		}
		for range 2 {
			err := <-done
			if !errors.Is(err, locktest.ErrInjected) || !strings.Contains(err.Error(), `"bad"`) || strings.Contains(err.Error(), "good") {
				t.Errorf("Remove: %v", err)
			}
		}
		if err := m.Remove(t.Context(), "bad"); err != nil {
			t.Errorf("Remove of a removed name: %v", err)
		}
		if err := m.Close(t.Context()); err != nil {
			t.Errorf("Close, with nothing left to release: %v", err)
		}
	})
}

// Releases that hang delay no other release for long. Close names them.
func TestManagerCloseNamesWhatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		f := locktest.NewFaulty(t, store.Locker(), func(op string, n int, l holdfast.Lease) locktest.Fault {
			if op == locktest.OpRelease && strings.HasPrefix(l.Name, "bad") {
				return locktest.Fault{Hang: true}
			}
			return locktest.Fault{Delay: 4 * time.Millisecond}
		})
		c := locktest.NewClient(t, f)
		m := locktest.NewManager(t, c)
		good := locktest.Names("good", 1000)
		locktest.MustAdd(t, m, locktest.Names("bad", 40)...)
		locktest.MustAdd(t, m, good...)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := m.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "40 leases") {
			t.Errorf("Close that ran out of time: %v", err)
		}
		for _, name := range good {
			if locktest.IsHeld(t, store, name) {
				t.Fatalf("%q is held", name)
			}
		}
		err := m.Close(t.Context())
		if err == nil || !strings.Contains(err.Error(), `"bad00000"`) || !strings.Contains(err.Error(), "40 locks, such as") {
			t.Errorf("Close: %v", err)
		}
	})
}

// Remove ends the contexts of all holds at once, also of those whose release has to wait for others
// that hang.
func TestManagerRemoveEndsContextsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFaulty(t, memory.New(), locktest.Each(locktest.OpRelease, locktest.Fault{Hang: true}))
		m := locktest.NewManager(t, locktest.NewClient(t, f))
		names := locktest.Names("n", 100)
		holds := locktest.MustManageAll(t, m, names)
		if err := m.Remove(locktest.Ended(), names...); !errors.Is(err, context.Canceled) {
			t.Errorf("Remove: %v", err)
		}
		for _, h := range holds {
			if !errors.Is(context.Cause(h.Context()), holdfast.ErrReleased) {
				t.Fatalf("the context of %v: %v", h, context.Cause(h.Context()))
			}
		}
		if n := f.Count(locktest.OpRelease); n >= len(names) {
			t.Errorf("%d releases under way: none waits", n)
		}
	})
}

// The cause of contexts that Shutdown ends is ErrClosed, however fast the releases are.
func TestManagerShutdownIsTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.NewClient(t, memory.New())
		m := locktest.NewManager(t, c)
		names := locktest.Names("n", 20)
		holds := locktest.MustManageAll(t, m, names)
		for _, h := range holds {
			for range 1000 { // so that to end it takes a while
				_, cancel := context.WithCancel(h.Context())
				defer cancel()
			}
		}
		locktest.ShutDown(t, c)
		for _, h := range holds {
			if cause := context.Cause(h.Context()); !errors.Is(cause, holdfast.ErrClosed) {
				t.Errorf("%s ended by %v", h.Name(), cause)
			}
		}
	})
}

// A name that is added again while it is being released is acquired again. Remove returns when the
// release is done.
func TestManagerAddedAgainDuringRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := locktest.FaultyClient(t, store.Locker(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
			switch {
			case op == locktest.OpRelease && n == 1:
				return locktest.Fault{Refuse: locktest.ErrInjected}
			case op == locktest.OpRelease:
				return locktest.Fault{Delay: 2 * time.Second}
			}
			return locktest.Fault{}
		})
		led := locktest.NewLedger(t)
		m := locktest.NewManager(t, c, holdfast.WithObserver(led.Observe))
		first := locktest.MustManage(t, m, "job")
		start := time.Now()
		done := make(chan error, 2)
		for range 2 {
			go func() { done <- m.Remove(t.Context(), "job") }()
		}
		synctest.Wait()
		if !errors.Is(first.Err(), holdfast.ErrReleased) {
			t.Errorf("during the release: %v", first.Err())
		}
		locktest.MustAdd(t, m, "job")
		for range 2 {
			if err := <-done; err != nil || time.Since(start) < 2*time.Second {
				t.Errorf("Remove: %v after %v", err, time.Since(start))
			}
		}
		time.Sleep(10 * time.Millisecond)
		if h, ok := m.Hold("job"); !ok || h.Token() <= first.Token() {
			t.Error("not acquired again")
		}
	})
}

// A name is removed, and added again, while an attempt for it is under way. Remove returns when the attempt
// has ended, be it by a grant or by a refusal, and the name stays.
func TestManagerAddsAgainDuringAnAttempt(t *testing.T) {
	for _, held := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			if held {
				locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
			}
			m := locktest.NewManager(t, locktest.FaultyClient(t, store.Locker(),
				locktest.Each(locktest.OpAcquire, locktest.Fault{Delay: 2 * time.Second})))
			locktest.MustAdd(t, m, "job")
			time.Sleep(time.Second)
			removed := make(chan error, 1)
			go func() { removed <- m.Remove(t.Context(), "job") }()
			synctest.Wait()
			locktest.MustAdd(t, m, "job")
			select {
			case err := <-removed:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(3 * time.Second):
				t.Errorf("held by another: %v: Remove does not return", held)
			}
			time.Sleep(2 * time.Second)
			if _, ok := m.Hold("job"); ok == held {
				t.Errorf("held by another: %v: held by the manager: %v", held, ok)
			}
		})
	}
}

// After a hold's own Release the manager lets others go first: another client that waits gets the lock. Then it campaigns again.
func TestManagerHoldReleasedByItsUser(t *testing.T) {
	for _, waits := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			m := locktest.NewManager(t, locktest.NewClient(t, store.Locker()), holdfast.WithPollInterval(5*time.Second))
			last := locktest.MustManage(t, m, "job")
			got := make(chan *holdfast.Hold, 1)
			if waits {
				other := locktest.NewClient(t, store.Locker())
				go func() { got <- locktest.MustLock(t, other, "job") }()
				synctest.Wait()
			}
			locktest.Release(t, last)
			if waits {
				synctest.Wait()
				last = <-got
				time.Sleep(time.Minute)
				locktest.Release(t, last)
				synctest.Wait()
			} else {
				if time.Sleep(3 * time.Second); locktest.IsHeld(t, store, "job") {
					t.Error("acquired again before another could have polled")
				}
				time.Sleep(4 * time.Second)
			}
			if h, ok := m.Hold("job"); !ok || h.Token() <= last.Token() {
				t.Errorf("another waits: %v: the manager did not campaign again", waits)
			}
		})
	}
}

// Thousands of attempts end in doubt, as in an outage. They are cleaned up a limited number at a time,
// without a goroutine for each, and during Shutdown without delay.
func TestManagerThousandsInDoubt(t *testing.T) {
	for _, shut := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			busy := locktest.NewCallGauge(locktest.NewFaulty(t, store.Locker(),
				locktest.Each(locktest.OpAcquire, locktest.Fault{Lose: locktest.ErrInjected})), 4*time.Millisecond)
			c := locktest.NewClient(t, busy)
			m := locktest.NewManager(t, c, holdfast.WithPollInterval(time.Hour))
			names := locktest.Names("n", 1000)
			locktest.MustAdd(t, m, names...)
			time.Sleep(time.Second)
			start := time.Now()
			if shut {
				locktest.ShutDown(t, c)
			} else {
				locktest.MustRemove(t, m, names...)
				time.Sleep(time.Second)
			}
			if d := time.Since(start); d > 2*time.Second {
				t.Errorf("shutdown %v: took %v", shut, d)
			}
			for _, name := range names {
				if locktest.IsHeld(t, store, name) {
					t.Fatalf("shutdown %v: %q is held", shut, name)
				}
			}
			if n := busy.Highest(driver.MethodRelease); n > 32 {
				t.Errorf("shutdown %v: %d releases at once", shut, n)
			}
		})
	}
}

// Shutdown releases thousands of leases, a limited number at a time.
func TestManagerShutdownOfThousands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		busy := locktest.NewCallGauge(store.Locker(), 4*time.Millisecond)
		c := locktest.NewClient(t, busy)
		m := locktest.NewManager(t, c)
		names := locktest.Names("n", 2000)
		locktest.MustAdd(t, m, names...)
		time.Sleep(time.Second)
		h, ok := m.Hold(names[0])
		if len(m.Leases()) != len(names) || !ok {
			t.Fatalf("%d leases are held", len(m.Leases()))
		}
		if err := c.Shutdown(h.Context()); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Shutdown with a context that it ends: %v", err)
		}
		locktest.ShutDown(t, c)
		if !errors.Is(h.Err(), holdfast.ErrClosed) {
			t.Errorf("Err: %v", h.Err())
		}
		for _, name := range names {
			if locktest.IsHeld(t, store, name) {
				t.Fatalf("%q is held", name)
			}
		}
		if n := busy.Highest(driver.MethodRelease); n > 32 {
			t.Errorf("%d releases at once", n)
		}
	})
}

// Remove and Close that are done are no error, although ctx has ended, too.
func TestDoneWhenTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := locktest.Ended()
		m := locktest.NewManager(t, locktest.NewClient(t, memory.New()))
		for range 100 {
			locktest.MustManage(t, m, "one")
			if err := m.Remove(locktest.EndsLate{Context: ended}, "one"); err != nil {
				t.Fatalf("Remove: %v", err)
			}
		}
		if err := m.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		for range 100 {
			if err := m.Close(ended); err != nil {
				t.Fatalf("Close: %v", err)
			}
		}
	})
}
