package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// expectLines compares what a hook was notified of.
func expectLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.EqualFunc(got, want, func(g, w string) bool { return strings.HasPrefix(g, w) }) {
		t.Errorf("%s:\n got %s\nwant %s", what, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// newHooked returns a client with a hook on the bubble's time.
func newHooked(t *testing.T, l holdfast.Locker, opts ...holdfast.ClientOption) (*holdfast.Client, *locktest.Hook) {
	hook := &locktest.Hook{}
	return locktest.NewClient(t, l, append(opts, hook.Option())...), hook
}

// The hook is notified of each operation with its elapsed time, and the operations are nested.
func TestHookOfDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		other := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
		c, hook := newHooked(t, store.Locker())
		done := make(chan error, 1)
		go func() {
			done <- c.Do(context.Background(), "job", func(ctx context.Context) error {
				_ = telemetry.Measure(ctx, ctx, telemetry.Operation{Kind: telemetry.Guard, Name: "guard"}, func(context.Context) error { return nil })
				time.Sleep(15 * time.Second)
				return nil
			})
		}()
		time.Sleep(3 * time.Second)
		if n := hook.Open(telemetry.Acquire); n != 1 {
			t.Errorf("%d callers wait", n)
		}
		_ = other.Release(t.Context())
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		expectLines(t, "operations", hook.Take(false),
			"begin acquire job",
			"begin hold job",
			"end acquire job after 3s: <nil>",
			"begin guard guard in hold job", // by the function's context
			"end guard guard after 0s: <nil>",
			"renewed hold job, 15s left",
			"begin release job in hold job",
			"end hold job after 15s: <nil>",
			"end release job after 0s: <nil>")
	})
}

// Each call of the backend is reported within the operation that makes it.
func TestHookOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c, hook := newHooked(t, store.Locker(), holdfast.WithData([]byte("x")))
		if _, ok := c.Locker().(*memory.Locker); !ok {
			t.Errorf("the Client's Locker is a %T", c.Locker())
		}
		h := locktest.MustLock(t, c, "job")
		time.Sleep(11 * time.Second)
		_, _ = h.Data(t.Context())
		_ = h.WriteData(t.Context(), nil)
		_, _ = c.Inspect(t.Context(), "job")
		_ = c.Break(t.Context(), "job", driver.BreakToken(1))
		_ = h.Release(t.Context())
		var begun []string
		for _, line := range hook.Take(true) {
			if strings.HasPrefix(line, "begin call") {
				begun = append(begun, line)
			}
		}
		expectLines(t, "calls", begun,
			"begin call memory acquire of 1 in acquire job",
			"begin call memory renew of 1",
			"begin call memory read_data of 1",
			"begin call memory write_data of 1",
			"begin call memory inspect of 1",
			"begin call memory break of 1",
			"begin call memory release of 1 in release job")
		if n := hook.Open(telemetry.Call); n != 0 {
			t.Errorf("%d calls have not ended", n)
		}
	})
}

// With a hook the Client uses the same capabilities of the backend, and reports how many leases a call
// renews.
func TestHookOfBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, hook := newHooked(t, memory.New())
		m := locktest.NewManager(t, c)
		locktest.MustAdd(t, m, locktest.Names("name-", 50)...)
		time.Sleep(11 * time.Second)
		if n := hook.Open(telemetry.Hold); n != 50 {
			t.Errorf("%d holds", n)
		}
		lines := hook.Take(true)
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "begin call memory renew of 50") }) {
			t.Errorf("no call has renewed 50 leases: %d lines", len(lines))
		}
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "renewed hold name-00007 as managed, 15s left") }) {
			t.Error("no renewal of name-7")
		}
		if err := m.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, kind := range []telemetry.Kind{telemetry.Acquire, telemetry.Hold, telemetry.Release, telemetry.Call} {
			if n := hook.Open(kind); n != 0 {
				t.Errorf("%d operations of kind %d have not ended", n, kind)
			}
		}
	})
}

// A campaign of a LeaseManager is one acquisition, from Add to the grant or the removal.
func TestHookOfACampaign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		other := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "a")
		locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "b")
		c, hook := newHooked(t, store.Locker())
		m := locktest.NewManager(t, c)
		for _, name := range []string{"a", "b"} { // Add with both begins with any of them
			locktest.MustAdd(t, m, name)
			synctest.Wait()
		}
		time.Sleep(5 * time.Second)
		_ = other.Release(t.Context())
		synctest.Wait()
		_ = m.Remove(t.Context(), "b")
		expectLines(t, "operations", hook.Take(false),
			"begin acquire a as managed",
			"begin acquire b as managed",
			"begin hold a as managed",
			"end acquire a as managed after 5s: <nil>",
			"end acquire b as managed after 5s: holdfast: the name was removed: context canceled")
	})
}

// A refused attempt, a wait that its caller ends and a shutdown are outcomes of an acquisition.
func TestHookOfAFailedAcquisition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
		c, hook := newHooked(t, store.Locker())
		if _, err := c.TryLock(t.Context(), "job"); !errors.Is(err, holdfast.ErrHeld) {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Lock(ctx, "job"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		go func() { _, _ = c.Lock(context.Background(), "job") }()
		synctest.Wait()
		_ = c.Shutdown(t.Context())
		synctest.Wait()
		expectLines(t, "operations", hook.Take(false),
			"begin acquire job", `end acquire job after 0s: holdfast: acquire "job" on memory: lock "job" is held`,
			"begin acquire job", `end acquire job after 1s: holdfast: lock "job": waiting ended: context deadline exceeded`,
			"begin acquire job", "end acquire job after 0s: holdfast: the client is closed")
	})
}

