package renewal_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// The hook is also called when Shutdown gave up on work that still runs when another may be
// granted the lock.
func TestOverrunAfterAFailedShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.NewClient(t, memory.New())
		var reported atomic.Bool
		go func() {
			_ = c.Do(t.Context(), "job", func(context.Context) error { time.Sleep(time.Hour); return nil },
				holdfast.WithOverrunHook(func(holdfast.Event) { reported.Store(true) }))
		}()
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = c.Shutdown(ctx)
		time.Sleep(time.Minute)
		if !reported.Load() {
			t.Error("work that overran was not reported")
		}
		time.Sleep(time.Hour)
	})
}

func TestOverrun(t *testing.T) {
	run := func(t *testing.T, stopAfter time.Duration) (seen *locktest.Events, hooked time.Duration) {
		seen = &locktest.Events{}
		synctest.Test(t, func(t *testing.T) {
			c := locktest.FaultyClient(t, memory.NewStore().Locker(), func(op string, _ int, _ holdfast.Lease) locktest.Fault {
				return map[string]locktest.Fault{locktest.OpRenew: {Refuse: locktest.ErrInjected}}[op]
			}, holdfast.WithObserver(seen.Observe))
			start := time.Now()
			var at atomic.Int64
			err := c.Do(t.Context(), "job", func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(stopAfter)
				return nil
			}, holdfast.WithOverrunHook(func(holdfast.Event) { at.Store(int64(time.Since(start))) }))
			if !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("Do: %v", err)
			}
			time.Sleep(time.Minute)
			hooked = time.Duration(at.Load())
		})
		return seen, hooked
	}
	t.Run("work that goes on", func(t *testing.T) {
		seen, at := run(t, 20*time.Second)
		if seen.Count(holdfast.EventOverrun) != 1 || at != 30*time.Second-30*time.Millisecond {
			t.Errorf("reported %d times, the hook called at %v", seen.Count(holdfast.EventOverrun), at)
		}
	})
	t.Run("work that stops in time", func(t *testing.T) {
		if seen, at := run(t, 4*time.Second); seen.Count(holdfast.EventOverrun) != 0 || at != 0 {
			t.Error("an overrun was reported that was none")
		}
	})
}

// After a pause that is longer than the TTL, the loss and the expiry are noticed together. An idle leadership has no work, and work
// that then stops at once is no overrun either. What goes on is reported soon.
func TestOverrunAfterAPause(t *testing.T) {
	for name, tc := range map[string]struct {
		task locktest.Task
		want time.Duration // after the pause was noticed
	}{
		"idle":    {locktest.EmptyTask, 0},
		"stops":   {func(ctx context.Context) error { <-ctx.Done(); return nil }, 0},
		"goes on": {func(context.Context) error { time.Sleep(time.Minute); return nil }, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var paused, hooked atomic.Int64
				c := locktest.NewClient(t, memory.New(),
					holdfast.WithElapsed(func() time.Duration { return time.Since(start) + time.Duration(paused.Load()) }))
				r := locktest.NewRunner(t, c, holdfast.WithOverrunHook(func(holdfast.Event) { hooked.Store(int64(time.Since(start))) }))
				go func() { _, _ = r.RunTaskOnLeader(t.Context(), tc.task) }()
				time.Sleep(5500 * time.Millisecond)
				paused.Store(int64(time.Hour))
				time.Sleep(time.Minute)
				want := tc.want
				if want > 0 {
					want += 6 * time.Second // the clock is read every second
				}
				if got := time.Duration(hooked.Load()); got != want {
					t.Errorf("the hook was called after %v, want %v", got, want)
				}
			})
		})
	}
}

// With a grace as short as the drift of the clocks the lease expires as it is lost. Work that stops within that grace is no overrun.
func TestOverrunWithAShortGrace(t *testing.T) {
	for stop, want := range map[time.Duration]time.Duration{0: 0, 20 * time.Millisecond: 0, time.Second: 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			var hooked atomic.Int64
			c := locktest.FaultyClient(t, memory.New(), locktest.Each(locktest.OpRenew, locktest.Fault{Refuse: locktest.ErrInjected}),
				holdfast.WithGrace(30*time.Millisecond))
			err := c.Do(t.Context(), "job", func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(stop)
				return nil
			}, holdfast.WithOverrunHook(func(holdfast.Event) { hooked.Store(int64(time.Since(start))) }))
			synctest.Wait()
			if got := time.Duration(hooked.Load()); got != want || !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("stops after %v: the hook was called after %v, want %v; Do: %v", stop, got, want, err)
			}
		})
	}
}

// A hook may run as long as it likes: the renewals of other leases go on.
func TestOverrunHookDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.FaultyClient(t, memory.New(), locktest.Named(locktest.OpRenew, "lost", locktest.Fault{Refuse: locktest.ErrInjected}))
		called, gate := make(chan struct{}), make(chan struct{})
		locktest.MustLock(t, c, "lost", holdfast.WithOverrunHook(func(holdfast.Event) { close(called); <-gate }))
		h := locktest.MustLock(t, c, "job")
		<-called
		time.Sleep(5 * time.Minute)
		if h.Err() != nil {
			t.Errorf("lost behind another lock's hook: %v", h.Err())
		}
		close(gate)
	})
}
