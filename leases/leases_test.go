package leases_test

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/leases"
)

func TestManagerKeepsNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := locktest.NewClient(t, store.Locker())
		led := locktest.NewLedger(t)
		m := locktest.NewManager(t, c, holdfast.WithObserver(led.Observe), holdfast.WithOwner("me"))
		locktest.MustAdd(t, m, "b", "a")
		locktest.MustAdd(t, m, "c", "a")
		time.Sleep(5 * time.Minute) // many renewals
		var names []string
		for _, l := range m.Leases() {
			names = append(names, l.Name)
			if l.Owner != "me" || l.Token == 0 || l.ID.IsZero() {
				t.Errorf("%v", l)
			}
		}
		if !slices.Equal(names, []string{"a", "b", "c"}) {
			t.Errorf("leases of %q", names)
		}
		h, ok := m.Hold("a")
		if !ok || h.Err() != nil || h.Name() != "a" {
			t.Fatalf("Hold: %v %v", h, ok)
		}
		locktest.MustRemove(t, m, "a", "a", "never managed")
		if !errors.Is(h.Err(), holdfast.ErrReleased) || locktest.IsHeld(t, store, "a") {
			t.Errorf("after Unmanage: %v, held: %v", h.Err(), locktest.IsHeld(t, store, "a"))
		}
		if _, ok := m.Hold("a"); ok || len(m.Leases()) != 2 {
			t.Errorf("after Unmanage: %v", m.Leases())
		}
		locktest.MustAdd(t, m, "a")
		synctest.Wait()
		if again, ok := m.Hold("a"); !ok || again.Token() <= h.Token() {
			t.Errorf("managed again: %v %v", again, ok)
		}
		for range 2 {
			if err := m.Close(t.Context()); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
		for _, name := range []string{"a", "b", "c"} {
			if locktest.IsHeld(t, store, name) {
				t.Errorf("%q is held after Close", name)
			}
		}
		if err := m.Add("d"); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Manage after Close: %v", err)
		}
		locktest.MustRemove(t, m, "a")
		synctest.Wait()
		if a, r := led.Count(holdfast.EventAcquired), led.Count(holdfast.EventReleased); a != 4 || r != 4 {
			t.Errorf("%d acquired, %d released", a, r)
		}
	})
}

// Whoever is told of an acquisition finds the hold.
func TestManagerHoldIsThereWhenAcquiredIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.NewClient(t, memory.New())
		var m *leases.LeaseManager
		found := 0
		m = locktest.NewManager(t, c, holdfast.WithObserver(func(e holdfast.Event) {
			if h, ok := m.Hold(e.Name); e.Type == holdfast.EventAcquired && ok && h.Token() == e.Token {
				found++
			}
		}))
		locktest.MustAdd(t, m, locktest.Names("n", 500)...)
		synctest.Wait()
		if found != 500 {
			t.Errorf("%d of 500 holds were found", found)
		}
	})
}

func TestManagerThousandsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		busy := locktest.NewCallGauge(store.Locker(), 4*time.Millisecond)
		c := locktest.NewClient(t, busy)
		led := locktest.NewLedger(t)
		m := locktest.NewManager(t, c, holdfast.WithObserver(led.Observe), leases.WithParallel(8))
		before := runtime.NumGoroutine()
		names := locktest.Names("n", 2000)
		for round := range 2 {
			var wg sync.WaitGroup
			for part := range slices.Chunk(names, 500) { // concurrent use
				wg.Go(func() { locktest.MustAdd(t, m, part...) })
			}
			wg.Wait()
			time.Sleep(2 * time.Second) // 2000 at 8 × 250 a second
			if n := len(m.Leases()); n != len(names) {
				t.Fatalf("round %d: %d leases", round, n)
			}
			if n := runtime.NumGoroutine() - before; n > 10 {
				t.Errorf("round %d: %d goroutines for %d leases", round, n, len(names))
			}
			for part := range slices.Chunk(names, 500) {
				wg.Go(func() { locktest.MustRemove(t, m, part...) })
			}
			wg.Wait()
			if n := len(m.Leases()); n != 0 {
				t.Errorf("round %d: %d leases are left", round, n)
			}
		}
		if a, r := busy.Highest(locktest.OpAcquire), busy.Highest(locktest.OpRelease); a != 8 || r != 32 {
			t.Errorf("at once: %d acquisitions, %d releases", a, r)
		}
		synctest.Wait()
		if a, r := led.Count(holdfast.EventAcquired), led.Count(holdfast.EventReleased); a != 2*len(names) || r != a {
			t.Errorf("%d acquired, %d released", a, r)
		}
	})
}