// A loss is reported when it happens, then the overrun, and the end when the work has stopped.
func TestHookOfALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty := locktest.NewFaulty(t, memory.New(), locktest.Refuse("renew"))
		c, hook := newHooked(t, faulty)
		err := c.Do(t.Context(), "job", func(context.Context) error {
			time.Sleep(40 * time.Second)
			return nil
		})
		if !errors.Is(err, holdfast.ErrLost) {
			t.Error(err)
		}
		expectLines(t, "operations", hook.Take(false),
			"begin acquire job",
			"begin hold job",
			"end acquire job after 0s",
			`lost hold job after 25s: holdfast: "job": lease lost: not renewed in time`,
			"overrun hold job",
			"begin release job in hold job",
			`end hold job after 40s: holdfast: "job": lease lost: not renewed in time`,
			"end release job after 0s")
	})
}

// A hold ends when its release begins, however late the answer is, and once.
func TestHookOfALateRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := locktest.NewFaulty(t, memory.New(), locktest.Each(locktest.OpRelease, locktest.Fault{Delay: time.Second}))
		late.Watcher = true
		c, hook := newHooked(t, late)
		first := locktest.MustLock(t, c, "job")
		granted := make(chan *holdfast.Hold, 1)
		go func() {
			h, _ := c.Lock(context.Background(), "job")
			granted <- h
		}()
		synctest.Wait()
		release := func(h *holdfast.Hold, open int) {
			hook.Take(false)
			var calls sync.WaitGroup
			for range 2 {
				calls.Go(func() { _ = h.Release(t.Context()) })
			}
			time.Sleep(500 * time.Millisecond)
			if n := hook.Open(telemetry.Hold); n != 0 {
				t.Errorf("%d holds while the release waits for its answer", n)
			}
			calls.Wait()
			time.Sleep(100 * time.Millisecond) // the next waiter yields first
			synctest.Wait()
			if n := hook.Open(telemetry.Hold); n != open {
				t.Errorf("%d holds after the release, want %d", n, open)
			}
			ends := slices.DeleteFunc(hook.Take(false), func(l string) bool { return !strings.HasPrefix(l, "end hold") })
			expectLines(t, "ends", ends, "end hold job after 0s: <nil>")
		}
		release(first, 1)
		release(<-granted, 0)
	})
}

// endOfContext is a hook that keeps whether a hold's context had ended when its release began.
type endOfContext struct {
	telemetry.Hook
	hold  context.Context
	ended bool
}

func (e *endOfContext) Begin(ctx context.Context, op telemetry.Operation) context.Context {
	if op.Kind == telemetry.Release {
		e.ended = e.hold.Err() != nil
	}
	return e.Hook.Begin(ctx, op)
}

// A hold's context has ended when the hook is called for the release, however slow the hook is.
func TestHookOfAReleaseComesAfterTheContext(t *testing.T) {
	hook := &endOfContext{Hook: &locktest.Hook{}}
	h := locktest.MustLock(t, locktest.NewClient(t, memory.New(), holdfast.WithHook(hook)), "job")
	hook.hold = h.Context()
	if err := h.Release(t.Context()); err != nil || !hook.ended {
		t.Errorf("the context had ended: %t; %v", hook.ended, err)
	}
}

// If the release notices that the lease was not renewed in time, which only the clock shows, the loss is reported before the end. Do
// returns it, and the observers are notified of it.
func TestHookOfALossThatTheReleaseNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var suspended atomic.Int64
		var seen locktest.Events
		start := time.Now()
		c, hook := newHooked(t, memory.New(), holdfast.WithObserver(seen.Observe),
			holdfast.WithElapsed(func() time.Duration { return time.Since(start) + time.Duration(suspended.Load()) }))
		err := c.Do(t.Context(), "job", func(context.Context) error {
			synctest.Wait()                     // until the Renewer sleeps
			suspended.Store(int64(time.Minute)) // the machine sleeps for a minute, and the work ends before the Renewer wakes
			return nil
		})
		synctest.Wait()
		if !errors.Is(err, holdfast.ErrLost) || seen.Count(holdfast.EventLost) != 1 || seen.Count(holdfast.EventReleased) != 0 {
			t.Errorf("Do returned %v, the observer was notified of %v", err, seen.Types())
		}
		expectLines(t, "operations", hook.Take(false),
			"begin acquire job", "begin hold job", "end acquire job",
			"begin release job in hold job",
			"lost hold job after 1m0s: holdfast: lease lost: not renewed in time", "end hold job after 1m0s: holdfast: lease lost",
			"end release job")
	})
}

// A runner's locks have their role, and giving leadership up is no loss of the lease.
func TestHookOfARunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, hook := newHooked(t, memory.New())
		r, err := holdfast.NewLeaderAwareRunner(c, "leader", holdfast.WithStallTimeout(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		err = r.Run(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Second) // the loss is reported after the context has ended
			return ctx.Err()
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		expectLines(t, "operations", hook.Take(false),
			"begin acquire leader as leader", "begin hold leader as leader", "end acquire leader as leader after 0s: <nil>",
			`lost hold leader as leader after 5s: holdfast: "leader": stepped down: no heartbeat in time for 5s`,
			"begin release leader as leader in hold leader as leader",
			`end hold leader as leader after 6s: holdfast: "leader": stepped down`,
			"end release leader as leader")
	})
}
