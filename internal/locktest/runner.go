package locktest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast"
)

var ErrTask = errors.New("the task failed")

type Task = func(ctx context.Context) error

func NewRunner(tb testing.TB, c *holdfast.Client, opts ...holdfast.RunnerOption) *holdfast.LeaderAwareRunner {
	tb.Helper()
	r, err := holdfast.NewLeaderAwareRunner(c, "job", opts...)
	if err != nil {
		tb.Fatalf("NewLeaderAwareRunner: %v", err)
	}
	return r
}

// Campaign has r campaign on a goroutine of its own; the channel gets Run's result.
func Campaign(ctx context.Context, r *holdfast.LeaderAwareRunner, fn Task) <-chan error {
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx, fn) }()
	return done
}

// UntilEnd is a task that leads as long as it may.
func UntilEnd(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// Pending fails the test if done has a result already.
func Pending(tb testing.TB, done <-chan error, what string) {
	tb.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		tb.Errorf("%s: returned %v", what, err)
	default:
	}
}
