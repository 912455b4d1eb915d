package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
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

// The largest duration, which is commonly written for "forever", is allowed and does not overflow.
func TestLargestDurations(t *testing.T) {
	const ever = time.Duration(math.MaxInt64)
	for what, test := range map[string]struct {
		option holdfast.RunnerOption
		use    func(t *testing.T, r *holdfast.LeaderAwareRunner)
	}{
		"IdleLimit": {holdfast.WithIdleLimit(ever), func(t *testing.T, r *holdfast.LeaderAwareRunner) {
			if _, err := r.RunTaskOnLeader(t.Context(), locktest.EmptyTask); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if !r.IsLeader() {
				t.Error("leadership was given up at once")
			}
		}},
		"StallTimeout": {holdfast.WithStallTimeout(ever), func(t *testing.T, r *holdfast.LeaderAwareRunner) {
			_, err := r.RunTaskOnLeader(t.Context(), func(ctx context.Context) error { time.Sleep(time.Second); return context.Cause(ctx) })
			if err != nil {
				t.Error(err)
			}
		}},
		"MinHold": {holdfast.WithMinHold(ever), func(t *testing.T, r *holdfast.LeaderAwareRunner) {
			done := locktest.Campaign(t.Context(), r, locktest.EmptyTask)
			time.Sleep(time.Second)
			locktest.CheckPending(t, done, "Run")
			_ = r.Close(t.Context())
		}},
		"CoolDown": {holdfast.WithCoolDown(ever), func(t *testing.T, r *holdfast.LeaderAwareRunner) {
			_, _ = r.RunTaskOnLeader(t.Context(), locktest.EmptyTask)
			_ = r.StepDown(t.Context())
			if ran, _ := r.RunTaskOnLeader(t.Context(), locktest.EmptyTask); ran {
				t.Error("no cool-down")
			}
		}},
	} {
		locktest.Bubble(t, what, func(t *testing.T) {
			start := time.Now()
			test.use(t, locktest.NewRunner(t, locktest.NewClient(t, memory.New(), holdfast.WithElapsed(func() time.Duration {
				return time.Since(start) + time.Hour // the machine has been up for an hour
			})), test.option))
		})
	}
	locktest.Bubble(t, "PollInterval", func(t *testing.T) {
		var requests atomic.Int64
		c := locktest.NewClient(t, locktest.Scripted{Locker: memory.New(), OnAcquire: func(_ context.Context,
			req driver.Request) (holdfast.Lease, error) {
			requests.Add(1)
			return holdfast.Lease{}, &holdfast.HeldError{Record: holdfast.Record{Name: req.Name}}
		}}, holdfast.WithPollInterval(ever))
		for i := range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, _ = c.Lock(ctx, fmt.Sprint(i))
			cancel()
		}
		if n := requests.Load(); n > 20 {
			t.Errorf("20 waiters that do not poll sent %d requests", n)
		}
	})
	locktest.Bubble(t, "TTL without a limit", func(t *testing.T) {
		start := time.Now()
		c, err := holdfast.New(locktest.Scripted{Locker: memory.New(), Allowed: &driver.Limits{},
			OnAcquire: func(_ context.Context, req driver.Request) (holdfast.Lease, error) {
				return holdfast.Lease{Name: req.Name, ID: req.ID, Token: 1, TTL: req.TTL}, nil
			}}, holdfast.WithTTL(ever), holdfast.WithElapsed(func() time.Duration { return time.Since(start) + 100*24*time.Hour }))
		if errors.Is(err, driver.ErrInvalid) {
			return
		}
		defer func() { _ = c.Shutdown(context.Background()) }()
		h, err := c.TryLock(t.Context(), "job", holdfast.WithGrace(time.Hour))
		if err == nil {
			err = h.Err()
		}
		if err != nil && !errors.Is(err, driver.ErrInvalid) {
			t.Error(err)
		}
	})
}

// With a long TTL one failed call does not cost a share of it: backoffs and time limits are
// bounded.
func TestLongTTL(t *testing.T) {
	refuse, hang := locktest.Fault{Refuse: locktest.ErrInjected}, locktest.Fault{Hang: true}
	for what, test := range map[string]struct {
		faults locktest.Faults // of one call
		limit  time.Duration   // of the caller
		most   time.Duration   // until the lock is free
	}{
		"a release fails":         {locktest.First(locktest.OpRelease, refuse), time.Hour, time.Minute},
		"a release hangs":         {locktest.First(locktest.OpRelease, hang), time.Hour, time.Minute},
		"an attempt hangs":        {locktest.First(locktest.OpAcquire, hang), time.Hour, time.Minute},
		"an acquire is 10 s late": {locktest.First(locktest.OpAcquire, locktest.Fault{Late: 10 * time.Second}), 5 * time.Second, 5 * time.Minute},
	} {
		locktest.Bubble(t, what, func(t *testing.T) {
			store := memory.NewStore()
			c := locktest.FaultyClient(t, store.Locker(), test.faults, holdfast.WithTTL(24*time.Hour))
			ctx, cancel := context.WithTimeout(t.Context(), test.limit)
			defer cancel()
			start, worked := time.Now(), false
			err := c.Do(ctx, "job", func(context.Context) error { worked = true; return nil })
			if d := time.Since(start); d > time.Minute || worked != (test.limit > time.Minute) {
				t.Errorf("after %v, worked: %v: %v", d, worked, err)
			}
			time.Sleep(test.most - time.Since(start))
			if locktest.IsHeld(t, store, "job") {
				t.Errorf("still held %v later", test.most)
			}
		})
	}
}

// A TTL of a millisecond leads neither to a busy loop nor to a stuck lock.
func TestTinyTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		check := locktest.NewExclusive(t)
		var wg sync.WaitGroup
		for range 3 {
			f := locktest.NewFaulty(t, store.Locker(), nil)
			c := locktest.NewClient(t, f, holdfast.WithTTL(time.Millisecond))
			wg.Go(func() {
				for range 50 {
					_ = c.Do(t.Context(), "job", func(ctx context.Context) error {
						token, _ := holdfast.TokenFromContext(ctx)
						check.Enter(ctx, "job", token)
						time.Sleep(10 * time.Millisecond)
						return nil
					})
				}
				if f.Total() > 30000 {
					t.Errorf("%d calls", f.Total())
				}
			})
		}
		wg.Wait()
	})
}
