package holdfast_test

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
			f := newFaulty(t, store.Locker(), func(string, int, holdfast.Lease) fault {
				mu.Lock()
				defer mu.Unlock()
				return fault{hang: down}
			})
			set := func(v bool) { mu.Lock(); down = v; mu.Unlock() }
			names := namesOf("n", 50)
			led := newLedger(t)
			lostHeld := 0
			c := newClient(t, f)
			m := newManager(t, c, holdfast.WithObserver(led.observe), holdfast.WithObserver(func(e holdfast.Event) {
				if e.Type == holdfast.EventLost && isHeld(t, store, e.Name) {
					lostHeld++
				}
			}))
			mustManage(t, m, names...)
			time.Sleep(9 * time.Second)
			set(true)
			if !long {
				time.Sleep(13 * time.Second)
				set(false)
				time.Sleep(time.Minute)
				if n := led.count(holdfast.EventLost); n != 0 || len(m.Leases()) != len(names) {
					t.Errorf("%d leases were lost in an outage shorter than the TTL", n)
				}
				return
			}
			time.Sleep(time.Minute)
			if n := led.count(holdfast.EventLost); n != len(names) || lostHeld != n || len(m.Leases()) != 0 {
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
		c := newClient(t, store.Locker())
		led := newLedger(t)
		m := newManager(t, c, holdfast.WithObserver(led.observe))
		mustManage(t, m, "job", "other")
		synctest.Wait()
		first, _ := m.Hold("job")
		raw := store.Locker()
		if err := raw.Capabilities().Breaker.BreakNow(t.Context(), "job"); err != nil {
			t.Fatal(err)
		}
		thief := mustTryLock(t, newClient(t, raw), "job")
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
		if _, ok := m.Hold("other"); !ok || led.count(holdfast.EventLost) != 1 {
			t.Errorf("%d lost", led.count(holdfast.EventLost))
		}
	})
}

// Names whose calls hang or fail delay neither the acquisition, nor the renewal, nor the
// release of the others; and they are told of with every try.
func TestManagerFailingNamesDelayNobody(t *testing.T) {
	for name, ft := range map[string]fault{"hang": {hang: true}, "fail": {refuse: errInjected},
		"foreign": {refuse: driver.Invalid("record", "foreign", "ours")}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFaulty(t, memory.New(), func(op string, _ int, l holdfast.Lease) fault {
					if strings.HasPrefix(l.Name, "bad") {
						return ft
					}
					return fault{delay: 4 * time.Millisecond}
				})
				c := newClient(t, f)
				led := newLedger(t)
				m := newManager(t, c, holdfast.WithObserver(led.observe), holdfast.WithPollInterval(5*time.Second))
				mustManage(t, m, namesOf("bad", 100)...)
				time.Sleep(2 * time.Minute)
				good := namesOf("good", 1000)
				start := time.Now()
				mustManage(t, m, good...)
				for len(m.Leases()) < len(good) && time.Since(start) < time.Minute {
					time.Sleep(10 * time.Millisecond)
				}
				if d := time.Since(start); d > time.Second {
					t.Errorf("1000 good names were acquired in %v", d)
				}
				before := led.count(holdfast.EventError)
				time.Sleep(2 * time.Minute)
				if n := led.count(holdfast.EventError) - before; n < 100 {
					t.Errorf("%d errors were told of 100 failing names in two minutes", n)
				}
				start = time.Now()
				mustUnmanage(t, m, good...)
				if d := time.Since(start); d > time.Second {
					t.Errorf("1000 good names were released in %v", d)
				}
				if n := led.count(holdfast.EventLost); n != 0 {
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
		f := newFaulty(t, store.Locker(), func(op string, n int, l holdfast.Lease) fault {
			if op == opRelease && strings.HasPrefix(l.Name, "bad") {
				return fault{hang: true}
			}
			return fault{delay: 4 * time.Millisecond}
		})
		c := newClient(t, f)
		m := newManager(t, c)
		good := namesOf("good", 1000)
		mustManage(t, m, namesOf("bad", 40)...)
		mustManage(t, m, good...)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := m.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "40 leases") {
			t.Errorf("Close that ran out of time: %v", err)
		}
		for _, name := range good {
			if isHeld(t, store, name) {
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
	for name, ft := range map[string]fault{
		"slow": {delay: time.Second}, "refused": {refuse: errInjected}, "reply lost": {lose: errInjected},
		"hung": {hang: true}, "lands later": {late: 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			for at := time.Duration(0); at < 5*time.Second; at += 250 * time.Millisecond {
				synctest.Test(t, func(t *testing.T) {
					store := memory.NewStore()
					c := newClient(t, newFaulty(t, store.Locker(), func(op string, n int, l holdfast.Lease) fault {
						if op == opAcquire {
							return ft
						}
						return fault{delay: 20 * time.Millisecond}
					}))
					led := newLedger(t)
					m := newManager(t, c, holdfast.WithObserver(led.observe))
					mustManage(t, m, "job")
					time.Sleep(at)
					start := time.Now()
					mustUnmanage(t, m, "job")
					if d := time.Since(start); d > 4*time.Second {
						t.Errorf("at %v: Unmanage took %v", at, d)
					}
					if len(m.Leases()) != 0 {
						t.Errorf("at %v: held", at)
					}
					time.Sleep(15 * time.Second) // a late request, and the longest pause of a clean-up
					if isHeld(t, store, "job") {
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
				f := newFaulty(t, store.Locker(), func(_ string, n int, _ holdfast.Lease) fault {
					switch n % 7 {
					case 0:
						return fault{lose: errInjected}
					case 1:
						return fault{refuse: errInjected}
					}
					return fault{delay: 30 * time.Millisecond}
				})
				f.watcher = true
				c := newClient(t, f)
				led := newLedger(t)
				m := newManager(t, c, holdfast.WithObserver(led.observe), leases.WithParallel(4))
				names := namesOf("n", 100)
				mustManage(t, m, names...)
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
				acquired := f.count(opAcquire)
				time.Sleep(45 * time.Second)
				for _, name := range names {
					if isHeld(t, store, name) {
						t.Errorf("at %v, shutdown %v: %q is held", at, shut, name)
					}
				}
				if n := f.count(opAcquire); n != acquired {
					t.Errorf("at %v, shutdown %v: %d acquisitions afterwards", at, shut, n-acquired)
				}
				if len(led.held) != 0 {
					t.Errorf("at %v, shutdown %v: observers believe in %d leases", at, shut, len(led.held))
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
		holder := newManager(t, newClient(t, store.Locker()))
		names := namesOf("n", 200)
		mustManage(t, holder, names...)
		synctest.Wait()
		var fails atomic.Bool
		f := newFaulty(t, store.Locker(), func(op string, _ int, _ holdfast.Lease) fault {
			if op == opLook && fails.Load() {
				return fault{refuse: errInjected}
			}
			return fault{}
		})
		led := newLedger(t)
		m := newManager(t, newClient(t, f), holdfast.WithObserver(led.observe), holdfast.WithPollInterval(5*time.Second))
		mustManage(t, m, names...)
		time.Sleep(9 * time.Second) // the holders' time is 30 s, renewed every 10
		before := f.count(opAcquire)
		fails.Store(true)
		time.Sleep(15 * time.Second)
		if n := f.count(opAcquire) - before; n != 0 {
			t.Errorf("%d attempts while looks failed", n)
		}
		if n := led.count(holdfast.EventError); n < len(names) {
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
