package leases_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/leases"
)

// An outage that is shorter than the TTL costs nothing; a longer one is told as a loss of
// every lease before it can expire, and when it is over, all are acquired again.
func TestManagerOutage(t *testing.T) {
	for _, long := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			var mu sync.Mutex
			down := false
			f := locktest.NewFaulty(t, store.Locker(), func(string, int, holdfast.Lease) locktest.Fault {
				mu.Lock()
				defer mu.Unlock()
				return locktest.Fault{Hang: down}
			})
			set := func(v bool) { mu.Lock(); down = v; mu.Unlock() }
			names := locktest.Names("n", 50)
			led := locktest.NewLedger(t)
			lostHeld := 0
			c := locktest.NewClient(t, f)
			m := locktest.NewManager(t, c, holdfast.WithObserver(led.Observe), holdfast.WithObserver(func(e holdfast.Event) {
				if e.Type == holdfast.EventLost && locktest.IsHeld(t, store, e.Name) {
					lostHeld++
				}
			}))
			locktest.MustAdd(t, m, names...)
			time.Sleep(9 * time.Second)
			set(true)
			if !long {
				time.Sleep(13 * time.Second)
				set(false)
				time.Sleep(time.Minute)
				if n := led.Count(holdfast.EventLost); n != 0 || len(m.Leases()) != len(names) {
					t.Errorf("%d leases were lost in an outage shorter than the TTL", n)
				}
				return
			}
			time.Sleep(time.Minute)
			if n := led.Count(holdfast.EventLost); n != len(names) || lostHeld != n || len(m.Leases()) != 0 {
				t.Errorf("%d leases lost, %d of them before the expiry, %d held", n, lostHeld, len(m.Leases()))
			}
			set(false)
			time.Sleep(time.Minute)
			if n := len(m.Leases()); n != len(names) {
				t.Errorf("%d of %d names are held again", n, len(names))
			}
		})
	}
}

// A lease that is broken is lost at once, and campaigned for again; one that an
// outsider took is waited for.
func TestManagerLosesToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := locktest.NewClient(t, store.Locker())
		led := locktest.NewLedger(t)
		m := locktest.NewManager(t, c, holdfast.WithObserver(led.Observe))
		locktest.MustAdd(t, m, "job", "other")
		synctest.Wait()
		first, _ := m.Hold("job")
		raw := store.Locker()
		if err := raw.Capabilities().Breaker.BreakNow(t.Context(), "job"); err != nil {
			t.Fatal(err)
		}
		thief := locktest.MustTryLock(t, locktest.NewClient(t, raw), "job")
		time.Sleep(20 * time.Second)
		if _, ok := m.Hold("job"); ok || !errors.Is(first.Err(), holdfast.ErrLost) {
			t.Errorf("not lost: %v", first.Err())
		}
		if err := thief.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the watcher tells
		if h, ok := m.Hold("job"); !ok || h.Token() <= thief.Token() {
			t.Error("not acquired again")
		}
		if _, ok := m.Hold("other"); !ok || led.Count(holdfast.EventLost) != 1 {
			t.Errorf("%d lost", led.Count(holdfast.EventLost))
		}
	})
}

// Names whose calls hang or fail delay neither the acquisition, nor the renewal, nor the
// release of the others; and they are told of with every try.
func TestManagerFailingNamesDelayNobody(t *testing.T) {
	for name, ft := range map[string]locktest.Fault{"hang": {Hang: true}, "fail": {Refuse: locktest.ErrInjected},
		"foreign": {Refuse: driver.Invalid("record", "foreign", "ours")}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := locktest.NewFaulty(t, memory.New(), func(op string, _ int, l holdfast.Lease) locktest.Fault {
					if strings.HasPrefix(l.Name, "bad") {
						return ft
					}
					return locktest.Fault{Delay: 4 * time.Millisecond}
				})
				c := locktest.NewClient(t, f)
				led := locktest.NewLedger(t)
				m := locktest.NewManager(t, c, holdfast.WithObserver(led.Observe), holdfast.WithPollInterval(5*time.Second))
				locktest.MustAdd(t, m, locktest.Names("bad", 100)...)
				time.Sleep(2 * time.Minute)
				good := locktest.Names("good", 1000)
				start := time.Now()
				locktest.MustAdd(t, m, good...)
				for len(m.Leases()) < len(good) && time.Since(start) < time.Minute {
					time.Sleep(10 * time.Millisecond)
				}
				if d := time.Since(start); d > time.Second {
					t.Errorf("1000 good names were acquired in %v", d)
				}
				before := led.Count(holdfast.EventError)
				time.Sleep(2 * time.Minute)
				if n := led.Count(holdfast.EventError) - before; n < 100 {
					t.Errorf("%d errors were told of 100 failing names in two minutes", n)
				}
				start = time.Now()
				locktest.MustRemove(t, m, good...)
				if d := time.Since(start); d > time.Second {
					t.Errorf("1000 good names were released in %v", d)
				}
				if n := led.Count(holdfast.EventLost); n != 0 {
					t.Errorf("%d were lost", n)
				}
			})
		})
	}
}

