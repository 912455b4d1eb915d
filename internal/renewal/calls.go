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
	"github.com/holdfast-go/holdfast/internal/worker"
)

// Entries that are due for renewal wait in queues for backend calls, whose number is limited.
// Where the backend has a BatchRenewer, one call renews many of them.
//
// Entries whose request timeouts are about as long form a class, with a queue and a limit of
// its own: a lease of a second cannot wait until calls for leases of an hour have returned, nor
// for the answer to a call with hundreds of them.
const (
	// callLimit is how many Renew calls of a class may be under way at once.
	callLimit = 64
	// batchWeight is what a RenewBatch call counts for: four of them reach the limit.
	batchWeight = 16
	// batchSize keeps a batch short enough for its time limit: 500 leases take a
	// MongoDB replica set about 60 ms.
	batchSize = 500
)

// call is one backend call that renews.
type call struct {
	leases []*Entry
	limit  time.Duration // for it to return
	start  time.Duration // just before it was sent
	weight int           // what it counts for
	use    worker.Use    // of its queue's limit
}

// queue has the entries of one class that wait for a call, in order of arrival. It is guarded
// by Renewer.mu.
type queue struct {
	first, retries []*Entry // retries: those whose latest call failed
	limit          worker.Limit
}

// queueOf finds or makes the queue of an entry's class.
func (r *Renewer) queueOf(e *Entry) *queue {
	class := e.class()
	if r.queues[class] == nil {
		r.queues[class] = &queue{limit: worker.Limit{Max: callLimit}}
	}
	return r.queues[class]
}

// class is the number of binary digits of the request timeout.
func (e *Entry) class() int { return bits.Len64(uint64(e.Timing.RequestTimeout)) }

// enqueue makes an entry wait for a call. It stays among the Renewer's entries, for its loss.
func (r *Renewer) enqueue(e *Entry) {
	e.queued = true
	if q := r.queueOf(e); e.failures > 0 {
		q.retries = append(q.retries, e)
	} else {
		q.first = append(q.first, e)
	}
	r.reorder(e)
}

// dispatch makes calls for the entries that wait, as far as the limits allow. It returns the
// functions that send them.
func (r *Renewer) dispatch(now time.Duration) (sends []func()) {
	for class, q := range r.queues {
		if q == nil {
			continue
		}
		if r.batch != nil && len(q.first) > 0 && q.limit.Free(false) >= batchWeight {
			r.enqueueSoonDue(class, now)
		}
		for c := r.nextCall(q); c != nil; c = r.nextCall(q) {
			c.limit = c.requestLimit(now)
			for _, e := range c.leases {
				e.queued, e.call, e.next = false, c, now+timing.Patience(c.limit)
				r.reorder(e)
			}
			sends = append(sends, func() { r.calls.Go(func() { r.send(c) }) })
		}
	}
	return sends
}

// requestLimit is that of the lease that has the least time. One that is about to be lost does
// not spoil the call for the others: it may be renewed after its loss.
func (c *call) requestLimit(now time.Duration) time.Duration {
	least := driver.MaxTTL
	for _, e := range c.leases {
		limit := e.requestLimit(now)
		if len(c.leases) > 1 {
			limit = max(limit, e.Timing.RequestTimeout/4)
		}
		least = min(least, limit)
	}
	return least
}

// enqueueSoonDue adds what is due soon to a batch that is made anyway: leases renewed together
// stay together.
func (r *Renewer) enqueueSoonDue(class int, now time.Duration) {
	var soon []*Entry
	for _, e := range r.entries.All() {
		if e.phase == renewing && !e.queued && e.call == nil && e.failures == 0 && now >= e.next-e.Timing.RenewEvery/4 && e.class() == class {
			soon = append(soon, e)
		}
	}
	for _, e := range soon {
		r.enqueue(e)
	}
}

// nextCall makes the next call of a queue; nil if no entry waits, or the limit is reached.
func (r *Renewer) nextCall(q *queue) *call {
	c, retry := r.takeFrom(&q.retries, q.limit.Free(true)), true
	if c == nil {
		c, retry = r.takeFrom(&q.first, q.limit.Free(false)), false
	}
	if c != nil {
		c.use = q.limit.Take(c.weight, retry)
	}
	return c
}

// takeFrom takes entries for one call from the front of a queue, if the call's weight is free.
// The entries of a batch that failed come back at jittered times, and so in different calls:
// what is wrong with one of them does not cost the rest their leases.
func (r *Renewer) takeFrom(waiting *[]*Entry, free int) *call {
	skip := func() { // what was lost or released meanwhile
		for len(*waiting) > 0 && !(*waiting)[0].wantsCall() {
			*waiting = (*waiting)[1:]
		}
	}
	skip()
	c, most := &call{weight: 1}, 1
	if r.batch != nil && len(*waiting) > 1 {
		c.weight, most = batchWeight, batchSize
	}
	if len(*waiting) == 0 || c.weight > free {
		return nil
	}
	for ; len(*waiting) > 0 && len(c.leases) < most; skip() {
		c.leases = append(c.leases, (*waiting)[0])
		*waiting = (*waiting)[1:]
	}
	if len(*waiting) == 0 {
		*waiting = nil
	}
	return c
}

// wantsCall reports whether an entry in a queue still needs its call.
func (e *Entry) wantsCall() bool { return e.queued && e.phase == renewing }

// send makes the call and takes in its results.
func (r *Renewer) send(c *call) {
	ctx, cancel := context.WithTimeout(r.ctx, c.limit)
	defer cancel()
	hung := time.AfterFunc(timing.Patience(c.limit), func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.free(c)
	})
	defer hung.Stop()
	leases := make([]driver.Lease, len(c.leases))
	for i, e := range c.leases {
		leases[i] = e.Lease
	}
	// Promise 2: the deadline counts from before the request, and the backend's expiry from after.
	c.start = r.now()
	var errs []error
	if len(leases) == 1 {
		errs = []error{r.locker.Renew(ctx, leases[0])}
	} else if errs = r.batch.RenewBatch(ctx, leases); len(errs) != len(leases) {
		errs = slices.Repeat([]error{errBatchResults}, len(leases))
	}
	for _, action := range r.noteResults(c, errs) {
		action()
	}
}

// noteResults takes in the results of a call. It returns what to do without the mutex. One
// failure is reported once for all leases of a policy, not once a lease.
func (r *Renewer) noteResults(c *call, errs []error) (actions []func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.free(c)
	failures := map[*Policy]*failure{}
	for i, e := range c.leases {
		action, failed := r.noteResult(e, c, now, errs[i])
		if failed {
			if known := failures[e.Policy]; known != nil {
				known.more++
				continue
			}
			f := &failure{lease: e, err: errs[i]}
			failures[e.Policy], action = f, f.report
		}
		if action != nil {
			actions = append(actions, action)
		}
	}
	return actions
}

// failure is a failed call as it is reported: with the name of one of its leases.
type failure struct {
	lease *Entry
	err   error
	more  int // leases of the same policy
}

func (f *failure) report() {
	err := f.err
	if f.more > 0 {
		err = fmt.Errorf("%w (and %d more leases in the same call)", err, f.more)
	}
	f.lease.Report(event.Error, "renew", err)
}

// free lets other calls begin when this one has returned, or when it should have.
func (r *Renewer) free(c *call) {
	c.use.End()
	r.wakeUp()
}

var errBatchResults = errors.New("RenewBatch did not return one result for each lease")
