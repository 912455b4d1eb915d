package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// All calls of Release return when the one release has ended, with its result.
func TestReleaseAgainWaitsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.FaultyClient(t, memory.New(),
			locktest.First(locktest.OpRelease, locktest.Fault{Delay: 2 * time.Second, Refuse: locktest.ErrInjected}))
		h := locktest.MustLock(t, c, "job")
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		results := make(chan error, 3)
		go func() { results <- h.Release(ctx) }() // makes one attempt, during which its context ends
		synctest.Wait()
		for range 2 {
			go func() { results <- h.Release(context.Background()) }()
		}
		for range 3 {
			if err := <-results; !errors.Is(err, locktest.ErrInjected) || time.Since(start) != 2*time.Second {
				t.Errorf("Release after %v: %v", time.Since(start), err)
			}
		}
		for range 20 { // a context that has ended does not hide the result
			if err := h.Release(ctx); !errors.Is(err, locktest.ErrInjected) {
				t.Fatalf("Release afterwards: %v", err)
			}
		}
	})
}

// A call that waits for another call's release returns when its own context ends.
func TestReleaseAgainIsBoundedByItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.FaultyClient(t, memory.New(), locktest.Each(locktest.OpRelease, locktest.Fault{Delay: 2 * time.Second}))
		h := locktest.MustLock(t, c, "job")
		go func() { _ = h.Release(context.Background()) }()
		synctest.Wait()
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.Release(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("Release after %v: %v", time.Since(start), err)
		}
	})
}

// Releases that never return do not count towards the limit forever.
func TestReleasesThatNeverReturnFreeTheLimit(t *testing.T) {
	for late, ill := range map[time.Duration]int{time.Second: 64, time.Minute: 2000} { // during Shutdown, and after
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			c := locktest.NewClient(t, locktest.NeverAnswers(t, store, locktest.OpRelease))
			for i := range ill {
				locktest.MustLock(t, c, fmt.Sprint("ill ", i))
			}
			did := make(chan time.Duration, 1)
			go func() {
				var ended time.Time
				_ = c.Do(t.Context(), "well", func(ctx context.Context) error {
					<-ctx.Done()
					time.Sleep(late)
					ended = time.Now()
					return nil
				})
				did <- time.Since(ended)
			}()
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			start := time.Now()
			if err := c.Shutdown(ctx); err == nil || time.Since(start) != 20*time.Second {
				t.Errorf("Shutdown took %v: %v", time.Since(start), err)
			}
			if d := <-did; d > 5*time.Second {
				t.Errorf("Do returned %v after its function", d)
			}
			if late < 20*time.Second && locktest.IsHeld(t, store, "well") {
				t.Error("not released")
			}
		})
	}
}

// If a function does not begin because the caller has stopped waiting, the error says that, as of any wait that ended.
func TestFunctionDoesNotBeginAfterTheWait(t *testing.T) {
	noop := func(context.Context) error { t.Error("the function was called"); return nil }
	for method, call := range map[string]func(context.Context, *holdfast.Client) error{
		"Do":    func(ctx context.Context, c *holdfast.Client) error { return c.Do(ctx, "job", noop) },
		"TryDo": func(ctx context.Context, c *holdfast.Client) error { return c.TryDo(ctx, "job", noop) },
		"DoAll": func(ctx context.Context, c *holdfast.Client) error { return c.DoAll(ctx, []string{"job"}, noop) },
	} {
		synctest.Test(t, func(t *testing.T) {
			store, why := memory.NewStore(), errors.New("canceled by the operator")
			ctx, cancel := context.WithCancelCause(t.Context())
			c := locktest.NewClient(t, locktest.Ending{Locker: store.Locker(), End: func() { cancel(why) }})
			if err := call(ctx, c); !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
				t.Errorf("%s: %v", method, err)
			}
			if locktest.IsHeld(t, store, "job") {
				t.Errorf("%s: the lock is still held", method)
			}
		})
	}
}
