package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// A task that runs in another runner's task belongs to both.
func TestCorner_NestedRunners(t *testing.T) {
	runners := func(t *testing.T, opts ...holdfast.RunnerOption) (outer, inner *holdfast.LeaderAwareRunner) {
		c := newClient(t, memory.New())
		inner, err := holdfast.NewLeaderAwareRunner(c, "inner")
		if err != nil {
			t.Fatal(err)
		}
		return newRunner(t, c, opts...), inner
	}
	t.Run("busy", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			outer, inner := runners(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			_, _ = outer.RunTaskOnLeader(ctx, func(ctx context.Context) error {
				_, err := inner.RunTaskOnLeader(ctx, func(ctx context.Context) error {
					if _, err := outer.RunTaskOnLeader(ctx, untilEnd); !errors.Is(err, driver.ErrInvalid) {
						t.Errorf("from the runner's own task: %v, want ErrBusy", err)
					}
					return nil
				})
				return err
			})
		})
	})
	t.Run("heartbeat", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			outer, inner := runners(t, holdfast.WithStallTimeout(10*time.Second))
			_, err := outer.RunTaskOnLeader(t.Context(), func(ctx context.Context) error {
				_, err := inner.RunTaskOnLeader(ctx, func(ctx context.Context) error {
					for range 30 {
						time.Sleep(time.Second)
						holdfast.Heartbeat(ctx)
					}
					return context.Cause(ctx)
				})
				return err
			})
			if err != nil {
				t.Errorf("a task that sends heartbeats stalled: %v", err)
			}
		})
	})
	t.Run("close", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			outer, inner := runners(t)
			_, _ = outer.RunTaskOnLeader(t.Context(), func(ctx context.Context) error {
				_, err := inner.RunTaskOnLeader(ctx, func(ctx context.Context) error {
					if err := outer.Close(ctx); err != nil {
						t.Errorf("Close from the task with its own context: %v", err)
					}
					return nil
				})
				return err
			})
		})
	})
}

// A context that outlived the task is not the task.
func TestCorner_ContextOutlivesTheTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(t, newClient(t, memory.New()))
		var kept context.Context
		if err := r.Run(t.Context(), func(ctx context.Context) error { kept = context.WithoutCancel(ctx); return nil }); err != nil {
			t.Fatal(err)
		}
		if _, err := r.RunTaskOnLeader(kept, func(context.Context) error { return nil }); err != nil {
			t.Errorf("nothing runs, and yet: %v", err)
		}
	})
}

// Close: "Run and RunTaskOnLeader return ErrClosed".
func TestCorner_CloseDuringAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(t, newClient(t, newFaulty(t, memory.New(), func(op string, _ int, _ holdfast.Lease) fault {
			return map[string]fault{opAcquire: {hang: true}}[op]
		})))
		time.AfterFunc(time.Second, func() { _ = r.Close(context.Background()) })
		if _, err := r.RunTaskOnLeader(t.Context(), untilEnd); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("err = %v, want ErrClosed", err)
		}
	})
}

// Close heeds its context also while the release of an idle leader hangs.
func TestCorner_CloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(t, newClient(t, newFaulty(t, memory.New(), func(op string, _ int, _ holdfast.Lease) fault {
			return map[string]fault{opRelease: {hang: true}}[op]
		})))
		if _, err := r.RunTaskOnLeader(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err := r.Close(ctx)
		if d := time.Since(start); d > 4*time.Second { // one try
			t.Errorf("Close with a context of 1 s took %v (%v)", d, err)
		}
		if err == nil {
			t.Error("Close says that the lock was released")
		}
	})
}
