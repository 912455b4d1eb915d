package holdfast

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
)

// ErrReleased: the hold was released by its owner; the cause of its context.
var ErrReleased = errors.New("lock released")

// errSteppedDown is the cause of a task's context when leadership was given up.
var errSteppedDown = errors.New("stepped down")

// errShutdown ends what a Shutdown cuts short.
var errShutdown = fmt.Errorf("holdfast: the client is %w", driver.ErrClosed)

// errHung is the result of a backend call that is not waited for any longer.
var errHung = errors.New("the call did not return within its time limit")

// endOf says why a context has ended. A cause of the caller's own is wrapped. If the
// cause is the end of another lock's hold, or of another Client, only its text is included:
// wrapped, it would match ErrLost for the wrong lock.
func endOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	switch {
	case driver.OutcomeKnown(cause) || errors.Is(cause, ErrReleased) || errors.Is(cause, errSteppedDown):
		return fmt.Errorf("%w: %s", err, cause.Error())
	case errors.Is(cause, err):
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// isClosed reports whether a channel that nobody sends to is closed. A select between it and
// the end of a context takes either if both are so.
func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// until returns a context that also ends when other does, with its cause.
func until(ctx, other context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return ctx, func() { stop(); cancel(nil) }
}
