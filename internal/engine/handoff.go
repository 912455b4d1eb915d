package engine

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A hold that is released while others of this process wait for the lock passes it on to
// the first of them, in one request instead of two and without waking other processes.
// Those must have their turn too. So this goes on for a short time only: what one request
// saves is little against longer holds. The time is random, so that a process far away,
// whose request comes long after the release that it was told of, does not always come in
// the midst of the next such time. Then the next waiter of this process lets the others ask
// first, since they learn of a release later. Without a Watcher nothing is passed on: who
// polls would hardly ever find the lock free.
const (
	handoffWindow = 50 * time.Millisecond
	minYield      = time.Millisecond
	maxYield      = 100 * time.Millisecond
)

// handsOver reports whether the backend can do it and wakes other processes afterwards.
func (c *Client) handsOver() bool {
	return c.capabilities.HandOverer != nil && c.capabilities.Watcher != nil
}

// passesUntil is until when a lock that this process got at start is passed on within it.
func handoffDeadline(start time.Duration) time.Duration { return start + rand.N(handoffWindow) }

// offer is a lease on its way from a hold that is being released to a waiter.
type offer struct {
	hold *Hold
	// settled gets a value when it is known whether the waiter has the lock. Else the hold
	// releases it.
	outcome chan bool
}

// settle tells the hold once what has become of its offer.
func (o *offer) resolve(taken bool) {
	select {
	case o.outcome <- taken:
	default: // told before
	}
}

// passOn offers the lease to the first waiter of this process, and reports whether that
// has the lock now. The attempt is the waiter's, and as short as a release's.
func (h *Hold) handOver() bool {
	c := h.client
	if !c.handsOver() || c.now() >= h.handoffUntil {
		return false
	}
	o := c.queues.offer(h)
	return o != nil && <-o.outcome
}

// yieldUntil is until when the next waiter is to leave the lock to others: for as long as the
// release took, which is about when they know of it.
func (h *Hold) yieldUntil() time.Duration {
	c, now := h.client, h.client.now()
	if !c.handsOver() || now < h.handoffUntil {
		return now
	}
	return now + min(max(now-h.release.Load().began, minYield), maxYield)
}

// accept makes the attempt that a hold of this process offers. If that fails, the hold
// releases the lock: its end is told of before the next hold's beginning in any case.
func (a *Acquisition) accept(ctx context.Context, w *waiter) (grant, error) {
	from := w.offer.hold
	handOver := func(ctx context.Context, req driver.Request) (driver.Lease, error) {
		return a.client.capabilities.HandOverer.HandOver(ctx, from.entry.Lease, req)
	}
	g, err := a.send(ctx, a.Attempts[from.slot], min(a.settings.RequestTimeout, from.entry.Timing.RequestTimeout), handOver)
	w.offer.resolve(err == nil)
	if err == nil {
		g.handoffUntil = from.handoffUntil
		<-from.release.Load().done
		return g, nil
	}
	select {
	case <-w.slotFreed: // it is released, or what else this process has of a pool
		return a.Try(ctx, a.candidates())
	case <-ctx.Done():
		return grant{}, err
	}
}

// offer makes the first waiter's turn come with an offer of the hold's lease. It returns
// nil if nobody waits for that, or if the first asks already. A shorter lease is not
// offered either: others have seen the longer one, and would miss its holder's crash.
func (s *queues) offer(h *Hold) *offer {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.byName[lockOf(h.Name(), h.slot)]
	if q == nil || len(q.waiters) == 0 {
		return nil
	}
	w := q.waiters[0]
	if w.hasTurn || w.slots <= h.slot || w.ttl < h.entry.Lease.TTL {
		return nil
	}
	w.offer = &offer{hold: h, outcome: make(chan bool, 1)}
	w.beginTurn()
	return w.offer
}
