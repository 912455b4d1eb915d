package holdfast

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Hold is a lock that this process has, renewed in the background until Release or
// a loss. All methods are safe for concurrent use.
type Hold struct {
	client    *Client
	ctx       holding
	cancel    context.CancelCauseFunc
	terms     *terms
	kept      kept
	slot      int
	managed   bool                    // Do, a runner or a LeaseManager releases it when its work is over
	release   atomic.Pointer[release] // nil until it begins
	doubt     doubt                   // a duplicate of the acquiring request may land
	passUntil time.Duration           // when it is to be released for all
	writes    uint64                  // of its data, as far as known; for whoever has the manager's turn
}

// terms are what the holds of one asker, or of many, have in common.
type terms struct {
	policy
	over func(h *Hold, released bool) // called when a hold is lost and when it is released, or nil
}

// release is the one release of a hold.
type release struct {
	began time.Duration
	done  chan struct{}
	err   error // readable once done is closed
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
func withHold(ctx context.Context, h *Hold) *holding {
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

// TokenFrom returns the fencing token of the innermost hold whose context ctx
// descends from: that of Do's or a runner's function, or of Hold.Context. It
// reports false if there is none. The token is given whether or not the hold is
// still live; that is what a storage that compares tokens wants.
func TokenFrom(ctx context.Context) (uint64, bool) {
	if in := holdingFrom(ctx); in != nil {
		return in.hold.Token(), true
	}
	return 0, false
}

// newHold begins to keep a lease granted to a. Its context descends from parent.
func (c *Client) newHold(parent context.Context, a *asker, g grant, managed bool) *Hold {
	h := &Hold{client: c, managed: managed, slot: g.seat.slot, doubt: g.seat.doubt, passUntil: g.passUntil}
	ctx, cancel := context.WithCancelCause(parent)
	h.ctx, h.cancel = holding{ctx, h, holdingFrom(parent)}, cancel
	h.terms = a.terms
	h.kept.owner, h.kept.policy, h.kept.lease, h.kept.index = h, &a.terms.policy, g.lease, -1
	c.mu.Lock()
	c.holds[h] = struct{}{}
	c.mu.Unlock()
	c.queues.took(h, c.now())
	h.kept.tell(EventAcquired, "", nil)
	c.keeper.add(&h.kept, g.start)
	if c.closing.Err() != nil {
		h.shutDown(c.closing) // Shutdown may have looked before this hold was there
	}
	return h
}

// shutDown ends the hold's context, and releases the lock unless somebody else sees to
// that, after a function's return for one.
func (h *Hold) shutDown(ctx context.Context) {
	h.cancel(errShutdown)
	if !h.managed {
		h.client.background.Go(func() { _ = h.Release(ctx) }) // told to the observers
	}
}

// lost is the keeper's call: the hold is over without a release.
func (h *Hold) lost(cause error) {
	h.cancel(cause)
	h.client.queues.freed(h, h.client.now())
	if over := h.terms.over; over != nil {
		over(h, false)
	}
}

// Context ends when the hold does, before the lock can be another's. Its cause then
// tells why: ErrLost, ErrReleased, ErrClosed (Shutdown). That of Lock and TryLock
// carries the values, not the deadline or cancellation, of the context that the lock
// was taken with; that of Do descends from it.
func (h *Hold) Context() context.Context { return &h.ctx }

// Lease returns the plain value, for what needs the ID, such as a DataStore.
func (h *Hold) Lease() Lease { return h.kept.lease }

// Name returns the lock's name; with WithSlots, that of the slot's record.
func (h *Hold) Name() string { return h.kept.lease.Name }

// Slot returns which slot is held, counted from 0; 0 too without WithSlots.
func (h *Hold) Slot() int { return h.slot }

// Token returns the fencing token: greater than that of every earlier holder. Give
// it to whatever the lock protects, to refuse a holder that was paused too long.
func (h *Hold) Token() uint64 { return h.kept.lease.Token }

// Err is nil while the lock is held, and afterwards tells why it is not. It looks
// at the clock itself, without I/O or allocation, and so is right even in the
// instant after the process was paused, before any context could end.
func (h *Hold) Err() error {
	if h.ctx.Err() != nil {
		return context.Cause(&h.ctx)
	}
	return h.gone()
}

// gone is nil while the lease is renewed in time, also after the context has ended
// for another reason: canceled work may still be stopping.
func (h *Hold) gone() error {
	if why := h.kept.gone.Load(); why != nil {
		return *why
	}
	if h.client.now() >= time.Duration(h.kept.loss.Load()) {
		return errLate
	}
	return nil
}

var errLate = fmt.Errorf("holdfast: %w: not renewed in time", ErrLost)

// LostIn returns the time until the hold is lost unless it is renewed; not positive if it
// was not renewed in time. It goes by the clock alone: whether the hold is over for another
// reason is what Err tells.
func (h *Hold) LostIn() time.Duration {
	return time.Duration(h.kept.loss.Load()) - h.client.now()
}

// ExpiresIn returns the time until another may be granted the lock, unless it is
// renewed or released before: LostIn and the grace, less 0.1 % of the TTL. Work that
// outlives the hold must have stopped by then.
func (h *Hold) ExpiresIn() time.Duration {
	t := h.kept.timing
	return h.LostIn() + t.grace - t.ttl/driftPart
}

// String tells of the lease, without its ID.
func (h *Hold) String() string { return "hold of the " + h.kept.lease.String() }

// GoString keeps the ID out of %#v.
func (h *Hold) GoString() string { return "holdfast.Hold(" + h.String() + ")" }

// heldError is what this process's own hold says to who wants the lock.
func (h *Hold) heldError() error {
	l := h.kept.lease
	return &HeldError{Record: Record{Name: l.Name, State: StateHeld, Owner: l.Owner, Token: l.Token, TTL: l.TTL}}
}

// Release ends the hold's context and gives the lock back. Call it when the work
// is over, also after a loss. It may be called again, and by several goroutines:
// all wait for the one release.
//
// At least one request is sent, with a time limit of its own, even if ctx has
// ended. Failures are retried until ctx ends or the lease has expired anyway; the
// error then says that the lock may stay taken until its expiry, and a last clean-up
// goes on in the background. To release what is already lost is no error.
func (h *Hold) Release(ctx context.Context) error {
	if kept, first := h.letGo(); first {
		if kept && ctx.Err() == nil && h.passOn() {
			h.gaveBack(kept, nil)
			return nil
		}
		err := h.giveBack(ctx)
		h.gaveBack(kept, err)
		return err
	}
	r := h.release.Load()
	select {
	case <-r.done:
	case <-ctx.Done():
		if !isClosed(r.done) {
			return fmt.Errorf("holdfast: release %q: %w", h.Name(), endOf(ctx))
		}
	}
	return r.err
}

// letGo begins the release, once: it ends the hold's context and its renewal. kept says
// whether the lease was kept until now.
func (h *Hold) letGo() (kept, first bool) {
	if !h.release.CompareAndSwap(nil, &release{began: h.client.now(), done: make(chan struct{})}) {
		return false, false
	}
	h.cancel(ErrReleased)
	return h.client.keeper.drop(&h.kept), true
}

// gaveBack ends a release.
func (h *Hold) gaveBack(kept bool, err error) {
	c, k := h.client, &h.kept
	if err == nil && kept {
		k.tell(EventReleased, "", nil)
	}
	if err != nil {
		h.doubt.note(c.now() + k.timing.ttl)
	}
	if h.doubt.any && c.now() < h.doubt.until && !errors.Is(err, ErrClosed) {
		c.cleanUp(k.lease, h.doubt.until, k.timing.tryTimeout, k.emit)
	}
	c.queues.freed(h, h.yieldUntil())
	c.mu.Lock()
	delete(c.holds, h)
	c.mu.Unlock()
	r := h.release.Load()
	r.err = err
	close(r.done)
	if over := h.terms.over; over != nil {
		over(h, true)
	}
	c.work.Done()
}

// giveBack sends the release, again and again if need be. The calls carry ctx's
// values only: a canceled caller is the usual reason to release.
func (h *Hold) giveBack(ctx context.Context) error {
	values := context.WithoutCancel(ctx)
	for n := 0; ; n++ {
		pause, err := h.tryGiveBack(values, n)
		if pause == 0 {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		case <-h.client.base.Done():
		}
		if ctx.Err() != nil || h.client.base.Err() != nil {
			return h.leftToExpire(err)
		}
	}
}

// tryGiveBack sends one release, number n. With a pause, it is to be tried again then.
func (h *Hold) tryGiveBack(ctx context.Context, n int) (pause time.Duration, err error) {
	c, k := h.client, &h.kept
	err = c.releaseOnce(ctx, k.lease, k.timing.tryTimeout)
	if err == nil || errors.Is(err, ErrLost) {
		return 0, nil
	}
	k.tell(EventError, "release", err)
	if driver.OutcomeKnown(err) {
		return 0, err
	}
	pause = k.timing.retry(n)
	if over := time.Duration(k.loss.Load()) + k.timing.grace; c.base.Err() != nil || c.now()+pause >= over {
		return 0, h.leftToExpire(err)
	}
	return pause, err
}

func (h *Hold) leftToExpire(err error) error {
	return fmt.Errorf("holdfast: release %q: outcome unknown, it may stay taken until its lease expires: %w", h.Name(), err)
}
