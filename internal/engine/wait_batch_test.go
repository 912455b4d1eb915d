package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/locktest"
)

func TestThousandNamesCostAFewCalls(t *testing.T) {
	for _, tt := range []struct {
		name    string
		names   int
		watcher bool
		poll    time.Duration
		most    int // calls a minute
	}{
		{"woken by a watcher", 1000, true, 15 * time.Second, 5},
		{"polling every 5 s", 300, false, 5 * time.Second, 15},
		{"polling once an hour", 300, true, time.Hour, 5}, // but for the end of the holder's time
	} {
		names := tt.names
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := locktest.NewWaiters(t, names, func(f *locktest.Faulty) { f.Watcher = tt.watcher }, holdfast.WithPollInterval(tt.poll))
				time.Sleep(time.Minute)
				// One attempt each at first, then looks: also at the moment when the watch
				// comes into effect, one for each as they come one after another.
				if n := c.Calls.Count(locktest.OpAcquire); n != names {
					t.Errorf("%d attempts at first", n)
				}
				before := c.Calls.Total()
				const minutes = 3
				time.Sleep(minutes * time.Minute)
				calls := c.Calls.Total() - before
				t.Logf("%.1f calls a minute", float64(calls)/minutes)
				if calls > tt.most*minutes || calls < minutes {
					t.Errorf("%d calls in %d minutes in which nothing happened", calls, minutes)
				}
				if n := c.Calls.Count(locktest.OpAcquire); n != names {
					t.Errorf("%d attempts where looks would do", n-names)
				}
				c.CheckTakeover()
				if n := c.Calls.Count(locktest.OpAcquire) - names; n > names+names/10 {
					t.Errorf("%d attempts for %d take-overs", n, names)
				}
			})
		})
	}
}

func TestWakeUpsAreFollowedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.NewWaiters(t, 100, func(*locktest.Faulty) {})
		time.Sleep(33 * time.Second)
		for name, h := range c.Holds {
			_ = h.Release(t.Context())
			synctest.Wait()
			c.Mu.Lock()
			if c.Granted[name] != time.Now() {
				t.Errorf("%s is not taken at once", name)
			}
			c.Mu.Unlock()
			time.Sleep(time.Second)
		}
		c.Wg.Wait()
	})
}

// What was freed between the first attempt and the moment when the watch came into
// effect is seen then.
func TestWatchInEffectIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gap := &locktest.LossyWatcher{}
		gap.Loses.Store(true)
		c := locktest.NewWaiters(t, 1, func(f *locktest.Faulty) { gap.Locker = f.Locker; f.Locker = gap }, holdfast.WithPollInterval(time.Hour))
		_ = c.Holds["job-0"].Release(t.Context())
		synctest.Wait()
		if len(c.Granted) != 0 {
			t.Fatal("woken although the watch is not in effect")
		}
		gap.WakeAll()
		synctest.Wait()
		if len(c.Granted) != 1 {
			t.Error("a release before the watch came into effect is not seen")
		}
		c.Wg.Wait()
	})
}

// A watch that is in effect again after a gap wakes everybody: one read tells all that
// there is nothing new, and those whose lock was freed in the gap take it.
func TestFloodOfWakeUpsIsReadTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const names = 500
		gap := &locktest.LossyWatcher{}
		c := locktest.NewWaiters(t, names, func(f *locktest.Faulty) {
			gap.Locker = f.Locker
			f.Locker = gap
			f.Faults = func(op string, _ int, _ holdfast.Lease) locktest.Fault {
				return map[string]locktest.Fault{locktest.OpInspect: {Delay: 5 * time.Millisecond}}[op]
			}
		})
		time.Sleep(time.Minute)
		before, looks := c.Calls.Count(locktest.OpAcquire), c.Calls.Count(locktest.OpInspect)
		gap.Loses.Store(true)
		for _, name := range []string{"job-3", "job-300"} {
			_ = c.Holds[name].Release(t.Context())
		}
		synctest.Wait()
		if len(c.Granted) != 0 {
			t.Fatal("woken in the gap")
		}
		gap.Loses.Store(false)
		gap.WakeAll()
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		if n := c.Calls.Count(locktest.OpAcquire) - before; n > 50 || len(c.Granted) != 2 {
			t.Errorf("%d attempts, %d granted", n, len(c.Granted))
		}
		if n := c.Calls.Count(locktest.OpInspect) - looks; n > 4 {
			t.Errorf("%d reads", n)
		}
		c.CheckTakeover("job-3", "job-300")
	})
}