// Releases that hang delay no other release for long, and are named by Close.
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
		if err == nil || !strings.Contains(err.Error(), `"bad00000"`) || !strings.Contains(err.Error(), "30 more") {
			t.Errorf("Close: %v", err)
		}
	})
}

// Whatever becomes of an attempt that is under way when its name is unmanaged: the name
// is free soon, and no lease is kept.
func TestManagerUnmanageDuringAcquire(t *testing.T) {
	for name, ft := range map[string]locktest.Fault{
		"slow": {Delay: time.Second}, "refused": {Refuse: locktest.ErrInjected}, "reply lost": {Lose: locktest.ErrInjected},
		"hung": {Hang: true}, "lands later": {Late: 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			for at := time.Duration(0); at < 5*time.Second; at += 250 * time.Millisecond {
				synctest.Test(t, func(t *testing.T) {
					store := memory.NewStore()
					c := locktest.NewClient(t, locktest.NewFaulty(t, store.Locker(), func(op string, n int, l holdfast.Lease) locktest.Fault {
						if op == locktest.OpAcquire {
							return ft
						}
						return locktest.Fault{Delay: 20 * time.Millisecond}
					}))
					led := locktest.NewLedger(t)
					m := locktest.NewManager(t, c, holdfast.WithObserver(led.Observe))
					locktest.MustAdd(t, m, "job")
					time.Sleep(at)
					start := time.Now()
					locktest.MustRemove(t, m, "job")
					if d := time.Since(start); d > 4*time.Second {
						t.Errorf("at %v: Unmanage took %v", at, d)
					}
					if len(m.Leases()) != 0 {
						t.Errorf("at %v: held", at)
					}
					time.Sleep(15 * time.Second) // a late request, and the longest pause of a clean-up
					if locktest.IsHeld(t, store, "job") {
						t.Errorf("at %v: the name is not free", at)
					}
				})
			}
		})
	}
}

// Shutdown and Close at any moment of a busy manager's life: nothing stays held, and
// nothing is acquired afterwards.
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
					t.Errorf("at %v, shutdown %v: observers believe in %d leases", at, shut, len(led.Held))
				}
			})
		}
	}
}

// While looks fail, waiting names are told of, and not asked for one by one: that would
// fare no better, and there are thousands.
func TestManagerFailingLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		holder := locktest.NewManager(t, locktest.NewClient(t, store.Locker()))
		names := locktest.Names("n", 200)
		locktest.MustAdd(t, holder, names...)
		synctest.Wait()
		var fails atomic.Bool
		f := locktest.NewFaulty(t, store.Locker(), func(op string, _ int, _ holdfast.Lease) locktest.Fault {
			if op == locktest.OpInspect && fails.Load() {
				return locktest.Fault{Refuse: locktest.ErrInjected}
			}
			return locktest.Fault{}
		})
		led := locktest.NewLedger(t)
		m := locktest.NewManager(t, locktest.NewClient(t, f), holdfast.WithObserver(led.Observe), holdfast.WithPollInterval(5*time.Second))
		locktest.MustAdd(t, m, names...)
		time.Sleep(9 * time.Second) // the holders' time is 30 s, renewed every 10
		before := f.Count(locktest.OpAcquire)
		fails.Store(true)
		time.Sleep(15 * time.Second)
		if n := f.Count(locktest.OpAcquire) - before; n != 0 {
			t.Errorf("%d attempts while looks failed", n)
		}
		if n := led.Count(holdfast.EventError); n < len(names) {
			t.Errorf("%d errors were told", n)
		}
		fails.Store(false)
		if err := holder.Close(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		if n := len(m.Leases()); n != len(names) {
			t.Errorf("%d of %d names are held", n, len(names))
		}
	})
}
