package leases_test

import (
	"strings"
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

// A manager that waits for a thousand names asks for each a few times, and then reads all records
// together.
func TestManagerWaitsInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		names := locktest.Names("n", 1000)
		holder := locktest.NewManager(t, locktest.NewClient(t, store.Locker()))
		locktest.MustManageAll(t, holder, names)
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
			t.Errorf("all were acquired after %v", d)
		}
	})
}

// While reads fail, the failures are reported for each waiting name, and no attempts are made for
// them one by one, because they would fail too.
func TestManagerFailingReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		holder := locktest.NewManager(t, locktest.NewClient(t, store.Locker()))
		names := locktest.Names("n", 200)
		locktest.MustManageAll(t, holder, names)
		var fails atomic.Bool
		f := locktest.NewFaulty(t, store.Locker(), locktest.EachWhile(locktest.OpInspect, &fails, locktest.Fault{Refuse: locktest.ErrInjected}))
		led := locktest.NewLedger(t)
		m := locktest.NewManager(t, locktest.NewClient(t, f), holdfast.WithObserver(led.Observe), holdfast.WithPollInterval(5*time.Second))
		locktest.MustAdd(t, m, names...)
		time.Sleep(9 * time.Second) // the holders' time is 30 s, renewed every 10
		before := f.Count(locktest.OpAcquire)
		fails.Store(true)
		time.Sleep(15 * time.Second)
		if n := f.Count(locktest.OpAcquire) - before; n != 0 {
			t.Errorf("%d attempts while reads failed", n)
		}
		if n := led.Count(holdfast.EventError); n < len(names) {
			t.Errorf("%d errors were reported", n)
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

// Names whose calls hang, never return or fail delay no acquisition, renewal or release of others. Every attempt is
// reported.
func TestManagerFailingNamesDelayNoOther(t *testing.T) {
	for name, ft := range map[string]locktest.Fault{"hang": {Hang: true}, "fail": {Refuse: locktest.ErrInjected},
		"foreign":      {Refuse: driver.Invalid("record", "foreign", "ours")},
		"never return": {Delay: time.Hour, IgnoreContext: true, Refuse: locktest.ErrInjected}} {
		locktest.Bubble(t, name, func(t *testing.T) {
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
			if n := led.Count(holdfast.EventError) - before; n < 100 && !ft.IgnoreContext { // those calls are still under way
				t.Errorf("%d errors were reported of 100 failing names in two minutes", n)
			}
			start = time.Now()
			locktest.MustRemove(t, m, good...)
			if d := time.Since(start); d > time.Second {
				t.Errorf("1000 good names were released in %v", d)
			}
			if n := led.Count(holdfast.EventLost); n != 0 {
				t.Errorf("%d were lost", n)
			}
			if ft.IgnoreContext {
				time.Sleep(2 * time.Hour) // what is under way ends
			}
		})
	}
}

// A name that is removed during an attempt is free soon, whatever the outcome of the attempt.
func TestManagerRemoveDuringAnAttempt(t *testing.T) {
	for name, ft := range map[string]locktest.Fault{
		"slow": {Delay: time.Second}, "refused": {Refuse: locktest.ErrInjected}, "reply lost": {Lose: locktest.ErrInjected},
		"hung": {Hang: true}, "lands later": {Late: 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			for at := time.Duration(0); at < 5*time.Second; at += 250 * time.Millisecond {
				synctest.Test(t, func(t *testing.T) {
					store := memory.NewStore()
					c := locktest.FaultyClient(t, store.Locker(), func(op string, n int, l holdfast.Lease) locktest.Fault {
						if op == locktest.OpAcquire {
							return ft
						}
						return locktest.Fault{Delay: 20 * time.Millisecond}
					})
					led := locktest.NewLedger(t)
					m := locktest.NewManager(t, c, holdfast.WithObserver(led.Observe))
					locktest.MustAdd(t, m, "job")
					time.Sleep(at)
					start := time.Now()
					locktest.MustRemove(t, m, "job")
					if d := time.Since(start); d > 4*time.Second {
						t.Errorf("at %v: Remove took %v", at, d)
					}
					if len(m.Leases()) != 0 {
						t.Errorf("at %v: held", at)
					}
					time.Sleep(15 * time.Second) // a late request, and the longest backoff of a cleanup
					if locktest.IsHeld(t, store, "job") {
						t.Errorf("at %v: the name is not free", at)
					}
				})
			}
		})
	}
}

// After reads that failed for a while, a wake-up is followed again.
func TestManagerWokenAfterFailedReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		other := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
		var f *locktest.Faulty
		f = locktest.NewFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
			if op == locktest.OpInspect && n > 1 && f.Count(locktest.OpAcquire) < 2 {
				return locktest.Fault{Refuse: locktest.ErrInjected}
			}
			return locktest.Fault{}
		})
		f.Watcher = true
		m := locktest.NewManager(t, locktest.NewClient(t, f))
		locktest.MustAdd(t, m, "job")
		for f.Count(locktest.OpAcquire) < 2 { // the holder has renewed; that was not seen
			time.Sleep(time.Millisecond)
		}
		time.Sleep(10 * time.Millisecond)
		reads := f.Count(locktest.OpInspect)
		locktest.Release(t, other)
		time.Sleep(10 * time.Millisecond)
		if _, ok := m.Hold("job"); !ok {
			t.Errorf("not acquired when the Watcher reported the release; %d reads before", reads)
		}
	})
}

