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

// A panic of the driver while the patience ends goes on at once, in the caller's goroutine. Nothing stays held, also if a lock is
// granted at the same moment.
func TestGrantDuringAPanicIsReleased(t *testing.T) {
	for _, test := range []struct {
		release int32 // of a, which panics
		granted bool
	}{{1, false}, {2, false}, {2, true}} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			leader := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "b")
			panicked := make(chan struct{})
			var asked, once atomic.Int32
			c := locktest.NewClient(t, driver.Intercept(locktest.NewFaulty(t, store.Locker(), nil),
				func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
					switch {
					case call.Method == driver.MethodRelease && call.Lease.Name == "a" && once.Add(1) == test.release:
						close(panicked) // the first release comes before the wait
						panic("broken driver")
					case test.granted && call.Method == driver.MethodTryAcquire && call.Request.Name == "b" && asked.Add(1) == 2:
						<-panicked
						_ = leader.Release(t.Context())
						ctx = context.WithoutCancel(ctx)
					}
					return next(ctx, call)
				}))
			start := time.Now()
			func() {
				defer func() {
					if recover() == nil || time.Since(start) > 2*time.Second {
						t.Errorf("no panic, or late: %v", time.Since(start))
					}
				}()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, _ = c.LockAll(ctx, []string{"a", "b"})
			}()
			_ = leader.Release(t.Context())
			time.Sleep(time.Minute)
			for _, name := range []string{"a", "b"} {
				if locktest.IsHeld(t, store, name) {
					t.Errorf("%s is held", name)
				}
			}
			locktest.ShutDown(t, c)
		})
	}
}

// A lock that was lost during a pause of the process, which only the clock shows, is not among those of a MultiHold.
func TestPauseWhileSeveralNamesAreAcquired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		var now, pauses atomic.Int64
		pause := func(d time.Duration) { now.Add(int64(d)) }
		c := locktest.NewClient(t, driver.Intercept(store.Locker(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			if call.Method == driver.MethodRenew || call.Method == driver.MethodRenewBatch {
				<-ctx.Done()
			}
			answer := next(ctx, call)
			if call.Method == driver.MethodTryAcquire {
				switch pauses.Add(1) {
				case 1:
					pause(24 * time.Second)
				case 2:
					pause(2 * time.Second) // 26 s after the first request, 1 s after its loss
				}
			}
			return answer
		}), holdfast.WithElapsed(func() time.Duration { return time.Duration(now.Load()) }))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		m, err := c.LockAll(ctx, []string{"a", "b"})
		if err != nil || m.Err() != nil {
			t.Fatalf("%v, %v", err, m)
		}
		_ = m.Release(t.Context())
	})
}

// Names that are held for several TTLs, again and again, do not starve a caller that wants them together.
func TestSeveralNamesThatAreHeldForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		caller := locktest.NewClient(t, store.Locker())
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i, name := range []string{"a", "b", "c", "a", "b", "c"} {
			c := locktest.NewClient(t, store.Locker())
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 37 * time.Second)
				for ctx.Err() == nil {
					_ = c.Do(ctx, name, func(context.Context) error {
						time.Sleep(5 * time.Minute) // ten TTLs
						return nil
					})
				}
			})
		}
		time.Sleep(10 * time.Minute)
		start := time.Now()
		limited, stop := context.WithTimeout(ctx, 24*time.Hour)
		if err := caller.DoAll(limited, []string{"a", "b", "c"}, locktest.EmptyTask); err != nil {
			t.Error(err)
		}
		if waited := time.Since(start); waited > 4*time.Hour {
			t.Errorf("waited for %v", waited)
		}
		stop()
		cancel()
		wg.Wait()
	})
}

// A call does not overtake the callers of its process that wait already, also if its names are free.
func TestSeveralNamesDoNotOvertakeOwnWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		a := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "a")
		c := locktest.NewClient(t, locktest.NewFaulty(t, store.Locker(), nil)) // it polls, so it learns later that a is free
		var order []string
		var wg sync.WaitGroup
		for _, caller := range []string{"first", "second"} {
			wg.Go(func() {
				if err := c.DoAll(t.Context(), []string{"a", "b"}, func(context.Context) error {
					order = append(order, caller)
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			_ = a.Release(t.Context())
		}
		wg.Wait()
		if !slices.Equal(order, []string{"first", "second"}) {
			t.Errorf("they came in the order %v", order)
		}
	})
}

// Requests that are granted at once take nothing from the patience.
func TestSeveralNamesOfASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		a := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "a")
		var acquired atomic.Int32
		c := locktest.NewClient(t, driver.Intercept(store.Locker(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			switch call.Method {
			case driver.MethodTryAcquire:
				if call.Request.Name == "a" {
					acquired.Add(1)
				}
				time.Sleep(600 * time.Millisecond)
			case driver.MethodRelease, driver.MethodReleaseBatch:
				time.Sleep(2 * time.Second)
			}
			return next(ctx, call)
		}))
		time.AfterFunc(1300*time.Millisecond, func() { _ = a.Release(t.Context()) })
		start := time.Now()
		if err := c.DoAll(t.Context(), []string{"a", "b", "c", "d", "e"}, func(context.Context) error {
			// a refusal, a wait until 1.3 s, the five names
			if took := time.Since(start); took > 5*600*time.Millisecond+1300*time.Millisecond {
				t.Errorf("the work began after %v", took)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		if n := acquired.Load(); n > 3 {
			t.Errorf("%d requests for a", n)
		}
	})
}

// After the first loss the other locks are still held. A wait for one of them within would deadlock, and fails at once.
func TestWaitWithinSeveralNamesAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := locktest.FaultyClient(t, store.Locker(), locktest.Named(locktest.OpRenew, "b", locktest.Fault{Refuse: driver.ErrLost}))
		_ = c.DoAll(t.Context(), []string{"a", "b"}, func(ctx context.Context) error {
			<-ctx.Done()
			within, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Hour)
			defer cancel()
			start := time.Now()
			if _, err := c.Lock(within, "a"); !errors.Is(err, holdfast.ErrHeld) || time.Since(start) > time.Second {
				t.Errorf("a: %v after %v", err, time.Since(start))
			}
			h, err := c.Lock(within, "b") // is lost, so it can be had
			if err != nil {
				t.Errorf("b: %v", err)
				return nil
			}
			return h.Release(within)
		})
	})
}
