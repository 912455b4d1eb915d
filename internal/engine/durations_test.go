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
	aged := func(tb testing.TB, store *memory.Store, opts ...holdfast.ClientOption) *holdfast.Client {
		start := time.Now()
		return locktest.NewClient(tb, store.Locker(), append(opts, holdfast.WithElapsed(func() time.Duration {
			return time.Since(start) + time.Hour // the machine has been up for an hour
		}))...)
	}
	locktest.Bubble(t, "IdleLimit", func(t *testing.T) {
		r := locktest.NewRunner(t, aged(t, memory.NewStore()), holdfast.WithIdleLimit(ever))
		if _, err := r.RunTaskOnLeader(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if !r.IsLeader() {
			t.Error("leadership was given up at once")
		}
	})
	locktest.Bubble(t, "StallTimeout", func(t *testing.T) {
		r := locktest.NewRunner(t, aged(t, memory.NewStore()), holdfast.WithStallTimeout(ever))
		_, err := r.RunTaskOnLeader(t.Context(), func(ctx context.Context) error { time.Sleep(time.Second); return context.Cause(ctx) })
		if err != nil {
			t.Error(err)
		}
	})
	locktest.Bubble(t, "MinHold", func(t *testing.T) {
		r := locktest.NewRunner(t, aged(t, memory.NewStore()), holdfast.WithMinHold(ever))
		done := locktest.Campaign(t.Context(), r, func(context.Context) error { return nil })
		time.Sleep(time.Second)
		locktest.CheckPending(t, done, "Run")
		_ = r.Close(t.Context())
	})
	locktest.Bubble(t, "CoolDown", func(t *testing.T) {
		r := locktest.NewRunner(t, aged(t, memory.NewStore()), holdfast.WithCoolDown(ever))
		nothing := func(context.Context) error { return nil }
		_, _ = r.RunTaskOnLeader(t.Context(), nothing)
		_ = r.StepDown(t.Context())
		if ran, _ := r.RunTaskOnLeader(t.Context(), nothing); ran {
			t.Error("no cool-down")
		}
	})
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
	t.Run("remaining time", func(t *testing.T) { // what time.Time.Sub saturates at
		synctest.Test(t, func(t *testing.T) {
			var requests atomic.Int64
			c := locktest.NewClient(t, locktest.Scripted{Locker: memory.New(), OnAcquire: func(_ context.Context,
				req driver.Request) (holdfast.Lease, error) {
				requests.Add(1)
				return holdfast.Lease{}, &holdfast.HeldError{Record: holdfast.Record{Name: req.Name, Remaining: ever, RemainingKnown: true}}
			}}, holdfast.WithPollInterval(10*time.Second))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, _ = c.Lock(ctx, "job")
			if n := requests.Load(); n > 10 {
				t.Errorf("%d requests in a minute at a poll interval of 10 s", n)
			}
		})
	})
	locktest.Bubble(t, "TTL of the holder seen", func(t *testing.T) {
		var once sync.Once
		c := locktest.NewClient(t, locktest.Scripted{Locker: memory.New(), OnAcquire: func(_ context.Context,
			req driver.Request) (holdfast.Lease, error) {
			if !req.Replace.IsZero() {
				once.Do(func() {
					t.Errorf("a waiter of %v takes over from a live holder whose TTL is %v", 200*time.Millisecond, ever)
				})
			}
			return holdfast.Lease{}, &holdfast.HeldError{Record: holdfast.Record{Name: req.Name, TTL: ever, Revision: driver.NewRevision("r")}}
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, _ = c.Lock(ctx, "job")
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
	const ttl = 24 * time.Hour
	client := func(t *testing.T, store *memory.Store, op string, fault locktest.Fault) *holdfast.Client {
		return locktest.FaultyClient(t, store.Locker(), locktest.First(op, fault), holdfast.WithTTL(ttl))
	}
	for what, fault := range map[string]locktest.Fault{"fails": {Refuse: locktest.ErrInjected}, "hangs": {Hang: true}} {
		locktest.Bubble(t, "one release "+what, func(t *testing.T) {
			c := client(t, memory.NewStore(), locktest.OpRelease, fault)
			start := time.Now()
			_ = c.Do(t.Context(), "job", func(context.Context) error { return nil })
			if d := time.Since(start); d > time.Minute {
				t.Errorf("Do returned %v after its function", d)
			}
		})
	}
	locktest.Bubble(t, "one attempt hangs", func(t *testing.T) {
		c := client(t, memory.NewStore(), locktest.OpAcquire, locktest.Fault{Hang: true})
		start := time.Now()
		_ = locktest.MustLock(t, c, "job").Release(t.Context())
		if d := time.Since(start); d > time.Minute {
			t.Errorf("a free lock was granted after %v", d)
		}
	})
	locktest.Bubble(t, "an acquire lands 10 s late", func(t *testing.T) {
		store := memory.NewStore()
		c := client(t, store, locktest.OpAcquire, locktest.Fault{Late: 10 * time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, _ = c.TryLock(ctx, "job")
		time.Sleep(5 * time.Minute)
		if locktest.IsHeld(t, store, "job") {
			t.Error("still held 5 minutes later")
		}
	})
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
