package election

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/cause"
)

// StepDown gives leadership up: the task's context ends, and when the task has
// returned the lock is released; for the cool-down others go first. It waits for
// the release. If ctx ends before, the lease is renewed no more, so that it expires
// although the task still runs, and the error says so. Without leadership it
// does nothing. A task may step down with its own context: then it is not waited for.
func (r *Runner) StepDown(ctx context.Context) error {
	t := r.term.Load()
	if t == nil {
		return nil
	}
	own := r.within(ctx)
	t.stepDown(cause.ErrSteppedDown)
	if own {
		return nil
	}
	select {
	case <-t.over:
		return nil
	case <-ctx.Done():
		t.giveUp(cause.ErrSteppedDown)
		return fmt.Errorf("holdfast: step down %q: the task has not returned; the lock frees when its lease expires: %w", r.name, cause.Of(ctx))
	}
}

// Close ends the runner: Run and RunTaskOnLeader return ErrClosed, a running task's
// context ends, and the lock is released when it has returned. Close waits for
// that. If ctx ends before, the lease is renewed no more, as with StepDown. Closing
// again waits again. A task may close with its own context: then it is not waited for.
func (r *Runner) Close(ctx context.Context) error {
	own := r.within(ctx)
	r.close(errClosed)
	if t := r.term.Load(); t != nil {
		t.hold.Cancel(errClosed)
	}
	if own {
		return nil
	}
	if !r.seize(ctx) {
		if t := r.term.Load(); t != nil {
			t.giveUp(errClosed)
		}
		return fmt.Errorf("holdfast: close runner %q: the task has not returned; the lock frees when its lease expires: %w", r.name, cause.Of(ctx))
	}
	defer func() { <-r.slot }()
	t := r.term.Load()
	if t == nil {
		return nil
	}
	t.look() // its steward retires it
	select {
	case <-t.over:
		return nil
	case <-ctx.Done():
	}
	select { // one request is waited for, as with Release
	case <-t.over:
		return nil
	case <-time.After(r.settings.RequestTimeout):
		return fmt.Errorf("holdfast: close runner %q: the lock is still being released: %w", r.name, cause.Of(ctx))
	}
}

// seize takes the slot: no task runs then. It succeeds also with a ctx that has
// ended, if there is nothing to wait for.
func (r *Runner) seize(ctx context.Context) bool {
	select {
	case r.slot <- struct{}{}:
		return true
	default:
	}
	select {
	case r.slot <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}
