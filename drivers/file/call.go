package file

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// resultWait is how long a caller whose context has ended waits for its call to return an
// outcome, or to say what it was waiting for. If the disk hangs, the call returns neither.
const resultWait = 50 * time.Millisecond

// call runs work on a goroutine of its own and wraps its error. Nothing can interrupt work
// while the disk hangs; call returns soon after ctx ends all the same, and Close waits for
// the goroutine. invalid is the result of checking the arguments.
func (l *Locker) call(ctx context.Context, op, name string, invalid error, work func(context.Context) error) error {
	return opError(ctx, op, name, l.runDetached(ctx, invalid, work))
}

// opError wraps the error of a call about a lock, and says whether the system denied it.
func opError(ctx context.Context, op, name string, err error) error {
	if err == nil {
		return nil
	}
	var unsaved *unsavedError // every other error comes before the record is replaced
	if isDenied(err) && !errors.As(err, &unsaved) && !driver.OutcomeKnown(err) && ctx.Err() == nil {
		err = driver.Denied(withAdvice(err))
	}
	return driverutil.OpError(op, backend, name, err)
}

func (l *Locker) runDetached(ctx context.Context, invalid error, work func(context.Context) error) error {
	if !l.calls.Begin() {
		return driver.ErrClosed
	}
	if invalid != nil {
		l.calls.End()
		return invalid
	}
	if err := ctx.Err(); err != nil {
		l.calls.End()
		return driverutil.Unsent(err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, l.callLimit, fmt.Errorf("no answer from %s within %v", l.dir, l.callLimit))
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer l.calls.End()
		done <- work(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(resultWait):
		return ended(ctx)
	}
}

// acquires has the acquires under way, by the ID of their requests.
type acquires struct {
	mu  sync.Mutex
	ids map[driver.LeaseID]*pendingCalls
}

// pendingCalls counts the acquires under way with one ID.
type pendingCalls struct {
	calls int
	ended chan struct{} // closed when there are none left
}

// begin counts an acquire until end is called.
func (a *acquires) begin(id driver.LeaseID) (end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.ids[id]
	if w == nil {
		w = &pendingCalls{ended: make(chan struct{})}
		if a.ids == nil {
			a.ids = map[driver.LeaseID]*pendingCalls{}
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

// wait waits until no acquire with the ID is under way.
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
		return driver.Errorf("the acquire with this ID is still under way: %w", ended(ctx))
	}
}

// ended returns why the context ended.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(cause, err) {
		return err
	}
	// Promise 4: the cause is included as text. It may be the loss of another lock, and must
	// not count as the loss of this one.
	return driver.Errorf("%w: %s", err, driver.ErrorText(cause))
}
