package engine

import (
	"cmp"
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/settings"
)

// WaitAcquire waits until the lock is granted, ctx ends or Shutdown begins. The hold's context
// descends from parent. A managed hold is released by a function that owns it, not by Shutdown.
func (c *Client) WaitAcquire(
	ctx, parent context.Context, name string, s settings.Settings, emit Emit, managed bool,
) (*Hold, error) {
	return c.waitMeasured(ctx, parent, name, s, emit, managed, nil)
}

// waitMeasured acquires a lock by itself, or as a member of multi.
func (c *Client) waitMeasured(
	ctx, parent context.Context, name string, s settings.Settings, emit Emit, managed bool, multi *MultiHold,
) (h *Hold, err error) {
	ctx, measured := c.MeasureAcquire(ctx, name, s.Role, s.Slots)
	err = errPanicked
	defer func() { measured.End(err) }()
	return c.waitAcquire(ctx, parent, name, s, emit, managed, multi)
}

func (c *Client) waitAcquire(
	ctx, parent context.Context, name string, s settings.Settings, emit Emit, managed bool, multi *MultiHold,
) (*Hold, error) {
	if h := c.heldWithin(ctx, name, s.Slots); h != nil {
		return nil, errSelfDeadlock(name, h)
	}
	if !c.work.Start() {
		return nil, cause.ErrShutdown
	}
	ctx, stop := cause.Join(ctx, c.closing)
	defer stop()
	w := c.queues.join(name, s)
	defer c.queues.leave(w)
	c.awaitTurn(ctx, w, emit)
	a := c.NewAcquisition(name, s, emit)
	a.policy.multi = multi
	granted := false
	defer func() {
		if !granted { // also after a panic of the driver that the caller recovers
			a.Abandon()
			c.work.Done()
		}
	}()
	g, granted, err := a.waitUntilGranted(ctx, w)
	if granted {
		return c.granted(parent, a, g, managed)
	}
	if ctx.Err() != nil || c.closing.Err() != nil {
		err = c.WaitEnded(ctx, name, cmp.Or(c.queues.reason(w), err))
	}
	return nil, err
}

// ownHoldNotice is how long holds of this process keep a caller waiting before that is reported.
// It is longer than callers of one process usually wait for each other.
const ownHoldNotice = 30 * time.Second

// awaitTurn waits until the waiter is the first of its queue and may send requests, or until
// ctx ends. It reports a hold of this process that keeps it waiting for long, since the program
// may have forgotten to release it.
func (c *Client) awaitTurn(ctx context.Context, w *localWaiter, emit Emit) {
	select {
	case <-w.admitted:
		return
	default:
	}
	notice := time.NewTimer(ownHoldNotice)
	defer notice.Stop()
	for {
		select {
		case <-w.admitted:
			return
		case <-ctx.Done():
			return
		case <-notice.C:
			h, again := c.queues.longOwnHold(w, c.now(), ownHoldNotice)
			if h != nil {
				l := h.Lease()
				emit(event.Event{Type: event.HolderSeen, Name: l.Name, Owner: l.Owner, Token: l.Token, Time: time.Now(), Own: true})
			}
			notice.Reset(again)
		}
	}
}

// WaitEnded returns an error that says both why waiting ended and why the lock was not granted,
// if that is known. After Shutdown it is cause.ErrShutdown.
func (c *Client) WaitEnded(ctx context.Context, name string, kept error) error {
	if c.closing.Err() != nil {
		return cause.ErrShutdown
	}
	why := cause.Of(ctx)
	if kept == nil {
		return driver.Errorf("lock %q: waiting ended: %w", name, why)
	}
	return driver.Errorf("lock %q: waiting ended: %w; %w", name, why, kept)
}

// TryOnce makes one acquisition without waiting. The rest is as for WaitAcquire.
func (c *Client) TryOnce(ctx, parent context.Context, name string, s settings.Settings, emit Emit, managed bool) (*Hold, error) {
	return c.tryOnce(ctx, parent, name, s, emit, managed, nil)
}

func (c *Client) tryOnce(
	ctx, parent context.Context, name string, s settings.Settings, emit Emit, managed bool, multi *MultiHold,
) (*Hold, error) {
	if !c.work.Start() { // until Abandon has started its cleanups
		return nil, cause.ErrShutdown
	}
	defer c.work.Done()
	a := c.NewAcquisition(name, s, emit)
	a.policy.multi = multi
	// A reader that tries would take the place of one of its process that waits, and end their position.
	a.nobody = s.Mode == driver.Shared && c.queues.awaited([]string{name})
	var h *Hold
	defer func() {
		if h == nil { // also after a panic of the driver that the caller recovers
			a.Abandon()
		}
	}()
	h, err := c.TryAcquire(ctx, parent, a, managed)
	return h, err
}

// TryAcquire sends the request of an acquisition, or of each of its slots until one is granted.
// The hold's context descends from parent. After an error the caller tries again, or calls
// Abandon.
func (c *Client) TryAcquire(ctx, parent context.Context, a *Acquisition, managed bool) (h *Hold, err error) {
	ctx, measured := c.MeasureAcquire(ctx, a.name, a.settings.Role, a.settings.Slots)
	err = errPanicked
	defer func() { measured.End(err) }()
	return c.tryAcquire(ctx, parent, a, managed)
}

func (c *Client) tryAcquire(ctx, parent context.Context, a *Acquisition, managed bool) (*Hold, error) {
	if !c.work.Start() {
		return nil, cause.ErrShutdown
	}
	limited, stop := cause.Join(ctx, c.closing)
	defer stop()
	a.start(c.now())
	err := errPanicked
	defer func() {
		if err != nil {
			c.work.Done()
		}
	}()
	g, err := a.Try(limited)
	if err != nil {
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
	if c.closing.Err() != nil {
		c.CleanUp(g.lease, g.start+g.lease.TTL, a.settings.RequestTimeout, a.Emit)
		c.work.Done()
		return nil, cause.ErrShutdown
	}
	h := c.NewHold(parent, a, g, managed)
	h.Begin(g)
	return h, nil
}

// NewHold makes a hold of a lease that was granted to a. Its context descends from parent. Begin must follow.
func (c *Client) NewHold(parent context.Context, a *Acquisition, g Grant, managed bool) *Hold {
	h := &Hold{client: c, managed: managed, parent: parent, policy: a.policy,
		slot: int32(g.slot), isInDoubt: g.inDoubt.Any, inDoubtUntil: g.inDoubt.Until}
	h.entry.Init(&a.policy.Policy, g.lease, h)
	if m := h.measure(parent, telemetry.Hold); m != nil {
		h.parent = m
	}
	return h
}

// Begin reports the hold and begins to renew its lease. It calls no function of a user, so the caller
// may hold a mutex.
func (h *Hold) Begin(g Grant) {
	c := h.client
	c.mu.Lock()
	c.holds[h] = struct{}{}
	c.mu.Unlock()
	c.queues.took(h, c.now())
	h.entry.Report(event.Acquired, "", nil)
	c.renewer.Add(&h.entry, g.start)
	if c.closing.Err() != nil {
		h.shutDown(c.closing) // Shutdown may not have seen this hold
	}
}
