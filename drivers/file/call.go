package file

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// lastWord is how long a call whose context has ended may take to say what it was waiting for.
// If the disk hangs it says nothing.
const lastWord = 50 * time.Millisecond

// call runs work on a goroutine of its own, because a disk that hangs cannot be
// interrupted: the caller returns when its context ends all the same, and Close
// waits for the rest. name is only for the error.
func (l *Locker) call(ctx context.Context, op, name string, invalid error, work func(context.Context) error) error {
	err := l.detached(ctx, invalid, work)
	if err == nil {
		return nil
	}
	return &driver.OpError{Op: op, Backend: backend, Name: name, Err: err}
}

func (l *Locker) detached(ctx context.Context, invalid error, work func(context.Context) error) error {
	if !l.enter() {
		return driver.ErrClosed
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
	case err := <-done: // an outcome, or what the call was waiting for, is better
		return err
	case <-time.After(lastWord):
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

// acquires are the acquires at work, by the ID of their leases.
type acquires struct {
	mu  sync.Mutex
	ids map[driver.LeaseID]*atWork
}

type atWork struct {
	calls int
	ended chan struct{} // closed when there are none left
}

func (a *acquires) begin(id driver.LeaseID) (end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.ids[id]
	if w == nil {
		w = &atWork{ended: make(chan struct{})}
		if a.ids == nil {
			a.ids = map[driver.LeaseID]*atWork{}
		}
		a.ids[id] = w
	}
	w.calls++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if w.calls--; w.calls == 0 {
			delete(a.ids, id)
			close(w.ended)
		}
	}
}

// wait waits until no acquire with the ID is at work.
func (a *acquires) wait(ctx context.Context, id driver.LeaseID) error {
	a.mu.Lock()
	w := a.ids[id]
	a.mu.Unlock()
	if w == nil {
		return nil
	}
	select {
	case <-w.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the acquire with this ID is still at work: %w", ended(ctx))
	}
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