// Two managers want the same names: each name has one holder at a time, and the other
// gets it when it is given back.
func TestManagersCompete(t *testing.T) {
	for _, mode := range []string{"polling", "looking", "watching"} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			check := locktest.NewExclusive(t)
			names := locktest.Names("n", 100)
			var managers []*leases.LeaseManager
			for range 2 {
				f := locktest.NewFaulty(t, store.Locker(), nil)
				f.Watcher, f.NoBatchReads = mode == "watching", mode == "polling"
				var m *leases.LeaseManager
				m = locktest.NewManager(t, locktest.NewClient(t, f), holdfast.WithObserver(func(e holdfast.Event) {
					if h, ok := m.Hold(e.Name); e.Type == holdfast.EventAcquired && ok && h.Token() == e.Token {
						check.Enter(h.Context(), h.Name(), h.Token())
					}
				}))
				managers = append(managers, m)
				locktest.MustAdd(t, m, names...)
			}
			time.Sleep(20 * time.Second)
			for range 5 {
				if n := len(managers[0].Leases()) + len(managers[1].Leases()); n != len(names) {
					t.Errorf("%s: %d leases of %d names", mode, n, len(names))
				}
				for i, m := range managers {
					locktest.MustRemove(t, m, names...)
					time.Sleep(6 * time.Second)
					if n := len(managers[1-i].Leases()); n != len(names) {
						t.Errorf("%s: the other has %d of %d names", mode, n, len(names))
					}
					locktest.MustAdd(t, m, names...)
				}
			}
			for _, m := range managers {
				if err := m.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestManagerInvalid(t *testing.T) {
	c := locktest.NewClient(t, memory.New())
	for name, opt := range map[string]leases.Option{
		"parallel 0": leases.WithParallel(0), "parallel 2000": leases.WithParallel(2000), "nil option": nil,
		"nil observer": holdfast.WithObserver(nil), "TTL": holdfast.WithTTL(-time.Second),
	} {
		var invalid *holdfast.InvalidError
		if _, err := leases.New(c, opt); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := leases.New(nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("no client: %v", err)
	}
	m := locktest.NewManager(t, c)
	if err := m.Add("ok", ""); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("an empty name: %v", err)
	}
	if len(m.Leases()) != 0 {
		t.Error("an invalid call did something")
	}
	if err := c.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := leases.New(c); !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("after Shutdown: %v", err)
	}
	if err := m.Add("late"); !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("Manage after Shutdown: %v", err)
	}
	if err := m.Close(t.Context()); err != nil {
		t.Errorf("Close after Shutdown: %v", err)
	}
}

// An observer that is slow for a while misses nothing of thousands of names.
func TestManagerTellsOfEveryName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		led := locktest.NewLedger(t)
		slow := func(e holdfast.Event) {
			time.Sleep(10 * time.Millisecond)
			led.Observe(e) // notes what was dropped
		}
		c := locktest.NewClient(t, memory.New())
		m := locktest.NewManager(t, c, holdfast.WithObserver(slow))
		locktest.MustAdd(t, m, locktest.Names("n", 5000)...)
		time.Sleep(time.Second)
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Minute)
		if a, r := led.Count(holdfast.EventAcquired), led.Count(holdfast.EventReleased); a != 5000 || r != 5000 {
			t.Errorf("%d acquired, %d released", a, r)
		}
	})
}

// Who waits for a thousand names asks for each a few times, and then looks for all at once.
func TestManagerWaitsInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		names := locktest.Names("n", 1000)
		holder := locktest.NewManager(t, locktest.NewClient(t, store.Locker()))
		locktest.MustAdd(t, holder, names...)
		synctest.Wait()
		f := locktest.NewFaulty(t, store.Locker(), nil)
		f.Watcher = true
		m := locktest.NewManager(t, locktest.NewClient(t, f), holdfast.WithPollInterval(5*time.Second))
		locktest.MustAdd(t, m, names...)
		time.Sleep(time.Minute)
		if n := f.Count(locktest.OpAcquire); n > 1100 {
			t.Errorf("%d attempts at first", n)
		}
		before := f.Total()
		time.Sleep(5 * time.Minute)
		if n := f.Total() - before; n > 200 {
			t.Errorf("%d calls in five minutes in which nothing changed", n)
		}
		start := time.Now()
		if err := holder.Close(t.Context()); err != nil {
			t.Error(err)
		}
		for len(m.Leases()) < len(names) && time.Since(start) < time.Minute {
			time.Sleep(10 * time.Millisecond)
		}
		if d := time.Since(start); d > time.Second {
			t.Errorf("all were taken over after %v", d)
		}
	})
}

// A call that never returns keeps no place for good.
func TestManagerDeafBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFaulty(t, memory.New(), func(op string, n int, l holdfast.Lease) locktest.Fault {
			if l.Name < "n" {
				return locktest.Fault{Delay: time.Hour, IgnoreContext: true}
			}
			return locktest.Fault{}
		})
		m := locktest.NewManager(t, locktest.NewClient(t, f), leases.WithParallel(4))
		locktest.MustAdd(t, m, locktest.Names("deaf", 10)...)
		synctest.Wait()
		locktest.MustAdd(t, m, locktest.Names("n", 100)...)
		time.Sleep(time.Minute)
		if n := len(m.Leases()); n != 100 {
			t.Errorf("%d of 100 names are held beside 10 whose calls do not return", n)
		}
		locktest.MustRemove(t, m, locktest.Names("n", 100)...)
		time.Sleep(2 * time.Hour)
	})
}
