package election

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/cause"
)

// StepDown ends the task's context, waits until the task has returned and the lock is released, and
// begins a cool-down. If ctx ends before, the renewal of the lease stops.
func (r *Runner) StepDown(ctx context.Context) error {
	if err := cause.Check(ctx); err != nil {
		return err
	}
	l := r.leadership.Load()
	if l == nil {
		return nil
	}
	fromOwnTask := r.inTask(ctx)
	l.stepDown(cause.ErrSteppedDown)
	if fromOwnTask {
		return nil // to wait would deadlock
	}
	select {
	case <-l.released:
		return nil
	case <-ctx.Done():
		if cause.IsClosed(l.released) {
			return nil
		}
		l.giveUp(cause.ErrSteppedDown)
		return driver.Errorf("step down %q: the task or the release has not ended; the lock frees when its lease expires, at the latest: %w",
			r.name, cause.Of(ctx))
	}
}

// Close ends the runner, and waits until the task has returned and the lock is released. If ctx ends
// before, the renewal of the lease stops.
func (r *Runner) Close(ctx context.Context) error {
	if err := cause.Check(ctx); err != nil {
		return err
	}
	fromOwnTask := r.inTask(ctx)
	r.close(errClosed)
	if l := r.leadership.Load(); l != nil {
		l.hold.Cancel(errClosed)
	}
	if fromOwnTask {
		return nil // to wait would deadlock
	}
	if !r.takeTurn(ctx) {
		if l := r.leadership.Load(); l != nil {
			l.giveUp(errClosed)
		}
		return driver.Errorf("close runner %q: Run or RunTaskOnLeader has not returned; a lock that it holds frees when its lease expires, "+
			"at the latest: %w", r.name, cause.Of(ctx))
	}
	defer func() { <-r.busy }()
	l := r.leadership.Load()
	if l == nil {
		return nil
	}
	l.wakeWatch() // watch releases the lock
	select {
	case <-l.released:
		return nil
	case <-ctx.Done():
	}
	select { // at least one request is waited for, as with Release
	case <-l.released:
		return nil
	case <-time.After(r.settings.RequestTimeout):
		return driver.Errorf("close runner %q: the lock is still being released: %w", r.name, cause.Of(ctx))
	}
}

// takeTurn waits until no call campaigns or runs a task. It succeeds also with a ctx that has ended,
// if it need not wait.
func (r *Runner) takeTurn(ctx context.Context) bool {
	select {
	case r.busy <- struct{}{}:
		return true
	case <-ctx.Done():
	}
	select {
	case r.busy <- struct{}{}:
		return true
	default:
		return false
	}
}
