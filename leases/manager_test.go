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
	"github.com/holdfast-go/holdfast/leases"
	"github.com/holdfast-go/holdfast/test/locktest"
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
		locktest.MustRemove(t, m, "a", "a", "never added")
		if !errors.Is(h.Err(), holdfast.ErrReleased) || locktest.IsHeld(t, store, "a") {
			t.Errorf("after Remove: %v, held: %v", h.Err(), locktest.IsHeld(t, store, "a"))
		}
		if _, ok := m.Hold("a"); ok || len(m.Leases()) != 2 {
			t.Errorf("after Remove: %v", m.Leases())
		}
		locktest.MustAdd(t, m, "a")
		synctest.Wait()
		if again, ok := m.Hold("a"); !ok || again.Token() <= h.Token() {
			t.Errorf("added again: %v %v", again, ok)
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
			t.Errorf("Add after Close: %v", err)
		}
		locktest.MustRemove(t, m, "a")
		synctest.Wait()
		if a, r := led.Count(holdfast.EventAcquired), led.Count(holdfast.EventReleased); a != 4 || r != 4 {
			t.Errorf("%d acquired, %d released", a, r)
		}
	})
}

func TestManagerThousandsComeAndGo(t *testing.T) {
	t.Run("releases in batches", func(t *testing.T) { thousandsComeAndGo(t, false, 4) })
	t.Run("releases one by one", func(t *testing.T) { thousandsComeAndGo(t, true, 32) })
}

func thousandsComeAndGo(t *testing.T, oneByOne bool, releases int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		busy := locktest.NewCallGauge(store.Locker(), 4*time.Millisecond)
		busy.OneByOne = oneByOne
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
		if a, r := busy.Highest(driver.MethodTryAcquire), busy.Highest(driver.MethodRelease); a != 8 || r != releases {
			t.Errorf("at once: %d acquisitions, %d releases", a, r)
		}
		synctest.Wait()
		if a, r := led.Count(holdfast.EventAcquired), led.Count(holdfast.EventReleased); a != 2*len(names) || r != a {
			t.Errorf("%d acquired, %d released", a, r)
		}
	})
}

// Of two managers with the same names, one holds each name at a time, and the other acquires it when
// it is released. An observer of EventAcquired finds the hold.
func TestManagersCompete(t *testing.T) {
	for _, mode := range []string{"polling", "reading", "watching"} {
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
					if e.Type != holdfast.EventAcquired {
						return
					}
					h, ok := m.Hold(e.Name) // no name is removed at the instant of its grant
					if !ok || h.Token() != e.Token {
						t.Errorf("%s: %v, and the hold is %v", mode, e, h)
						return
					}
					check.Enter(h.Context(), h.Name(), h.Token())
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
			for _, m := range slices.Backward(managers) { // the holder last: the other would acquire all, and lose them at once
				if err := m.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// After Shutdown or Close, at any moment of a busy manager's life, nothing stays held and nothing is
// acquired.
func TestManagerEndsAtAnyMoment(t *testing.T) {
	for _, shut := range []bool{false, true} {
		for at := time.Duration(0); at < 2*time.Second; at += 111 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				store := memory.NewStore()
				f := locktest.NewFaulty(t, store.Locker(), func(_ string, n int, _ holdfast.Lease) locktest.Fault {
					switch n % 7 {
					case 0:
						return locktest.Fault{Lose: locktest.ErrInjected}
					case 1:
						return locktest.Fault{Refuse: locktest.ErrInjected}
					}
					return locktest.Fault{Delay: 30 * time.Millisecond}
				})
				f.Watcher = true
				c := locktest.NewClient(t, f)
				led := locktest.NewLedger(t)
				m := locktest.NewManager(t, c, holdfast.WithObserver(led.Observe), leases.WithParallel(4))
				names := locktest.Names("n", 100)
				locktest.MustAdd(t, m, names...)
				go func() {
					for i := range names {
						_ = m.Remove(t.Context(), names[i])
						_ = m.Add(names[i])
					}
				}()
				time.Sleep(at)
				end := m.Close
				if shut {
					end = c.Shutdown
				}
				if err := end(t.Context()); err != nil {
					t.Errorf("at %v, shutdown %v: %v", at, shut, err)
				}
				if err := m.Close(t.Context()); err != nil {
					t.Errorf("at %v, shutdown %v: Close: %v", at, shut, err)
				}
				acquired := f.Count(locktest.OpAcquire)
				time.Sleep(45 * time.Second)
				for _, name := range names {
					if locktest.IsHeld(t, store, name) {
						t.Errorf("at %v, shutdown %v: %q is held", at, shut, name)
					}
				}
				if n := f.Count(locktest.OpAcquire); n != acquired {
					t.Errorf("at %v, shutdown %v: %d acquisitions afterwards", at, shut, n-acquired)
				}
				if len(led.Held) != 0 {
					t.Errorf("at %v, shutdown %v: by the events %d leases are held", at, shut, len(led.Held))
				}
			})
		}
	}
}

// An observer that is slow for a while misses no event of thousands of names.
func TestManagerReportsEveryName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		led := locktest.NewLedger(t)
		slow := func(e holdfast.Event) {
			time.Sleep(10 * time.Millisecond)
			led.Observe(e) // reports dropped events as errors
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

func TestManagerInvalid(t *testing.T) {
	c := locktest.NewClient(t, memory.New())
	for name, opt := range map[string]leases.Option{
		"parallel 0": leases.WithParallel(0), "parallel 1025": leases.WithParallel(1025), "nil option": nil,
		"nil observer": holdfast.WithObserver(nil), "TTL": holdfast.WithTTL(-time.Second),
		"fn": leases.WithFunc(nil), "Backoff": leases.WithRestart(holdfast.Backoff{Initial: time.Second}),
	} {
		var invalid *holdfast.InvalidError
		_, err := leases.New(c, opt)
		if !errors.As(err, &invalid) || (name == "fn" || name == "Backoff") && invalid.Field != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := leases.New(nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("no client: %v", err)
	}
	m := locktest.NewManager(t, c, leases.WithParallel(1024))
	for _, name := range []string{"", "job#2"} { // a slot of "job" has the second
		if err := m.Add("ok", name); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("the name %q: %v", name, err)
		}
	}
	if len(m.Leases()) != 0 {
		t.Error("an invalid call did something")
	}
	locktest.ShutDown(t, c)
	if _, err := leases.New(c); !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("after Shutdown: %v", err)
	}
	if err := m.Add("late"); !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("Add after Shutdown: %v", err)
	}
	if err := m.Close(t.Context()); err != nil {
		t.Errorf("Close after Shutdown: %v", err)
	}
}
