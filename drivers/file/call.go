package file

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
)

// call runs work on a goroutine of its own, because a disk that hangs cannot be
// interrupted: the caller returns when its context ends all the same, and Close
// waits for the rest. name is only for the error.
func (l *Locker) call(ctx context.Context, op, name string, invalid error, work func(context.Context) error) error {
	err := l.detached(ctx, invalid, work)
	if err == nil {
		return nil
	}
	return &holdfast.OpError{Op: op, Backend: backend, Name: name, Err: err}
}

func (l *Locker) detached(ctx context.Context, invalid error, work func(context.Context) error) error {
	if !l.enter() {
		return holdfast.ErrClosed
	}
	if invalid != nil {
		l.leave()
		return invalid
	}
	if err := ctx.Err(); err != nil {
		l.leave()
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, ownLimit, fmt.Errorf("no answer from %s within %v", l.dir, ownLimit))
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer l.leave()
		done <- work(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done: // both at once: a known outcome is better
		return err
	default:
		return ended(ctx)
	}
}

// enter counts a call, unless the Locker is closed.
func (l *Locker) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.calls++
	return true
}

// leave undoes enter.
func (l *Locker) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls--
	if l.calls == 0 && l.idle != nil {
		close(l.idle)
	}
}

// ended says why the context ended. The cause goes in as text: it may be the loss of
// some other lock, which must not look like the outcome for this one.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(cause, err) {
		return err
	}
	return fmt.Errorf("%w: %s", err, cause.Error())
}
