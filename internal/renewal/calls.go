package renewal

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/dispatch"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// Entries that are due for renewal wait for backend calls, whose number is limited. Where the
// backend has a BatchRenewer, one call renews many of them.
//
// Entries whose request timeouts are about as long form a class with a limit of its own: a lease
// of a second cannot wait until calls for leases of an hour have returned, nor for the answer to
// a call with hundreds of them.
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
	entries []*Entry
	leases  []driver.Lease
	limit   time.Duration // for it to return
	start   time.Duration // just before it was sent
}

// newCalls makes what sends the renewals. An entry that waits stays among the Renewer's entries, for its loss. The
// entries of a batch that failed come back at jittered times, and so in different calls: what is wrong with one of
// them does not cost the rest their leases.
func newCalls(r *Renewer) *dispatch.Calls[*Entry] {
	rules := dispatch.Rules[*Entry]{
		Mu: &r.mu, Workers: &r.calls, Limit: callLimit, RetriesFirst: true,
		Before: func(x, y *Entry) bool { return x.next < y.next },
		Moved:  func(e *Entry, index int) { e.queued = int32(index) },
		Class:  (*Entry).class,
		Stale:  func(e *Entry) bool { return e.phase != renewing }, // it was lost or released meanwhile
		Begin:  r.begin,
	}
	if r.batch != nil {
		rules.Batch, rules.Weight, rules.Share = batchSize, batchWeight, r.enqueueSoonDue
	}
	return dispatch.NewCalls(rules)
}

func (e *Entry) class() int { return timing.Class(e.Timing.RequestTimeout) }

// enqueue makes an entry wait for a call.
func (r *Renewer) enqueue(e *Entry) {
	r.due.Add(e, e.failures > 0)
	r.reorder(e)
}

// enqueueSoonDue adds what is due soon to a batch that is made anyway: leases renewed together
// stay together.
func (r *Renewer) enqueueSoonDue(class int) {
	now := r.now()
	var soon []*Entry
	for _, e := range r.entries.All() {
		if e.idle() && e.failures == 0 && now >= e.next-e.Timing.RenewEvery/4 && e.class() == class {
			soon = append(soon, e)
		}
	}
	for _, e := range soon {
		r.enqueue(e)
	}
}

// begin prepares a call.
func (r *Renewer) begin(entries []*Entry) dispatch.Call {
	now := r.now()
	c := &call{entries: entries, leases: make([]driver.Lease, len(entries)), limit: driver.MaxTTL}
	for i, e := range entries {
		e.call, c.leases[i] = c, e.Lease
		limit := e.requestLimit(now)
		if len(entries) > 1 {
			// One that is about to be lost does not spoil the call for the others: it may be renewed after its loss.
			limit = max(limit, e.Timing.RequestTimeout/4)
		}
		c.limit = min(c.limit, limit)
	}
	return dispatch.Call{Do: func() { r.send(c) }, Patience: timing.Patience(c.limit), Hung: func() {
		r.finish(c, c.leases, slices.Repeat([]error{timing.ErrHung}, len(entries)))
	}}
}

// send makes the call and takes in its results.
func (r *Renewer) send(c *call) {
	ctx, cancel := context.WithTimeout(r.ctx, c.limit)
	defer cancel()
	// Promise 2: the deadline counts from before the request, and the backend's expiry from after.
	c.start = r.now()
	var leases []driver.Lease
	var errs []error
	if len(c.leases) == 1 {
		lease, err := r.locker.Renew(ctx, c.leases[0])
		leases, errs = []driver.Lease{lease}, []error{err}
	} else if leases, errs = r.batch.RenewBatch(ctx, c.leases); len(errs) != len(c.leases) || len(leases) != len(c.leases) {
		leases, errs = c.leases, slices.Repeat([]error{errBatchResults}, len(c.leases))
	}
	r.finish(c, leases, errs)
}

func (r *Renewer) finish(c *call, renewed []driver.Lease, errs []error) {
	perform(r.noteResults(c, renewed, errs))
}

// noteResults takes in the results of a call. It returns the entries that were lost, and what to do without the mutex. One
// failure is reported once for all leases of a policy, not once a lease.
func (r *Renewer) noteResults(c *call, renewed []driver.Lease, errs []error) (lost []*Entry, actions []func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	failures := map[*Policy]*failure{}
	for i, e := range c.entries {
		action, failed := r.noteResult(e, c, now, renewed[i].State, errs[i])
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
		if e.phase == ended {
			lost = append(lost, e)
		}
	}
	return lost, actions
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
		err = driver.Errorf("%w (and %d more leases in the same call)", err, f.more)
	}
	f.lease.Report(event.Error, "renew", err)
}

var errBatchResults = errors.New("RenewBatch did not return one lease and one error for each lease")
