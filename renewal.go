package holdfast

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Leases that are due for renewal line up for backend calls, of which only so many are
// under way at once: where the backend has a BatchRenewer one call takes many of them.
// So it is among leases whose tries may take about as long: a lease of a second cannot wait
// until calls for leases of an hour make room, nor for the answer to a call with hundreds
// of them.
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
	limit  time.Duration // for it to return
	start  time.Duration // just before it was sent
	lines  *lines        // that it is of
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

// linesOf returns the lines of a lease: those of all whose try timeouts are, as binary
// numbers, as long as its own.
func (k *keeper) linesOf(l *kept) *lines {
	class := l.class()
	if k.lines[class] == nil {
		k.lines[class] = &lines{}
	}
	return k.lines[class]
}

func (l *kept) class() int { return bits.Len64(uint64(l.timing.tryTimeout)) }

// lineUp has a lease wait for a call. It stays in the heap, for its loss.
func (k *keeper) lineUp(l *kept) {
	l.lined = true
	if s := k.linesOf(l); l.failures > 0 {
		s.retries = append(s.retries, l)
	} else {
		s.fresh = append(s.fresh, l)
	}
	k.reorder(l)
}

// dispatch makes calls for those that wait, as far as there are slots, and returns
// what sends them.
func (k *keeper) dispatch(now time.Duration) (sends []func()) {
	for class, s := range k.lines {
		if s == nil {
			continue
		}
		if k.batch != nil && len(s.fresh) > 0 && s.busy+batchSlots <= renewalSlots {
			k.gather(class, now)
		}
		for c := k.nextCall(s); c != nil; c = k.nextCall(s) {
			c.limit = c.tryLimit(now)
			for _, l := range c.leases {
				l.lined, l.call, l.next = false, c, now+patience(c.limit)
				k.reorder(l)
			}
			sends = append(sends, func() { k.calls.Go(func() { k.send(c) }) })
		}
	}
	return sends
}

// tryLimit is that of the lease that has the least time. One that is about to be lost
// does not spoil the call for the others, and may be renewed after its loss.
func (c *renewal) tryLimit(now time.Duration) time.Duration {
	least := driver.MaxTTL
	for _, l := range c.leases {
		limit := l.tryLimit(now)
		if len(c.leases) > 1 {
			limit = max(limit, l.timing.tryTimeout/4)
		}
		least = min(least, limit)
	}
	return least
}

// gather lines up, for a batch that is due anyway, what would be due soon: leases
// renewed together stay together.
func (k *keeper) gather(class int, now time.Duration) {
	var soon []*kept
	for _, l := range k.queue.All() {
		if l.phase == keeping && !l.lined && l.call == nil && l.failures == 0 && now >= l.next-l.timing.renewEvery/4 && l.class() == class {
			soon = append(soon, l)
		}
	}
	for _, l := range soon {
		k.lineUp(l)
	}
}

// nextCall takes leases off a line and slots for their call; nil if there is nothing
// to send or no slot.
func (k *keeper) nextCall(s *lines) *renewal {
	c := k.take(&s.retries, min(renewalSlots-s.busy, renewalSlots/2-s.retrying))
	if c != nil {
		c.retry = true
		s.retrying += c.slots
	} else if c = k.take(&s.fresh, renewalSlots-s.busy); c == nil {
		return nil
	}
	c.lines = s
	s.busy += c.slots
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
func (k *keeper) send(c *renewal) {
	ctx, cancel := context.WithTimeout(k.ctx, c.limit)
	defer cancel()
	hung := time.AfterFunc(patience(c.limit), func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.free(c)
	})
	defer hung.Stop()
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
	told := map[*policy]*failedTry{}
	for i, l := range c.leases {
		act, failed := k.renewed(l, c, now, errs[i])
		switch first := told[l.policy]; {
		case !failed:
		case first != nil:
			first.more++
		default:
			first = &failedTry{lease: l, err: errs[i]}
			told[l.policy] = first
			act = first.tell
		}
		if act != nil {
			acts = append(acts, act)
		}
	}
	k.mu.Unlock()
	for _, act := range acts {
		act()
	}
}

// failedTry is what a call failed to do for leases that are told of in one place: it is
// told once, with the name of one of them, not thousands of times.
type failedTry struct {
	lease *kept
	err   error
	more  int
}

func (f *failedTry) tell() {
	err := f.err
	if f.more > 0 {
		err = fmt.Errorf("%w (and %d more leases in the same call)", err, f.more)
	}
	f.lease.tell(EventError, "renew", err)
}

// free gives back a call's slots, once: when it has returned, or should have.
func (k *keeper) free(c *renewal) {
	c.lines.busy -= c.slots
	if c.retry {
		c.lines.retrying -= c.slots
	}
	c.slots = 0
	k.rouse()
}

var errShortBatch = errors.New("RenewBatch did not return one result for each lease")
