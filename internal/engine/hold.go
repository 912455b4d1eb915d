package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/renewal"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// Hold is a lock that this process holds. It is renewed in the background until Release or a
// loss. All methods are safe for concurrent use.
//
// A process may have very many holds. What only some of them need is made when it is needed.
type Hold struct {
	client       *Client
	parent       context.Context            // of its context
	ctx          atomic.Pointer[ownContext] // nil until Context is called
	ended        atomic.Pointer[error]      // the cause of the end of its context, or nil
	policy       *Policy
	entry        renewal.Entry
	slot         int32                   // below 1,000; shares a word with two fields
	managed      bool                    // Do, a runner, a LeaseManager or Partitions releases it after its work
	isInDoubt    bool                    // a duplicate of the acquiring request may land, until inDoubtUntil
	release      atomic.Pointer[release] // nil until it begins
	inDoubtUntil time.Duration           // see isInDoubt
	takenAt      time.Duration           // when the queue was notified of it
	nextHolder   *Hold                   // of this process, in the same queue
	writer       atomic.Pointer[writer]  // of its data; nil until it is used
	handle
}

// OwnedByFunction reports whether Do, a runner, Partitions or a LeaseManager with a function releases the hold, after the function has
// returned.
func (h *Hold) OwnedByFunction() bool {
	return h.managed && (h.policy.Role != telemetry.Managed || h.policy.Func)
}

// InMultiHold reports whether the hold is released together with others.
func (h *Hold) InMultiHold() bool { return h.policy.multi != nil }

// handle is what the program has of a hold: nil until it asks.
type handle struct{ made atomic.Pointer[any] }

// Handle returns what the program has of the hold, the same each time. newHandle makes it.
func (h *handle) Handle(newHandle func() any) any {
	if h.made.Load() == nil {
		made := newHandle()
		h.made.CompareAndSwap(nil, &made)
	}
	return *h.made.Load()
}

// ownContext is the context that a hold ends.
type ownContext struct {
	holdContext
	cancel context.CancelCauseFunc
}

// Policy is what the holds of one acquisition, or of many, have in common.
type Policy struct {
	renewal.Policy
	Slots int                          // how many holders the lock may have
	Over  func(h *Hold, released bool) // is called when a hold is lost, and when it is released; or nil
	Func  bool                         // a LeaseManager's: it calls a function for each hold
	multi *MultiHold                   // whose member the hold is, or nil
}

// over calls Over.
func (p *Policy) over(h *Hold, released bool) {
	if p.Over != nil {
		p.Over(h, released)
	}
}

// holdContext is a context of a hold. It ends with the context that it contains.
type holdContext struct {
	context.Context
	hold  *Hold
	outer *holdContext // of the hold within whose context this one was made, or nil
	multi *MultiHold   // nil unless it is the innermost context of a MultiHold; hold is its last member then
}

type holdKey struct{}

// Value returns the holdContext itself for holdKey, and the Client's hook for its key.
func (in *holdContext) Value(key any) any {
	switch key {
	case holdKey{}:
		return in
	case telemetry.ContextKey{}:
		return in.hold.client.hook
	}
	return in.Context.Value(key)
}

// String shows no more than the name of the lock.
func (in *holdContext) String() string {
	return fmt.Sprintf("context of the hold of %q", in.hold.Name())
}

// WithHold returns a context of the hold that descends from ctx. ctx may be of other holds.
func WithHold(ctx context.Context, h *Hold) context.Context {
	return &holdContext{ctx, h, holdContextFrom(ctx), nil}
}

func holdContextFrom(ctx context.Context) *holdContext {
	if ctx == nil {
		return nil
	}
	in, _ := ctx.Value(holdKey{}).(*holdContext)
	return in
}

// HoldFrom returns the innermost hold whose context ctx descends from. It returns false if there
// is none, or if that is a MultiHold: the caller has to say which of its members it means.
func HoldFrom(ctx context.Context) (*Hold, bool) {
	if in := holdContextFrom(ctx); in != nil && in.multi == nil {
		return in.hold, true
	}
	return nil, false
}

// Encloses reports whether ctx descends from the hold's context, directly or through that of another hold.
func (h *Hold) Encloses(ctx context.Context) bool {
	for in := holdContextFrom(ctx); in != nil; in = in.outer {
		if in.hold == h {
			return true
		}
	}
	return false
}

// heldWithin returns a renewed hold that ctx descends from, if such holds have all slots of the
// lock, and else nil. A caller with that ctx would deadlock if it waited for them.
func (c *Client) heldWithin(ctx context.Context, name string, slots int) *Hold {
	own := map[int]*Hold{}
	for in := holdContextFrom(ctx); in != nil; in = in.outer {
		if slot, ok := slotOf(name, in.hold.Name(), slots); ok && in.hold.client == c && in.hold.keepsLock() {
			if own[slot] = in.hold; len(own) == slots {
				return in.hold
			}
		}
	}
	return nil
}

// keepsLock reports whether the lease is renewed and its release has not begun. The context may have ended already.
func (h *Hold) keepsLock() bool { return h.LeaseErr() == nil && h.release.Load() == nil }

