package engine

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/settings"
)

// WaitAcquire waits until the lock is granted, ctx ends or Shutdown begins. The hold's context
// descends from parent. A managed hold is released by a function that owns it, not by Shutdown.
func (c *Client) WaitAcquire(ctx, parent context.Context, name string, s settings.Settings, emit Emit, managed bool) (*Hold, error) {
	ctx, measured := c.MeasureAcquire(ctx, name, s.Role)
	h, err := c.waitAcquire(ctx, parent, name, s, emit, managed)
	measured.End(err)
	return h, err
}

func (c *Client) waitAcquire(ctx, parent context.Context, name string, s settings.Settings, emit Emit, managed bool) (*Hold, error) {
	if h := c.heldWithin(ctx, name, s.Slots); h != nil {
		return nil, driver.Errorf("holdfast: lock %q: the caller itself holds it and would deadlock: %w", name, h.heldError())
	}
	if !c.work.Start() {
		return nil, cause.ErrShutdown
	}
	ctx, stop := cause.Join(ctx, c.closing)
	defer stop()
	w := c.queues.join(name, s.Slots, s.TTL)
	defer c.queues.leave(w)
	c.awaitTurn(ctx, w, emit)
	if ctx.Err() != nil || c.closing.Err() != nil {
		c.work.Done()
		return nil, c.WaitEnded(ctx, name, c.queues.reason(w))
	}
	a := c.NewAcquisition(name, s, emit)
	a.JoinQueue()
	defer a.LeaveQueue()
	g, err := a.waitUntilGranted(ctx, w)
	if err != nil {
		a.giveUpPosition()
		a.Abandon()
		c.work.Done()
		return nil, err
	}
	return c.granted(parent, a, g, managed)
}

// ownHoldNotice is how long holds of this process keep a caller waiting before that is reported.
// It is longer than callers of one process usually wait for each other.
const ownHoldNotice = 30 * time.Second

// awaitTurn waits until the waiter is the first of its queue and may send requests, or until
// ctx ends. It reports a hold of this process that keeps it waiting for long, since the program
// may have forgotten to release it.
func (c *Client) awaitTurn(ctx context.Context, w *waiter, emit Emit) {
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
			h, again := c.queues.longOwnHold(w, c.now(), ownHoldNotice)
			if h != nil {
				l := h.entry.Lease
				emit(event.Event{Type: event.HolderSeen, Name: l.Name, Owner: l.Owner, Token: l.Token, Time: time.Now(), Own: true})
			}
			notice.Reset(again)
		}
	}
}

// TryOnce makes one acquisition without waiting. The rest is as for WaitAcquire.
func (c *Client) TryOnce(ctx, parent context.Context, name string, s settings.Settings, emit Emit, managed bool) (*Hold, error) {
	if !c.work.Start() { // until Abandon has started its cleanups
		return nil, cause.ErrShutdown
	}
	defer c.work.Done()
	a := c.NewAcquisition(name, s, emit)
	h, err := c.TryAcquire(ctx, parent, a, managed)
	if err != nil {
		a.Abandon()
	}
	return h, err
}

// TryAcquire sends the request of an acquisition, or of each of its slots until one is granted.
// The hold's context descends from parent. After an error the caller tries again, or calls
// Abandon.
func (c *Client) TryAcquire(ctx, parent context.Context, a *Acquisition, managed bool) (*Hold, error) {
	ctx, measured := c.MeasureAcquire(ctx, a.name, a.settings.Role)
	h, err := c.tryAcquire(ctx, parent, a, managed)
	measured.End(err)
	return h, err
}

func (c *Client) tryAcquire(ctx, parent context.Context, a *Acquisition, managed bool) (*Hold, error) {
	if !c.work.Start() {
		return nil, cause.ErrShutdown
	}
	limited, stop := cause.Join(ctx, c.closing)
	defer stop()
	g, err := a.Try(limited, a.candidates())
	if err != nil {
		c.work.Done()
		if c.closing.Err() != nil {
			return nil, cause.ErrShutdown
		}
		return nil, err
	}
	return c.granted(parent, a, g, managed)
}

// granted returns the hold of a granted lease. If Shutdown has begun, it cleans up the lease
// instead.
func (c *Client) granted(parent context.Context, a *Acquisition, g Grant, managed bool) (*Hold, error) {
	// Promise 5: requests for other slots may be granted although their replies were lost.
	a.abandonOthers(g.attempt)
	if c.closing.Err() != nil {
		c.CleanUp(g.lease, g.start+g.lease.TTL, a.settings.RequestTimeout, a.Emit)
		c.work.Done()
		return nil, cause.ErrShutdown
	}
	return c.NewHold(parent, a, g, managed), nil
}
