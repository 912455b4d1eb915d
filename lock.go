package holdfast

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Do waits for the lock, runs fn on the caller's goroutine while it is held, and
// releases it after fn has returned or panicked.
//
// fn's context descends from ctx and ends, with a cause that matches ErrLost, if
// the lock is lost: fn must then stop at once. [TokenFrom] finds the fencing token
// in it. Do returns fn's error; if the lock was lost before fn returned, the result
// matches ErrLost too, even if fn returned nil. If ctx ends while waiting, the
// error matches both ctx's error and what kept the lock, such as ErrHeld.
// A release that fails is no error of Do: it is told to the observers and cleaned
// up in the background, and the lease expires by itself at the latest.
func (c *Client) Do(ctx context.Context, name string, fn func(ctx context.Context) error, opts ...Option) error {
	if fn == nil {
		return driver.Invalid("fn", "nil", "a function")
	}
	h, err := c.acquire(ctx, ctx, name, opts, true)
	if err != nil {
		return err
	}
	defer h.finish(ctx)
	if err := h.Err(); err != nil { // granted and canceled at once: do not begin
		if ctx.Err() != nil {
			return c.waitEnded(ctx, name, nil)
		}
		return fmt.Errorf("holdfast: lock %q: %w", name, err)
	}
	return h.verdict(fn(h.Context()))
}

// Lock waits until it has the lock. ctx bounds only the waiting; the hold lasts
// until Release or a loss. If ctx ends first, the error matches both ctx's error and
// what kept the lock: ErrHeld with the holder's record, or the backend's failure.
//
// Lock and Do with the context of a hold of the same name would wait for themselves:
// that is an error that matches ErrHeld, at once. So it is with a context that
// [context.WithoutCancel] made of it: whether the hold waits for its caller cannot be
// known. A goroutine that waits for the hold's end takes another context.
//
// Waiters of one Client queue first-in-first-out for each name, and only the first
// asks the backend. Where the backend can do it ([driver.HandOverer]) and wakes waiters, a
// release passes the lock on to the next of them in one request, unless that asks for a
// shorter TTL, for up to a twentieth of a second; then other processes that are as near ask
// first. There is no order between processes.
func (c *Client) Lock(ctx context.Context, name string, opts ...Option) (*Hold, error) {
	return c.acquire(ctx, context.WithoutCancel(ctx), name, opts, false)
}

// TryLock makes one attempt and does not queue. If another holds the lock, the
// error is a *[HeldError]. The Client remembers the holder that refused each attempt, so
// repeated calls of TryLock also take over a stuck lock. Any other error that is not
// ErrInvalid or ErrClosed means that the outcome is unknown; should the lock have been
// taken, it is freed in the background.
func (c *Client) TryLock(ctx context.Context, name string, opts ...Option) (*Hold, error) {
	s, err := c.settings(name, opts)
	if err != nil {
		return nil, err
	}
	if !c.work.Start() { // until a clean-up has begun
		return nil, errShutdown
	}
	defer c.work.Done()
	a := c.newAsker(name, s, c.emit(nil))
	h, err := c.tryAcquire(ctx, context.WithoutCancel(ctx), a, false)
	if err != nil {
		a.abandon()
	}
	return h, err
}

// settings applies options over the client's defaults and checks them.
func (c *Client) settings(name string, opts []Option) (settings, error) {
	cfg := c.defaults
	for _, o := range opts {
		if o == nil {
			return settings{}, errNilOption
		}
		o.applyLock(&cfg)
	}
	s, err := cfg.settle(c.limits)
	if err != nil {
		return s, err
	}
	return s, validateSlots(name, s.slots, c.limits)
}

func (c *Client) acquire(ctx, parent context.Context, name string, opts []Option, managed bool) (*Hold, error) {
	s, err := c.settings(name, opts)
	if err != nil {
		return nil, err
	}
	return c.waitAcquire(ctx, parent, name, s, c.emit(nil), managed)
}

