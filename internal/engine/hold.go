package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/renewal"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// Hold is a lock that this process has, renewed in the background until Release or
// a loss. All methods are safe for concurrent use.
type Hold struct {
	client       *Client
	ctx          holding
	cancel       context.CancelCauseFunc
	policy       *Policy
	entry        renewal.Entry
	slot         int
	managed      bool                    // Do, a runner or a LeaseManager releases it when its work is over
	release      atomic.Pointer[release] // nil until it begins
	inDoubt      InDoubt                 // a duplicate of the acquiring request may land
	handoffUntil time.Duration           // when it is to be released for all processes
	writer       atomic.Pointer[writer]  // of its data; nil until it is used
}

// terms are what the holds of one asker, or of many, have in common.
type Policy struct {
	renewal.Policy
	Over func(h *Hold, released bool) // called when a hold is lost and when it is released, or nil
}

// holding is a context of a hold. It ends as the context that it is made of.
type holding struct {
	context.Context
	hold  *Hold
	outer *holding // what that descends from, or nil
}

type holdKey struct{}

// Value finds the hold for holdKey.
func (in *holding) Value(key any) any {
	if key == (holdKey{}) {
		return in
	}
	return in.Context.Value(key)
}

// String shows no more than the name of the lock.
func (in *holding) String() string { return fmt.Sprintf("context of the hold of %q", in.hold.Name()) }

// withHold returns a context of a hold, within whatever holds ctx is of.
func WithHold(ctx context.Context, h *Hold) *holding {
	return &holding{ctx, h, holdingFrom(ctx)}
}

func holdingFrom(ctx context.Context) *holding {
	in, _ := ctx.Value(holdKey{}).(*holding)
	return in
}

// HoldFrom returns the innermost hold whose context ctx descends from: that of Do's
// or a runner's function, or of Hold.Context. It reports false if there is none.
// Releasing it is up to whoever took it: Do and runners do so themselves.
func HoldFrom(ctx context.Context) (*Hold, bool) {
	if in := holdingFrom(ctx); in != nil {
		return in.hold, true
	}
	return nil, false
}

// newHold begins to keep a lease granted to a. Its context descends from parent.
func (c *Client) NewHold(parent context.Context, a *Acquisition, g grant, managed bool) *Hold {
	h := &Hold{client: c, managed: managed, slot: g.attempt.slot, inDoubt: g.attempt.inDoubt, handoffUntil: g.handoffUntil}
	ctx, cancel := context.WithCancelCause(parent)
	h.ctx, h.cancel = holding{ctx, h, holdingFrom(parent)}, cancel
	h.policy = a.policy
	h.entry.Init(&a.policy.Policy, g.lease, h)
	c.mu.Lock()
	c.holds[h] = struct{}{}
	c.mu.Unlock()
	c.queues.took(h, c.now())
	h.entry.Report(event.Acquired, "", nil)
	c.renewer.Add(&h.entry, g.start)
	if c.closing.Err() != nil {
		h.shutDown(c.closing) // Shutdown may have looked before this hold was there
	}
	return h
}

// shutDown ends the hold's context, and releases the lock unless somebody else sees to
// that, after a function's return for one.
func (h *Hold) shutDown(ctx context.Context) {
	h.cancel(cause.ErrShutdown)
	if !h.managed {
		h.client.background.Go(func() { _ = h.Release(ctx) }) // told to the observers
	}
}

// lost is the keeper's call: the hold is over without a release.
func (h *Hold) Lost(cause error) {
	h.cancel(cause)
	h.client.queues.freed(h, h.client.now())
	if over := h.policy.Over; over != nil {
		over(h, false)
	}
}

// GiveUp ends the hold for a cause and stops its renewal, so that the lease expires even if the
// work never ends.
func (h *Hold) GiveUp(cause error) { h.client.renewer.GiveUp(&h.entry, cause) }

// Report reports an event of the hold to the observers.
func (h *Hold) Report(t event.Type, op string, err error) { h.entry.Report(t, op, err) }

// Context ends when the hold does, before the lock can be another's. Its cause then
// tells why: ErrLost, ErrReleased, ErrClosed (Shutdown). That of Lock and TryLock
// carries the values, not the deadline or cancellation, of the context that the lock
// was taken with; that of Do descends from it.
func (h *Hold) Context() context.Context { return &h.ctx }

// Lease returns the plain value, for what needs the ID, such as a DataStore.
func (h *Hold) Lease() driver.Lease { return h.entry.Lease }

// Name returns the lock's name; with WithSlots, that of the slot's record.
func (h *Hold) Name() string { return h.entry.Lease.Name }

// Slot returns which slot is held, counted from 0; 0 too without WithSlots.
func (h *Hold) Slot() int { return h.slot }

// Token returns the fencing token: greater than that of every earlier holder. Give
// it to whatever the lock protects, to refuse a holder that was paused too long.
func (h *Hold) Token() uint64 { return h.entry.Lease.Token }

// Err is nil while the lock is held, and afterwards tells why it is not. It looks
// at the clock itself, without I/O or allocation, and so is right even in the
// instant after the process was paused, before any context could end.
func (h *Hold) Err() error {
	if h.ctx.Err() != nil {
		return context.Cause(&h.ctx)
	}
	return h.LeaseErr()
}

// gone is nil while the lease is renewed in time, also after the context has ended
// for another reason: canceled work may still be stopping.
func (h *Hold) LeaseErr() error {
	if why := h.entry.LostErr(); why != nil {
		return why
	}
	if h.client.now() >= h.entry.LossAt() {
		return errLate
	}
	return nil
}

var errLate = fmt.Errorf("holdfast: %w: not renewed in time", driver.ErrLost)

// LostIn returns the time until the hold is lost unless it is renewed; not positive if it
// was not renewed in time. It goes by the clock alone: whether the hold is over for another
// reason is what Err tells.
func (h *Hold) LostIn() time.Duration {
	return h.entry.LossAt() - h.client.now()
}

// ExpiresIn returns the time until another may be granted the lock, unless it is
// renewed or released before: LostIn and the grace, less 0.1 % of the TTL. Work that
// outlives the hold must have stopped by then.
func (h *Hold) ExpiresIn() time.Duration {
	t := h.entry.Timing
	return h.LostIn() + t.Grace - t.TTL/timing.DriftPart
}

// String tells of the lease, without its ID.
func (h *Hold) String() string { return "hold of the " + h.entry.Lease.String() }

// GoString keeps the ID out of %#v.
func (h *Hold) GoString() string { return "holdfast.Hold(" + h.String() + ")" }

// heldError is what this process's own hold says to who wants the lock.
func (h *Hold) heldError() error {
	l := h.entry.Lease
	return &driver.HeldError{Record: driver.Record{Name: l.Name, State: driver.StateHeld, Owner: l.Owner, Token: l.Token, TTL: l.TTL}}
}

// Cancel ends the hold's context for a cause. The lease stays renewed until it is released.
func (h *Hold) Cancel(cause error) { h.cancel(cause) }

// StopRenewal has the lease no longer renewed. Its owner releases it.
func (h *Hold) StopRenewal() { h.client.renewer.Remove(&h.entry) }