// restlessWatcher is a Watcher that wakes every waiter all the time.
type restlessWatcher struct {
	mu    sync.Mutex
	wakes []func(driver.Wakeup)
}

func (a *restlessWatcher) Wake(_ string, _ driver.WaiterID, wake func(driver.Wakeup)) (stop func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wakes = append(a.wakes, wake)
	return func() {}
}

func (a *restlessWatcher) wakeAll(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		a.mu.Lock()
		wakes := a.wakes
		a.mu.Unlock()
		for _, wake := range wakes {
			wake(driver.Wakeup{})
		}
	}
}

// restless is a Locker with a restlessWatcher.
type restless struct {
	*locktest.Faulty
	watcher restlessWatcher
}

func (a *restless) Capabilities() driver.Capabilities {
	capabilities := a.Faulty.Capabilities()
	capabilities.Waker = &a.watcher
	return capabilities
}

// Nothing is sent during the backoff after a failure, however often the Watcher wakes the manager.
func TestManagerBacksOffDespiteWakeUps(t *testing.T) {
	for _, op := range []string{locktest.OpAcquire, locktest.OpInspect} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
			var fails atomic.Bool
			ft := locktest.Fault{Refuse: locktest.ErrInjected, Delay: 20 * time.Millisecond} // the Watcher wakes the manager meanwhile, too
			f := locktest.NewFaulty(t, store.Locker(), locktest.EachWhile(op, &fails, ft))
			f.NoBatchReads = op == locktest.OpAcquire
			l := &restless{Faulty: f}
			m := locktest.NewManager(t, locktest.NewClient(t, l), holdfast.WithPollInterval(time.Minute))
			locktest.MustAdd(t, m, "job")
			synctest.Wait()
			fails.Store(true)
			l.watcher.wakeAll(20 * time.Second) // backoffs of up to 5 s
			if n := f.Count(locktest.OpAcquire) + f.Count(locktest.OpInspect); n < 4 || n > 40 {
				t.Errorf("%s fails: %d calls in 20 s", op, n)
			} else {
				t.Logf("%s fails: %d calls in 20 s", op, n)
			}
		})
	}
}

// waitInQueue has a manager wait for a lock in the Queue that it returns.
func waitInQueue(t *testing.T) *hintedLocker {
	store := memory.NewStore()
	locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "a", holdfast.WithTTL(time.Hour))
	q := &hintedLocker{Locker: store.Locker(), began: true}
	locktest.MustAdd(t, locktest.NewManager(t, locktest.NewClient(t, q)), "a")
	return q
}

// A release wakes the second waiter again, since its first answer was lost. The waiter still asks when
// its turn comes, and not a turn after the second hint.
func TestManagerKeepsItsTurnWhenHintedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := waitInQueue(t)
		synctest.Wait()
		before, turn := len(q.at), driver.Turn(2)
		hinted := time.Now()
		q.wake(driver.Wakeup{After: turn})
		time.Sleep(turn / 2)
		q.wake(driver.Wakeup{After: turn})
		time.Sleep(turn)
		synctest.Wait()
		if len(q.at) != before+1 || q.at[before].Sub(hinted) != turn {
			t.Errorf("%d requests after the hint, want one after %v: %v", len(q.at)-before, turn, q.at[before:])
		}
	})
}

// The end of waking does not postpone a turn that a hint has announced.
func TestManagerKeepsItsTurnWhenWakingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := waitInQueue(t)
		time.Sleep(time.Minute) // polls are rare now
		synctest.Wait()
		q.wake(driver.Wakeup{}) // and the next one is far
		synctest.Wait()
		before, turn := len(q.at), driver.Turn(2)
		hinted := time.Now()
		q.wake(driver.Wakeup{After: turn})
		q.wake(driver.Wakeup{Kind: driver.WakingEnded})
		time.Sleep(turn)
		synctest.Wait()
		if len(q.at) == before || q.at[before].Sub(hinted) > turn {
			t.Errorf("requests %v after a hint at %v, want one after %v", q.at[before:], hinted, turn)
		}
	})
}

// The Queue can wake the waiter no longer. The manager polls as often as without one.
func TestManagerPollsWhenWakingHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := waitInQueue(t)
		const minute = time.Minute
		time.Sleep(minute)
		synctest.Wait()
		woken := len(q.at)
		q.wake(driver.Wakeup{Kind: driver.WakingEnded})
		time.Sleep(minute)
		synctest.Wait()
		ended := len(q.at) - woken
		q.wake(driver.Wakeup{Kind: driver.WakingBegan, Ago: time.Hour})
		time.Sleep(minute)
		synctest.Wait()
		again := len(q.at) - woken - ended
		if woken > 5 || ended < 15 || again > 6 {
			t.Errorf("in a minute each: %d requests while the Queue wakes, %d when it does not, %d when it does again", woken, ended, again)
		}
	})
}