// waitAcquire queues up and asks until the lock is granted. The hold's context
// descends from parent.
func (c *Client) waitAcquire(ctx, parent context.Context, name string, s settings, emit func(Event), managed bool) (*Hold, error) {
	if h := c.heldWithin(ctx, name, s.slots); h != nil {
		return nil, fmt.Errorf("holdfast: lock %q: the caller itself holds it and would deadlock: %w", name, h.heldError())
	}
	if !c.work.Start() {
		return nil, errShutdown
	}
	ctx, stop := until(ctx, c.closing)
	defer stop()
	w := c.queues.join(name, s.slots, s.ttl)
	defer c.queues.leave(w)
	c.awaitTurn(ctx, w, emit)
	if ctx.Err() != nil || c.closing.Err() != nil {
		c.work.Done()
		return nil, c.waitEnded(ctx, name, c.queues.reason(w))
	}
	a := c.newAsker(name, s, emit)
	g, err := a.wait(ctx, w)
	if err != nil {
		a.abandon()
		c.work.Done()
		return nil, err
	}
	return c.granted(parent, a, g, managed)
}

// ownHoldNotice is how long a hold of this process keeps a caller waiting before that is
// reported: longer than callers that share a lock usually wait for each other.
const ownHoldNotice = 30 * time.Second

// awaitTurn waits in the queue. If a hold of this process itself keeps it waiting for long,
// that is reported: the caller may be the one that should release it.
func (c *Client) awaitTurn(ctx context.Context, w *waiter, emit func(Event)) {
	select {
	case <-w.turn:
		return
	default:
	}
	notice := time.NewTimer(ownHoldNotice)
	defer notice.Stop()
	for {
		select {
		case <-w.turn:
			return
		case <-ctx.Done():
			return
		case <-notice.C:
			h, again := c.queues.standstill(w, c.now(), ownHoldNotice)
			if h != nil {
				l := h.kept.lease
				emit(Event{Type: EventHolderSeen, Name: l.Name, Owner: l.Owner, Token: l.Token, Time: time.Now(), own: true})
			}
			notice.Reset(again)
		}
	}
}

// tryAcquire makes one attempt, for each slot if need be. The hold's context descends from parent. After an
// error the asker can try again, or must abandon.
func (c *Client) tryAcquire(ctx, parent context.Context, a *asker, managed bool) (*Hold, error) {
	if !c.work.Start() {
		return nil, errShutdown
	}
	limited, stop := until(ctx, c.closing)
	defer stop()
	g, err := a.ask(limited, a.open())
	if err != nil {
		c.work.Done()
		if c.closing.Err() != nil {
			return nil, errShutdown
		}
		return nil, err
	}
	return c.granted(parent, a, g, managed)
}

// granted makes a hold of a lease, unless Shutdown has begun: then nobody wants it.
func (c *Client) granted(parent context.Context, a *asker, g grant, managed bool) (*Hold, error) {
	a.abandonBut(g.seat)
	if c.closing.Err() != nil {
		c.cleanUp(g.lease, g.start+g.lease.TTL, a.settings.tryTimeout, a.emit)
		c.work.Done()
		return nil, errShutdown
	}
	return c.newHold(parent, a, g, managed), nil
}

// finish releases a hold whose function is over. It bounds how long the caller is
// kept for a backend that does not answer: the clean-up goes on behind.
func (h *Hold) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.kept.timing.share(3, 30*time.Second))
	defer cancel()
	_ = h.Release(ctx) // told to the observers
}

// verdict joins a function's own error with the end of its lease, if that was not
// kept until the function had returned.
func (h *Hold) verdict(err error) error {
	gone := h.gone()
	switch {
	case gone == nil || errors.Is(err, gone):
		return err
	case err == nil:
		return gone
	}
	return fmt.Errorf("%w; %w", err, gone)
}
