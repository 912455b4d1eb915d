package leases_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/locktest"
)

// A lost lease is not released before it can expire, since its work may still be
// stopping; then it is, also if a renewal landed late.
func TestManagerReleasesWhatIsLostAtItsExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		f := locktest.NewFaulty(t, store.Locker(), func(op string, n int, l holdfast.Lease) locktest.Fault {
			switch op {
			case locktest.OpRenew:
				return locktest.Fault{Late: 14 * time.Second}
			case locktest.OpRelease:
				if !locktest.IsHeld(t, store, "job") {
					t.Error("released when it had expired already") // the late renewals keep it
				}
			}
			return locktest.Fault{}
		})
		c := locktest.NewClient(t, f)
		led := locktest.NewLedger(t)
		m := locktest.NewManager(t, c, holdfast.WithObserver(led.Observe))
		start := time.Now()
		locktest.MustAdd(t, m, "job")
		synctest.Wait()
		h, _ := m.Hold("job")
		<-h.Context().Done()
		if d := time.Since(start); d < 24*time.Second || d > 25*time.Second || !errors.Is(h.Err(), holdfast.ErrLost) {
			t.Errorf("lost after %v: %v", d, h.Err())
		}
		time.Sleep(4900 * time.Millisecond)
		if f.Count(locktest.OpRelease) != 0 || f.Count(locktest.OpAcquire) != 1 {
			t.Errorf("%d releases and %d acquisitions before the expiry", f.Count(locktest.OpRelease), f.Count(locktest.OpAcquire))
		}
		time.Sleep(200 * time.Millisecond)
		if n := f.Count(locktest.OpRelease); n != 1 {
			t.Errorf("%d releases at the expiry", n)
		}
		if again, ok := m.Hold("job"); !ok || again.Token() <= h.Token() {
			t.Error("not acquired again")
		}
		if n := led.Count(holdfast.EventReleased); n != 0 {
			t.Errorf("%d told as released", n)
		}
	})
}

// A name that is managed again while it is being released is acquired again, and
// Unmanage returns when the release is done.
func TestManagerManagedAgainDuringRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := locktest.NewClient(t, locktest.NewFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
			switch {
			case op == locktest.OpRelease && n == 1:
				return locktest.Fault{Refuse: locktest.ErrInjected}
			case op == locktest.OpRelease:
				return locktest.Fault{Delay: 2 * time.Second}
			}
			return locktest.Fault{}
		}))
		led := locktest.NewLedger(t)
		m := locktest.NewManager(t, c, holdfast.WithObserver(led.Observe))
		locktest.MustAdd(t, m, "job")
		synctest.Wait()
		first, _ := m.Hold("job")
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
				t.Errorf("Unmanage: %v after %v", err, time.Since(start))
			}
		}
		time.Sleep(10 * time.Millisecond)
		if h, ok := m.Hold("job"); !ok || h.Token() <= first.Token() {
			t.Error("not acquired again")
		}
	})
}

// Whoever releases a manager's hold by itself lets others have it; the manager
// campaigns again.
func TestManagerHoldReleasedByItsUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		m := locktest.NewManager(t, locktest.NewClient(t, store.Locker()), holdfast.WithPollInterval(5*time.Second))
		locktest.MustAdd(t, m, "job")
		synctest.Wait()
		h, _ := m.Hold("job")
		other := locktest.NewClient(t, store.Locker())
		got := make(chan *holdfast.Hold, 1)
		go func() { got <- locktest.MustLock(t, other, "job") }()
		synctest.Wait()
		if err := h.Release(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		next := <-got
		time.Sleep(time.Minute)
		if err := next.Release(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if h, ok := m.Hold("job"); !ok || h.Token() <= next.Token() {
			t.Error("the manager did not campaign again")
		}
	})
}

// Thousands of names end in doubt, as in an outage: they are cleaned up a bounded
// number at a time, without a goroutine for each, and during Shutdown without delay.
func TestManagerThousandsInDoubt(t *testing.T) {
	for _, shut := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			busy := locktest.NewCallGauge(locktest.NewFaulty(t, store.Locker(), func(op string, _ int, _ holdfast.Lease) locktest.Fault {
				if op == locktest.OpAcquire {
					return locktest.Fault{Lose: locktest.ErrInjected}
				}
				return locktest.Fault{}
			}), 4*time.Millisecond)
			c := locktest.NewClient(t, busy)
			m := locktest.NewManager(t, c, holdfast.WithPollInterval(time.Hour))
			names := locktest.Names("n", 1000)
			locktest.MustAdd(t, m, names...)
			time.Sleep(time.Second)
			start := time.Now()
			if shut {
				if err := c.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
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
			if n := busy.Highest(locktest.OpRelease); n > 32 {
				t.Errorf("shutdown %v: %d releases at once", shut, n)
			}
		})
	}
}

// Shutdown releases thousands of leases, a bounded number at a time.
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
		if err := c.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if !errors.Is(h.Err(), holdfast.ErrClosed) {
			t.Errorf("Err: %v", h.Err())
		}
		for _, name := range names {
			if locktest.IsHeld(t, store, name) {
				t.Fatalf("%q is held", name)
			}
		}
		if n := busy.Highest(locktest.OpRelease); n > 32 {
			t.Errorf("%d releases at once", n)
		}
	})
}
