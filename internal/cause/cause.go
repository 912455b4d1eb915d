// Package cause explains why contexts end.
package cause

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/driver"
)

// Causes for which a hold's context ends, besides the errors of package driver.
var (
	// ErrReleased: the hold was released by its owner.
	ErrReleased = driver.Errorf("lock released")
	// ErrSteppedDown: the leader stepped down.
	ErrSteppedDown = driver.Errorf("stepped down")
	// ErrShutdown: the Client has shut down.
	ErrShutdown = driver.Errorf("the client is %w", driver.ErrClosed)
)

// Of returns why a context has ended. The error wraps a cause of the caller's own. Of a cause
// that is the end of another lock's hold, or of another Client, it has the text only: wrapped,
// the cause would match ErrLost for the wrong lock.
func Of(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	switch {
	case driver.OutcomeKnown(cause) || errors.Is(cause, ErrReleased) || errors.Is(cause, ErrSteppedDown):
		return driver.Errorf("%w: %s", err, driver.ErrorText(cause))
	case errors.Is(cause, err):
		return cause
	}
	return driver.Errorf("%w: %w", err, cause)
}

// Check refuses a nil context.
func Check(ctx context.Context) error {
	if ctx == nil {
		return driver.Invalid("ctx", "nil", "a context")
	}
	return nil
}

// Join returns a context that descends from ctx and also ends when other does, with the cause of
// that.
func Join(ctx, other context.Context) (joined context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	detach := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return ctx, func() { detach(); cancel(nil) }
}

// IsClosed reports whether a channel is closed to which nothing is sent. A caller needs it after
// a select between such a channel and the end of a context, which may take either when both are
// ready.
func IsClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
