package engine

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// A hold that is released while others of this process wait for the lock hands it over to the
// first of them. That takes one request instead of two, and wakes no other process.
//
// Other processes must have their turn too:
//   - Handoffs go on for a short time only, the handoff window. One request saved is much
//     against short holds, and little against long ones.
//   - The window is random, so that a distant process, whose request arrives long after the
//     release that woke it, does not always meet the next window.
//   - After the window, the next waiter of this process yields: it lets other processes send
//     their requests first, since they learn of a release later.
//   - Where the backend orders the waiters of all processes, that does it: the waiter of this process
//     has the last position.
//   - Only an exclusive hold hands over, and to an exclusive one: a shared lock is free for other readers already.
//   - Without a Waker there are no handoffs: processes that poll would hardly ever find the
//     lock free.
const (
	handoffWindow = 50 * time.Millisecond
	minYield      = time.Millisecond
	maxYield      = 100 * time.Millisecond
)

// canHandOver reports whether the backend hands over, and wakes other processes after a
// release.
func (c *Client) canHandOver() bool {
	return c.capabilities.HandOverer != nil && c.capabilities.Waker != nil
}

// handoffDeadline is the end of the handoff window of a lock that this process took at start.
func handoffDeadline(start time.Duration) time.Duration {
	return start + timing.RandomDuration(handoffWindow)
}

// offer is a lock that a hold hands over to a waiter.
type offer struct {
	hold *Hold
	// outcome gets one value: whether the waiter has the lock. If not, the hold releases it.
	outcome chan bool
}

// resolve sends the outcome, unless it was sent before.
func (o *offer) resolve(taken bool) {
	select {
	case o.outcome <- taken:
	default:
	}
}

// handOver offers the lock to the first waiter of this process, and reports whether the waiter
// has it now. The waiter sends the request, with a time limit no longer than a release's.
func (h *Hold) handOver() bool {
	c := h.client
	if !c.canHandOver() || c.now() >= h.handoffUntil || h.Mode() == driver.Shared {
		return false
	}
	o := c.queues.offer(h)
	return o != nil && <-o.outcome
}

// yieldUntil is until when the next waiter of this process lets other processes send their
// requests: for as long as the release took, which is about when they learn of it.
func (h *Hold) yieldUntil() time.Duration {
	c, now := h.client, h.client.now()
	if !c.canHandOver() || now < h.handoffUntil {
		return now
	}
	return now + min(max(now-h.release.Load().began, minYield), maxYield)
}

// accept sends the request that completes a handoff. If it fails, the hold releases the lock,
// and the waiter sends an ordinary request. In both cases the end of the old hold is reported
// before the beginning of the new one.
func (a *Acquisition) accept(ctx context.Context, w *localWaiter) (Grant, error) {
	from := w.offer.hold
	handOver := func(ctx context.Context, req driver.Request) (driver.Lease, error) {
		return a.client.capabilities.HandOverer.HandOver(ctx, from.entry.Lease, req)
	}
	g, err := a.send(ctx, from.Slot(), min(a.settings.RequestTimeout, from.entry.Timing.RequestTimeout), handOver)
	w.offer.resolve(err == nil)
	if err == nil {
		g.handoffUntil = from.handoffUntil
		g.lease.Contended = g.lease.Contended || from.entry.Lease.Contended
		<-from.release.Load().done
		return g, nil
	}
	select {
	case <-w.slotFreed: // the hold is released, or this process freed another slot
		a.noteFreed(w)
		a.start(a.client.now())
		return a.Try(ctx)
	case <-ctx.Done():
		return Grant{}, err
	}
}

// offer admits the first waiter with an offer of a hold's lock. It returns nil if nobody
// waits for that slot, or if the first waiter already sends requests. A waiter with a shorter
// TTL is not offered the lock: other processes have seen the longer TTL, and would notice the
// crash of the new holder too late.
func (qs *queues) offer(h *Hold) *offer {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byName[lockOf(h.Name(), h.Slot())]
	w := q.first()
	if w == nil || w.isAdmitted || w.mode == driver.Shared || w.slots <= h.Slot() || w.ttl < h.entry.Lease.TTL {
		return nil
	}
	w.offer = &offer{hold: h, outcome: make(chan bool, 1)}
	w.beginTurn()
	return w.offer
}
