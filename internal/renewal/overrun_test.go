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

// Work that goes on when another may be granted the lock is reported as an overrun, and a hook is called. Work that stops before is
// none, also with a grace as short as the drift of the clocks, with which the lease expires as it is lost.
func TestOverrun(t *testing.T) {
	const short, expiry = 30 * time.Millisecond, 30 * time.Second
	for name, tc := range map[string]struct{ grace, stops, want time.Duration }{ // stops after the loss; want: when the hook is called
		"work that goes on":                        {5 * time.Second, 20 * time.Second, expiry - 30*time.Millisecond},
		"work that stops in time":                  {5 * time.Second, 4 * time.Second, 0},
		"a short grace, work that stops at once":   {short, 0, 0},
		"a short grace, work that stops within it": {short, 20 * time.Millisecond, 0},
		"a short grace, work that goes on":         {short, time.Second, expiry},
	} {
		locktest.Bubble(t, name, func(t *testing.T) {
			start := time.Now()
			var hooked atomic.Int64
			var seen locktest.Events
			c := locktest.FaultyClient(t, memory.New(), locktest.Refuse(locktest.OpRenew), holdfast.WithGrace(tc.grace),
				holdfast.WithObserver(seen.Observe))
			err := c.Do(t.Context(), "job", func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(tc.stops)
				return nil
			}, holdfast.WithOverrunHook(func(holdfast.Event) { hooked.Store(int64(time.Since(start))) }))
			time.Sleep(time.Minute)
			if got := time.Duration(hooked.Load()); got != tc.want || !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("the hook was called after %v, want %v; Do: %v", got, tc.want, err)
			}
			if n := seen.Count(holdfast.EventOverrun); n != min(int(tc.want), 1) {
				t.Errorf("%d overruns were reported", n)
			}
		})
	}
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
		locktest.Bubble(t, name, func(t *testing.T) {
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
