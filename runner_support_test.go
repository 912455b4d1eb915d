package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast"
)

var errTask = errors.New("the task failed")

type task = func(ctx context.Context) error

func newRunner(tb testing.TB, c *holdfast.Client, opts ...holdfast.RunnerOption) *holdfast.LeaderAwareRunner {
	tb.Helper()
	r, err := holdfast.NewLeaderAwareRunner(c, "job", opts...)
	if err != nil {
		tb.Fatalf("NewLeaderAwareRunner: %v", err)
	}
	return r
}

// campaign has r campaign on a goroutine of its own; the channel gets Run's result.
func campaign(ctx context.Context, r *holdfast.LeaderAwareRunner, fn task) <-chan error {
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx, fn) }()
	return done
}

// untilEnd is a task that leads as long as it may.
func untilEnd(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// pending fails the test if done has a result already.
func pending(tb testing.TB, done <-chan error, what string) {
	tb.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		tb.Errorf("%s: returned %v", what, err)
	default:
	}
}

// op counts the failures of one operation.
func (e *events) op(op string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.list {
		if ev.Type == holdfast.EventError && ev.Op == op {
			n++
		}
	}
	return n
}

// again is enter for a task that may be one of several in one leadership.
func (e *exclusive) again(ctx context.Context, name string, token uint64) {
	e.mu.Lock()
	same := e.token[name] == token
	e.mu.Unlock()
	if !same {
		e.enter(ctx, name, token)
	}
}
