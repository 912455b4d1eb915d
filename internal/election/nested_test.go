package election_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/locktest"
)

// A task that runs in another runner's task belongs to both.
func TestCorner_NestedRunners(t *testing.T) {
	runners := func(t *testing.T, opts ...holdfast.RunnerOption) (outer, inner *holdfast.LeaderAwareRunner) {
		c := locktest.NewClient(t, memory.New())
		inner, err := holdfast.NewLeaderAwareRunner(c, "inner")
		if err != nil {
			t.Fatal(err)
		}
		return locktest.NewRunner(t, c, opts...), inner
	}
	t.Run("busy", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			outer, inner := runners(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			_, _ = outer.RunTaskOnLeader(ctx, func(ctx context.Context) error {
				_, err := inner.RunTaskOnLeader(ctx, func(ctx context.Context) error {
					if _, err := outer.RunTaskOnLeader(ctx, locktest.LeadUntilCanceled); !errors.Is(err, driver.ErrInvalid) {
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
