package holdfast

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Leases that are due for renewal line up for backend calls, of which only so many are
// under way at once: where the backend has a BatchRenewer one call takes many of them.
const (
	// renewalSlots is how many Renew calls may be under way at once.
	renewalSlots = 64
	// batchSlots is what a RenewBatch call counts for: four of them fill the slots.
	batchSlots = 16
	// batchSize keeps a batch short enough for its time limit: 500 leases take a
	// MongoDB replica set about 60 ms.
	batchSize = 500
)

// renewal is one backend call that renews.
type renewal struct {
	leases []*kept
	start  time.Duration // just before it was sent
	slots  int           // that it has; 0 once given back
	retry  bool
}

// lines are where leases wait for a call, in order of arrival. Those that failed
// before have a line of their own and at most half of the slots, so that leases
// whose renewals hang do not delay the others. Guarded by keeper.mu.
type lines struct {
	fresh, retries []*kept
	busy, retrying int // slots in use: in all, by retries
}

// lineUp has a lease wait for a call. It stays in the heap, for its loss.
func (k *keeper) lineUp(l *kept) {
	l.lined = true
	if l.failures > 0 {
		k.lines.retries = append(k.lines.retries, l)
	} else {
		k.lines.fresh = append(k.lines.fresh, l)
	}
	k.reorder(l)
}

// dispatch makes calls for those that wait, as far as there are slots, and returns
// what sends them.
func (k *keeper) dispatch(now time.Duration) (sends []func()) {
	if k.batch != nil && len(k.lines.fresh) > 0 && k.lines.busy+batchSlots <= renewalSlots {
		k.gather(now)
	}
	for {
		c := k.nextCall()
		if c == nil {
			return sends
		}
		limit := longest
		for _, l := range c.leases {
			limit = min(limit, l.tryLimit(now))
		}
		for _, l := range c.leases {
			l.lined, l.call, l.next = false, c, now+limit+limit/4
			k.reorder(l)
		}
		sends = append(sends, func() { k.calls.run(func() { k.send(c, limit) }) })
	}
}

// gather lines up, for a batch that is due anyway, what would be due soon: leases
// renewed together stay together.
func (k *keeper) gather(now time.Duration) {
	var soon []*kept
	for _, l := range k.queue {
		if l.phase == keeping && !l.lined && l.call == nil && l.failures == 0 && now >= l.next-l.timing.renewEvery/4 {
			soon = append(soon, l)
		}
	}
	for _, l := range soon {
		k.lineUp(l)
	}
}

// nextCall takes leases off a line and slots for their call; nil if there is nothing
// to send or no slot.
func (k *keeper) nextCall() *renewal {
	s := &k.lines
	if c := k.take(&s.retries, min(renewalSlots-s.busy, renewalSlots/2-s.retrying)); c != nil {
		c.retry = true
		s.busy += c.slots
		s.retrying += c.slots
		return c
	}
	c := k.take(&s.fresh, renewalSlots-s.busy)
	if c != nil {
		s.busy += c.slots
	}
	return c
}

// take takes leases for one call off a line, if its slots are free. Those of a batch that
// failed come back at jittered times and so apart from each other: what is wrong with one
// of them does not cost the rest their leases.
func (k *keeper) take(line *[]*kept, slots int) *renewal {
	skip := func() { // who was lost or released meanwhile
		for len(*line) > 0 && !(*line)[0].waits() {
			*line = (*line)[1:]
		}
	}
	skip()
	c, most := &renewal{slots: 1}, 1
	if k.batch != nil && len(*line) > 1 {
		c.slots, most = batchSlots, batchSize
	}
	if len(*line) == 0 || c.slots > slots {
		return nil
	}
	for ; len(*line) > 0 && len(c.leases) < most; skip() {
		c.leases = append(c.leases, (*line)[0])
		*line = (*line)[1:]
	}
	if len(*line) == 0 {
		*line = nil
	}
	return c
}

// waits reports whether a lease in a line still wants its call.
func (l *kept) waits() bool { return l.lined && l.phase == keeping }

// send makes the call and takes in its results.
func (k *keeper) send(c *renewal, limit time.Duration) {
	ctx, cancel := context.WithTimeout(k.ctx, limit)
	defer cancel()
	leases := make([]Lease, len(c.leases))
	for i, l := range c.leases {
		leases[i] = l.lease
	}
	c.start = k.now()
	var errs []error
	if len(leases) == 1 {
		errs = []error{k.locker.Renew(ctx, leases[0])}
	} else if errs = k.batch.RenewBatch(ctx, leases); len(errs) != len(leases) {
		errs = slices.Repeat([]error{errShortBatch}, len(leases))
	}
	var acts []func()
	k.mu.Lock()
	now := k.now()
	k.free(c)
	failed := map[*terms]int{} // leases, by who is told
	for i, l := range c.leases {
		act, retried := k.renewed(l, c, now, errs[i])
		if retried {
			failed[l.terms]++
		}
		if act != nil {
			acts = append(acts, act)
		}
	}
	k.rouse()
	k.mu.Unlock()
	for _, act := range acts {
		act()
	}
	k.tellFailed(c, errs, failed)
}

// tellFailed tells of the tries that failed: of one call once, whose ever leases it was
// for, not thousands of times.
func (k *keeper) tellFailed(c *renewal, errs []error, failed map[*terms]int) {
	for i, l := range c.leases {
		n := failed[l.terms]
		if n == 0 || errs[i] == nil || errors.Is(errs[i], ErrLost) {
			continue
		}
		delete(failed, l.terms)
		err := errs[i]
		if n > 1 {
			err = fmt.Errorf("%w (and %d more leases in the same call)", err, n-1)
		}
		l.tell(EventError, "renew", err)
	}
}

// free gives back a call's slots, once: when it has returned, or should have.
func (k *keeper) free(c *renewal) {
	k.lines.busy -= c.slots
	if c.retry {
		k.lines.retrying -= c.slots
	}
	c.slots = 0
}

var errShortBatch = errors.New("RenewBatch did not return one result for each lease")
