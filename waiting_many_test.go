package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
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
				c := newCrowd(t, names, func(f *faulty) { f.watcher = tt.watcher }, holdfast.WithPollInterval(tt.poll))
				time.Sleep(time.Minute)
				// One attempt each at first, then looks: also at the moment when the watch
				// comes into effect, one for each as they come one after another.
				if n := c.calls.count(opAcquire); n != names {
					t.Errorf("%d attempts at first", n)
				}
				before := c.calls.total()
				const minutes = 3
				time.Sleep(minutes * time.Minute)
				calls := c.calls.total() - before
				t.Logf("%.1f calls a minute", float64(calls)/minutes)
				if calls > tt.most*minutes || calls < minutes {
					t.Errorf("%d calls in %d minutes in which nothing happened", calls, minutes)
				}
				if n := c.calls.count(opAcquire); n != names {
					t.Errorf("%d attempts where looks would do", n-names)
				}
				c.takenOver()
				if n := c.calls.count(opAcquire) - names; n > names+names/10 {
					t.Errorf("%d attempts for %d take-overs", n, names)
				}
			})
		})
	}
}

func TestWakeUpsAreFollowedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 100, func(*faulty) {})
		time.Sleep(33 * time.Second)
		for name, h := range c.holds {
			_ = h.Release(t.Context())
			synctest.Wait()
			c.mu.Lock()
			if c.granted[name] != time.Now() {
				t.Errorf("%s is not taken at once", name)
			}
			c.mu.Unlock()
			time.Sleep(time.Second)
		}
		c.wg.Wait()
	})
}

// What was freed between the first attempt and the moment when the watch came into
// effect is seen then.
func TestWatchInEffectIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gap := &gapWatcher{}
		gap.open.Store(true)
		c := newCrowd(t, 1, func(f *faulty) { gap.Locker = f.Locker; f.Locker = gap }, holdfast.WithPollInterval(time.Hour))
		_ = c.holds["job-0"].Release(t.Context())
		synctest.Wait()
		if len(c.granted) != 0 {
			t.Fatal("woken although the watch is not in effect")
		}
		gap.wakeAll()
		synctest.Wait()
		if len(c.granted) != 1 {
			t.Error("a release before the watch came into effect is not seen")
		}
		c.wg.Wait()
	})
}

// A watch that is in effect again after a gap wakes everybody: one read tells all that
// there is nothing new, and those whose lock was freed in the gap take it.
func TestFloodOfWakeUpsIsReadTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const names = 500
		gap := &gapWatcher{}
		c := newCrowd(t, names, func(f *faulty) {
			gap.Locker = f.Locker
			f.Locker = gap
			f.faults = func(op string, _ int, _ holdfast.Lease) fault {
				return map[string]fault{opLook: {delay: 5 * time.Millisecond}}[op]
			}
		})
		time.Sleep(time.Minute)
		before, looks := c.calls.count(opAcquire), c.calls.count(opLook)
		gap.open.Store(true)
		for _, name := range []string{"job-3", "job-300"} {
			_ = c.holds[name].Release(t.Context())
		}
		synctest.Wait()
		if len(c.granted) != 0 {
			t.Fatal("woken in the gap")
		}
		gap.open.Store(false)
		gap.wakeAll()
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		if n := c.calls.count(opAcquire) - before; n > 50 || len(c.granted) != 2 {
			t.Errorf("%d attempts, %d granted", n, len(c.granted))
		}
		if n := c.calls.count(opLook) - looks; n > 4 {
			t.Errorf("%d reads", n)
		}
		c.takenOver("job-3", "job-300")
	})
}

// Those who wait ask themselves when looks fail, and take over in time, even if the call
// that looks never returns.
func TestLooksThatFail(t *testing.T) {
	for name, ft := range map[string]fault{
		"refused": {refuse: errInjected},
		"hung":    {hang: true},
		"deaf":    {delay: time.Hour, deaf: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowd(t, 20, func(f *faulty) {
					f.faults = func(op string, _ int, _ holdfast.Lease) fault {
						return map[string]fault{opLook: ft}[op]
					}
				})
				before := c.calls.count(opAcquire)
				time.Sleep(10 * time.Minute)
				if n := c.calls.count(opAcquire) - before; n < 20*10*60/25 || n > 20*10*60/12 {
					t.Errorf("%d attempts in 10 minutes at a poll interval of 15 s", n)
				}
				c.takenOver()
			})
		})
	}
}

func TestLooksEndWithTheirWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		mustLock(t, newClient(t, store.Locker(), holdfast.WithOwner("web-3")), "job")
		f := newFaulty(t, store.Locker(), func(op string, _ int, _ holdfast.Lease) fault {
			return map[string]fault{opLook: {delay: time.Second}}[op]
		})
		c := newClient(t, f)
		for _, wait := range []time.Duration{time.Millisecond, 5500 * time.Millisecond, time.Minute} { // before, during and after looks
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			_, err := c.Lock(ctx, "job")
			var held *holdfast.HeldError
			if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &held) || held.Record.Owner != "web-3" {
				t.Errorf("err = %v", err)
			}
			cancel()
			time.Sleep(time.Second)
			before := f.total()
			time.Sleep(time.Minute)
			if f.total() != before {
				t.Error("there are looks although nobody waits")
			}
		}
	})
}

func TestShutdownEndsLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 50, func(f *faulty) {
			f.watcher = false
			f.faults = func(op string, _ int, _ holdfast.Lease) fault {
				return map[string]fault{opLook: {hang: true}}[op]
			}
		}, holdfast.WithPollInterval(time.Second))
		time.Sleep(time.Second) // a look is under way
		start := time.Now()
		if err := c.client.Shutdown(t.Context()); err != nil || time.Since(start) != 0 {
			t.Errorf("Shutdown took %v: %v", time.Since(start), err)
		}
		c.wg.Wait()
		if len(c.granted) != 0 {
			t.Errorf("%d were granted", len(c.granted))
		}
	})
	t.Run("a call that does not return", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(t, 1, func(f *faulty) {
				f.watcher = false
				f.faults = func(op string, _ int, _ holdfast.Lease) fault {
					return map[string]fault{opLook: {delay: time.Hour, deaf: true}}[op]
				}
			}, holdfast.WithPollInterval(5*time.Second))
			time.Sleep(7 * time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			start := time.Now()
			err := c.client.Shutdown(ctx)
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "call to the backend") || time.Since(start) != 10*time.Second {
				t.Errorf("Shutdown took %v: %v", time.Since(start), err)
			}
			c.wg.Wait()
		})
	})
}

// What looks show is told like what attempts meet.
func TestLooksTellTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		a, b := newClient(t, store.Locker(), holdfast.WithOwner("a")), newClient(t, store.Locker(), holdfast.WithOwner("b"))
		h := mustLock(t, a, "job")
		var seen events
		f := newFaulty(t, store.Locker(), nil)
		c := newClient(t, f, holdfast.WithObserver(seen.observe))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		time.AfterFunc(30*time.Second, func() {
			_ = h.Release(t.Context())
			mustTryLock(t, b, "job")
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
		if n := seen.count(holdfast.EventHolderSeen); n != 2 || seen.list[1].Owner != "b" {
			t.Errorf("told %d times: %v", n, seen.list)
		}
		if n := f.count(opAcquire); n > 3 {
			t.Errorf("%d attempts", n)
		}
	})
}

// A request of one's own that landed late looks like another holder: only asking tells.
func TestOwnLateRequestIsNoOtherHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		h := mustLock(t, newClient(t, store.Locker()), "job")
		time.AfterFunc(5*time.Second, func() { _ = h.Release(t.Context()) })
		c := newClient(t, newFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) fault {
			if op == opAcquire && n == 1 {
				return fault{late: 6 * time.Second}
			}
			return fault{}
		}), holdfast.WithPollInterval(10*time.Second))
		start := time.Now()
		mustLock(t, c, "job")
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("granted after %v", d)
		}
	})
}