// errSelfDeadlock is the error of a caller within a hold that it would wait for.
func errSelfDeadlock(name string, h *Hold) error {
	return driver.Errorf("lock %q: the caller itself holds it and would deadlock: %w", name, h.heldError())
}

// GiveUp ends the hold for a cause and stops its renewal, so that the lease expires even if the
// work never ends.
func (h *Hold) GiveUp(cause error) { h.client.renewer.GiveUp(&h.entry, cause) }

// Report reports an event of the hold to the observers.
func (h *Hold) Report(t event.Type, op string, err error) { h.entry.Report(t, op, err) }

// Context returns a context that ends with the hold, before another can be granted the lock.
func (h *Hold) Context() context.Context {
	own := h.ctx.Load()
	if own == nil {
		own = h.makeContext()
	}
	if why := h.ended.Load(); why != nil {
		own.cancel(*why) // the hold may have ended before it had a context
	}
	return own
}

// makeContext makes the hold's context, unless another call is faster.
func (h *Hold) makeContext() *ownContext {
	parent := h.parent
	if h.ended.Load() != nil {
		parent = context.WithoutCancel(parent) // the cause is what ended the hold first
	}
	ctx, cancel := context.WithCancelCause(parent)
	own := &ownContext{holdContext{ctx, h, holdContextFrom(parent), nil}, cancel}
	if !h.ctx.CompareAndSwap(nil, own) {
		cancel(nil)
		return h.ctx.Load()
	}
	return own
}

// cancel ends the hold's context, for the cause of the first call. Each call returns after the
// context has ended: a later one may be followed by the release, while the first is still at it.
func (h *Hold) cancel(cause error) {
	h.ended.CompareAndSwap(nil, &cause)
	if h.policy.multi != nil {
		h.policy.multi.memberEnded(h, *h.ended.Load())
	}
	// Promise 1: the context ends before the release is sent.
	if own := h.ctx.Load(); own != nil {
		own.cancel(*h.ended.Load())
	}
}

// contextErr is the cause of the end of the hold's context, or nil.
func (h *Hold) contextErr() error {
	own := h.ctx.Load()
	if own != nil {
		if err := context.Cause(own); err != nil {
			return err
		}
	}
	if why := h.ended.Load(); why != nil { // Context is about to end what it has made
		return *why
	}
	if own != nil {
		return nil
	}
	return context.Cause(h.parent)
}

// Lease returns the lease with its ID.
func (h *Hold) Lease() driver.Lease { return h.client.renewer.Lease(&h.entry) }

// Name returns the name of the lock's record, which is that of the slot.
func (h *Hold) Name() string { return h.entry.Lease.Name }

// Slot returns the slot that is held, counted from 0.
func (h *Hold) Slot() int { return int(h.slot) }

// Mode returns whether the lock is shared.
func (h *Hold) Mode() driver.Mode { return h.entry.Lease.Mode }

// Token returns the fencing token.
func (h *Hold) Token() uint64 { return h.entry.Lease.Token }

// Err returns nil while the lock is held, and afterwards why it is not. It reads the clock itself,
// so it is right even just after a pause of the process, before any context could end.
func (h *Hold) Err() error {
	if err := h.contextErr(); err != nil {
		return err
	}
	return h.LeaseErr()
}

// LeaseErr returns nil while the lease is renewed in time, also when the context has ended for
// another reason: canceled work may still be stopping.
func (h *Hold) LeaseErr() error {
	if why := h.entry.LostErr(); why != nil {
		return why
	}
	if h.client.now() >= h.entry.LossAt() {
		return errLate
	}
	return nil
}

var errLate = driver.Errorf("%w: not renewed in time", driver.ErrLost)

// LostIn returns the time until the hold is lost unless it is renewed. It is not positive if the
// hold was not renewed in time.
func (h *Hold) LostIn() time.Duration {
	return h.entry.LossAt() - h.client.now()
}

// ExpiresIn returns the time until another may be granted the lock unless it is renewed or
// released before.
func (h *Hold) ExpiresIn() time.Duration {
	t := h.entry.Timing
	return h.LostIn() + t.Grace - t.TTL/timing.DriftPart
}

// String describes the lease without its ID.
func (h *Hold) String() string { return "hold of the " + h.Lease().String() }

// GoString keeps the ID out of %#v.
func (h *Hold) GoString() string { return "holdfast.Hold(" + h.String() + ")" }

// heldError is the error of a caller that this process's own hold keeps from the lock.
func (h *Hold) heldError() error {
	l := &h.entry.Lease
	return &driver.HeldError{Record: driver.Record{Name: l.Name, State: driver.StateHeld, Owner: l.Owner, Token: l.Token, TTL: l.TTL}}
}

// Cancel ends the hold's context for a cause. The lease stays renewed until it is released.
func (h *Hold) Cancel(cause error) { h.cancel(cause) }

// StopRenewal stops renewing the lease. The hold's owner releases it.
func (h *Hold) StopRenewal() { h.client.renewer.Remove(&h.entry) }

// RenewNow renews the lease at once.
func (h *Hold) RenewNow() { h.client.renewer.RenewNow(&h.entry) }
