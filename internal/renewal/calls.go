package renewal

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// Leases that are due for renewal line up for backend calls, of which only so many are
// under way at once: where the backend has a BatchRenewer one call takes many of them.
// So it is among leases whose tries may take about as long: a lease of a second cannot wait
// until calls for leases of an hour make room, nor for the answer to a call with hundreds
// of them.
const (
	// renewalSlots is how many Renew calls may be under way at once.
	callLimit = 64
	// batchSlots is what a RenewBatch call counts for: four of them fill the slots.
	batchWeight = 16
	// batchSize keeps a batch short enough for its time limit: 500 leases take a
	// MongoDB replica set about 60 ms.
	batchSize = 500
)

// renewal is one backend call that renews.
type call struct {
	leases []*Entry
	limit  time.Duration // for it to return
	start  time.Duration // just before it was sent
	queue  *queue        // that it is of
	weight int           // that it has; 0 once given back
	retry  bool
}

// lines are where leases wait for a call, in order of arrival. Those that failed
// before have a line of their own and at most half of the slots, so that leases
// whose renewals hang do not delay the others. Guarded by keeper.mu.
type queue struct {
	first, retries []*Entry
	busy, retrying int // slots in use: in all, by retries
}

// linesOf returns the lines of a lease: those of all whose try timeouts are, as binary
// numbers, as long as its own.
func (k *Renewer) queueOf(l *Entry) *queue {
	class := l.class()
	if k.queues[class] == nil {
		k.queues[class] = &queue{}
	}
	return k.queues[class]
}

func (l *Entry) class() int { return bits.Len64(uint64(l.Timing.RequestTimeout)) }

// lineUp has a lease wait for a call. It stays in the heap, for its loss.
func (k *Renewer) enqueue(l *Entry) {
	l.queued = true
	if s := k.queueOf(l); l.failures > 0 {
		s.retries = append(s.retries, l)
	} else {
		s.first = append(s.first, l)
	}
	k.reorder(l)
}

// dispatch makes calls for those that wait, as far as there are slots, and returns
// what sends them.
func (k *Renewer) dispatch(now time.Duration) (sends []func()) {
	for class, s := range k.queues {
		if s == nil {
			continue
		}
		if k.batch != nil && len(s.first) > 0 && s.busy+batchWeight <= callLimit {
			k.gatherSoonDue(class, now)
		}
		for c := k.nextCall(s); c != nil; c = k.nextCall(s) {
			c.limit = c.requestLimit(now)
			for _, l := range c.leases {
				l.queued, l.call, l.next = false, c, now+timing.Patience(c.limit)
				k.reorder(l)
			}
			sends = append(sends, func() { k.calls.Go(func() { k.send(c) }) })
		}
	}
	return sends
}

// tryLimit is that of the lease that has the least time. One that is about to be lost
// does not spoil the call for the others, and may be renewed after its loss.
func (c *call) requestLimit(now time.Duration) time.Duration {
	least := driver.MaxTTL
	for _, l := range c.leases {
		limit := l.requestLimit(now)
		if len(c.leases) > 1 {
			limit = max(limit, l.Timing.RequestTimeout/4)
		}
		least = min(least, limit)
	}
	return least
}

// gather lines up, for a batch that is due anyway, what would be due soon: leases
// renewed together stay together.
func (k *Renewer) gatherSoonDue(class int, now time.Duration) {
	var soon []*Entry
	for _, l := range k.entries.All() {
		if l.phase == renewing && !l.queued && l.call == nil && l.failures == 0 && now >= l.next-l.Timing.RenewEvery/4 && l.class() == class {
			soon = append(soon, l)
		}
	}
	for _, l := range soon {
		k.enqueue(l)
	}
}

// nextCall takes leases off a line and slots for their call; nil if there is nothing
// to send or no slot.
func (k *Renewer) nextCall(s *queue) *call {
	c := k.takeFrom(&s.retries, min(callLimit-s.busy, callLimit/2-s.retrying))
	if c != nil {
		c.retry = true
		s.retrying += c.weight
	} else if c = k.takeFrom(&s.first, callLimit-s.busy); c == nil {
		return nil
	}
	c.queue = s
	s.busy += c.weight
	return c
}

// take takes leases for one call off a line, if its slots are free. Those of a batch that
// failed come back at jittered times and so apart from each other: what is wrong with one
// of them does not cost the rest their leases.
func (k *Renewer) takeFrom(line *[]*Entry, slots int) *call {
	skip := func() { // who was lost or released meanwhile
		for len(*line) > 0 && !(*line)[0].wantsCall() {
			*line = (*line)[1:]
		}
	}
	skip()
	c, most := &call{weight: 1}, 1
	if k.batch != nil && len(*line) > 1 {
		c.weight, most = batchWeight, batchSize
	}
	if len(*line) == 0 || c.weight > slots {
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
func (l *Entry) wantsCall() bool { return l.queued && l.phase == renewing }

// send makes the call and takes in its results.
func (k *Renewer) send(c *call) {
	ctx, cancel := context.WithTimeout(k.ctx, c.limit)
	defer cancel()
	hung := time.AfterFunc(timing.Patience(c.limit), func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.free(c)
	})
	defer hung.Stop()
	leases := make([]driver.Lease, len(c.leases))
	for i, l := range c.leases {
		leases[i] = l.Lease
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
	told := map[*Policy]*failure{}
	for i, l := range c.leases {
		act, failed := k.takeResult(l, c, now, errs[i])
		switch first := told[l.Policy]; {
		case !failed:
		case first != nil:
			first.more++
		default:
			first = &failure{lease: l, err: errs[i]}
			told[l.Policy] = first
			act = first.report
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
type failure struct {
	lease *Entry
	err   error
	more  int
}

func (f *failure) report() {
	err := f.err
	if f.more > 0 {
		err = fmt.Errorf("%w (and %d more leases in the same call)", err, f.more)
	}
	f.lease.Report(event.Error, "renew", err)
}

// free gives back a call's slots, once: when it has returned, or should have.
func (k *Renewer) free(c *call) {
	c.queue.busy -= c.weight
	if c.retry {
		c.queue.retrying -= c.weight
	}
	c.weight = 0
	k.wakeUp()
}

var errShortBatch = errors.New("RenewBatch did not return one result for each lease")
