package holdfast

import (
	"context"
	"time"
)

// A hold that is released while others of this process wait for the lock passes it on to
// the first of them, in one request instead of two and without waking other processes.
// Those must have their turn too: so many times in a row it is passed on, within so long
// a time since this process got it. What one request saves is little against longer holds.
// Then the next waiter of this process lets the others ask first: it would else always be
// ahead of them, who learn of a release later. Where nothing wakes them nothing is passed on:
// who polls would hardly ever find the lock free.
const (
	passesInARow = 16
	passesWithin = time.Second
	leastYield   = time.Millisecond
	mostYield    = 100 * time.Millisecond
)

// tenure is for how long, and through how many passes, a lock has been in this process.
type tenure struct {
	since  time.Duration
	passes int
}

func (t tenure) more(now time.Duration) bool {
	return t.passes < passesInARow && now-t.since < passesWithin
}

// offer is a lease on its way from a hold that is being released to a waiter.
type offer struct {
	hold *Hold
	// settled gets a value when it is known whether the waiter has the lock. Else the hold
	// releases it.
	settled chan bool
}

// passOn offers the lease to the first waiter of this process, and reports whether that
// has the lock now. The attempt is the waiter's, and as short as a release's.
func (h *Hold) passOn() bool {
	c := h.client
	if !c.passesOn() || !h.tenure.more(c.now()) {
		return false
	}
	o := c.queues.offer(h)
	return o != nil && <-o.settled
}

func (c *Client) passesOn() bool {
	return c.abilities.HandOverer != nil && c.abilities.Watcher != nil
}

// yield is how long the next waiter is to leave the lock to others: as long as the release
// took, which is about when they know of it.
func (h *Hold) yield() time.Duration {
	c := h.client
	if !c.passesOn() || h.tenure.more(c.now()) {
		return 0
	}
	return min(max(c.now()-h.release.Load().began, leastYield), mostYield)
}

// settle tells the hold once what has become of its offer.
func (o *offer) settle(taken bool) {
	select {
	case o.settled <- taken:
	default: // told before
	}
}

// taken has the hold end its release first, so that it is told of before the next hold.
func (o *offer) taken() tenure {
	o.settle(true)
	<-o.hold.release.Load().done
	return tenure{o.hold.tenure.since, o.hold.tenure.passes + 1}
}

// accept makes the attempt that a hold of this process offers.
func (a *asker) accept(ctx context.Context, o *offer) (grant, error) {
	from := &o.hold.kept
	handOver := func(ctx context.Context, req Request) (Lease, error) {
		return a.client.abilities.HandOverer.HandOver(ctx, from.lease, req)
	}
	g, err := a.attempt(ctx, a.seats[o.hold.slot], min(a.settings.tryTimeout, from.timing.tryTimeout), handOver)
	if err != nil {
		o.settle(false)
		return grant{}, err
	}
	g.tenure = o.taken()
	return g, nil
}

// offer makes the first waiter's turn come with an offer of the hold's lease. It returns
// nil if nobody waits for that, or if the first asks already.
func (s *queues) offer(h *Hold) *offer {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.byName[lockOf(h.Name(), h.slot)]
	if q == nil || len(q.waiters) == 0 || q.waiters[0].up || q.waiters[0].slots <= h.slot {
		return nil
	}
	o := &offer{hold: h, settled: make(chan bool, 1)}
	q.waiters[0].offer = o
	q.waiters[0].call()
	return o
}