// Those who wait ask themselves when looks fail, and take over in time, even if the call
// that looks never returns.
func TestLooksThatFail(t *testing.T) {
	for name, ft := range map[string]locktest.Fault{
		"refused": {Refuse: locktest.ErrInjected},
		"hung":    {Hang: true},
		"deaf":    {Delay: time.Hour, IgnoreContext: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := locktest.NewWaiters(t, 20, func(f *locktest.Faulty) {
					f.Faults = func(op string, _ int, _ holdfast.Lease) locktest.Fault {
						return map[string]locktest.Fault{locktest.OpInspect: ft}[op]
					}
				})
				before := c.Calls.Count(locktest.OpAcquire)
				time.Sleep(10 * time.Minute)
				if n := c.Calls.Count(locktest.OpAcquire) - before; n < 20*10*60/25 || n > 20*10*60/12 {
					t.Errorf("%d attempts in 10 minutes at a poll interval of 15 s", n)
				}
				c.CheckTakeover()
			})
		})
	}
}

func TestLooksEndWithTheirWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		locktest.MustLock(t, locktest.NewClient(t, store.Locker(), holdfast.WithOwner("web-3")), "job")
		f := locktest.NewFaulty(t, store.Locker(), func(op string, _ int, _ holdfast.Lease) locktest.Fault {
			return map[string]locktest.Fault{locktest.OpInspect: {Delay: time.Second}}[op]
		})
		c := locktest.NewClient(t, f)
		for _, wait := range []time.Duration{time.Millisecond, 5500 * time.Millisecond, time.Minute} { // before, during and after looks
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			_, err := c.Lock(ctx, "job")
			var held *holdfast.HeldError
			if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &held) || held.Record.Owner != "web-3" {
				t.Errorf("err = %v", err)
			}
			cancel()
			time.Sleep(time.Second)
			before := f.Total()
			time.Sleep(time.Minute)
			if f.Total() != before {
				t.Error("there are looks although nobody waits")
			}
		}
	})
}

func TestShutdownEndsLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.NewWaiters(t, 50, func(f *locktest.Faulty) {
			f.Watcher = false
			f.Faults = func(op string, _ int, _ holdfast.Lease) locktest.Fault {
				return map[string]locktest.Fault{locktest.OpInspect: {Hang: true}}[op]
			}
		}, holdfast.WithPollInterval(time.Second))
		time.Sleep(time.Second) // a look is under way
		start := time.Now()
		if err := c.Client.Shutdown(t.Context()); err != nil || time.Since(start) != 0 {
			t.Errorf("Shutdown took %v: %v", time.Since(start), err)
		}
		c.Wg.Wait()
		if len(c.Granted) != 0 {
			t.Errorf("%d were granted", len(c.Granted))
		}
	})
	t.Run("a call that does not return", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := locktest.NewWaiters(t, 1, func(f *locktest.Faulty) {
				f.Watcher = false
				f.Faults = func(op string, _ int, _ holdfast.Lease) locktest.Fault {
					return map[string]locktest.Fault{locktest.OpInspect: {Delay: time.Hour, IgnoreContext: true}}[op]
				}
			}, holdfast.WithPollInterval(5*time.Second))
			time.Sleep(7 * time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			start := time.Now()
			err := c.Client.Shutdown(ctx)
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "call to the backend") || time.Since(start) != 10*time.Second {
				t.Errorf("Shutdown took %v: %v", time.Since(start), err)
			}
			c.Wg.Wait()
		})
	})
}

// What looks show is told like what attempts meet.
func TestLooksTellTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		a, b := locktest.NewClient(t, store.Locker(), holdfast.WithOwner("a")), locktest.NewClient(t, store.Locker(), holdfast.WithOwner("b"))
		h := locktest.MustLock(t, a, "job")
		var seen locktest.Events
		f := locktest.NewFaulty(t, store.Locker(), nil)
		c := locktest.NewClient(t, f, holdfast.WithObserver(seen.Observe))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		time.AfterFunc(30*time.Second, func() {
			_ = h.Release(t.Context())
			locktest.MustTryLock(t, b, "job")
		})
		behind := make(chan error)
		go func() {
			time.Sleep(time.Millisecond)
			_, err := c.Lock(ctx, "job")
			behind <- err
		}()
		_, err := c.Lock(ctx, "job")
		for _, err := range []error{err, <-behind} {
			var held *holdfast.HeldError
			if !errors.As(err, &held) || held.Record.Owner != "b" {
				t.Errorf("err = %v", err)
			}
		}
		synctest.Wait()
		if n := seen.Count(holdfast.EventHolderSeen); n != 2 || seen.List[1].Owner != "b" {
			t.Errorf("told %d times: %v", n, seen.List)
		}
		if n := f.Count(locktest.OpAcquire); n > 3 {
			t.Errorf("%d attempts", n)
		}
	})
}
