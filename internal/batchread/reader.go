// Package batchread reads the records of many locks with one call to the backend.
package batchread

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/dispatch"
	"github.com/holdfast-go/holdfast/internal/timing"
	"github.com/holdfast-go/holdfast/internal/worker"
)

// Reader reads records for callers that wait for them. Reads that are due together, or soon
// will be, share a call. So waiting for a thousand names costs a few calls a minute instead of
// thousands.
type Reader struct {
	inspector driver.BatchInspector
	waiter    driver.WaiterID // whose positions the records show
	limit     time.Duration   // of each call
	closing   context.Context // ends when Shutdown begins: then all reads fail
	calls     worker.Group    // the backend's calls
	plan      *dispatch.Schedule[*request]
	now       func() time.Duration

	mu       sync.Mutex // never held across I/O or deliver
	underWay bool       // a call has not returned, although it may have been given up on
}

// request is one name to be read once.
type request struct {
	dispatch.Plan
	name    string
	planned time.Duration // when the request was made
	due     time.Duration
	deliver func(driver.Record, error) // nil once called or canceled; guarded by Reader.mu
}

// MaxNames is the greatest number of names in one call.
const MaxNames = 1000

// New returns a Reader, or nil if inspector is nil, for a backend that does not read in batches.
// Its reads fail when closing ends.
func New(closing context.Context, inspector driver.BatchInspector, waiter driver.WaiterID, now func() time.Duration,
	limit time.Duration) *Reader {
	if inspector == nil {
		return nil
	}
	r := &Reader{inspector: inspector, waiter: waiter, now: now, limit: limit, closing: closing}
	// One call at a time. With a later share than a quarter, requests made at different times would never share a call.
	rules := dispatch.Rules[*request]{Workers: &r.calls, Limit: 1, Batch: MaxNames, Weight: 1, Begin: r.begin}
	r.plan = dispatch.NewSchedule(now, rules, func(q *request, now time.Duration) bool { return now >= q.planned+(q.due-q.planned)/4 })
	context.AfterFunc(closing, r.plan.RunAllNow)
	return r
}

// Read plans one read of a record. The read begins after this call: at due, or, if it can share
// a call then, when a quarter of the time until due is over.
//
// deliver is called once with the result, on another goroutine and without locks; it must return
// at once. Its error is that of the read, or the cause of the end of closing. After Close,
// nothing is delivered.
//
// After cancel has returned, deliver is no longer called, although the read may still be under
// way. To cancel what was delivered does nothing.
func (r *Reader) Read(name string, due time.Duration, deliver func(driver.Record, error)) (cancel func()) {
	q := &request{name: name, planned: r.now(), due: due, deliver: deliver}
	r.plan.Set(q, due, false)
	if r.closing.Err() != nil {
		r.plan.RunAllNow() // the end of closing may have come before
	}
	return func() {
		r.plan.Cancel(q)
		r.take(q)
	}
}

// Close waits for the call under way, which closing ends. It reports whether the call returned
// before ctx ended. r may be nil.
func (r *Reader) Close(ctx context.Context) bool {
	if r == nil {
		return true
	}
	r.calls.Close()
	return r.calls.Wait(ctx)
}

// begin prepares one call. A driver may ignore the end of its time limit: then the call is given
// up on, and there is no other call until it has returned.
func (r *Reader) begin(batch []*request) dispatch.Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	fail := func(err error) func() { return func() { r.failAll(batch, err) } }
	c := dispatch.Call{Do: func() { r.read(batch) }, Patience: timing.Patience(r.limit), Hung: fail(timing.ErrHung)}
	switch {
	case r.closing.Err() != nil:
		c.Do = fail(context.Cause(r.closing))
	case r.underWay:
		c.Do = fail(timing.ErrHung)
	default:
		r.underWay = true
	}
	return c
}

// read makes one call.
func (r *Reader) read(batch []*request) {
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.underWay = false
	}()
	ctx, cancel := context.WithTimeout(r.closing, r.limit)
	defer cancel()
	indexOf := map[string]int{}
	var names []string
	for _, q := range batch {
		if _, known := indexOf[q.name]; !known && r.wanted(q) {
			indexOf[q.name] = len(names)
			names = append(names, q.name)
		}
	}
	if len(names) == 0 {
		return
	}
	records, errs := Inspect(ctx, r.inspector, r.waiter, names)
	for _, q := range batch {
		if i, read := indexOf[q.name]; read { // else it was canceled before the call
			r.deliver(q, records[i], errs[i])
		}
	}
}

// Inspect calls InspectBatch and checks that the driver answers for every name.
func Inspect(ctx context.Context, inspector driver.BatchInspector, waiter driver.WaiterID, names []string) ([]driver.Record, []error) {
	records, errs := inspector.InspectBatch(ctx, waiter, names)
	if len(records) != len(names) || len(errs) != len(names) {
		return make([]driver.Record, len(names)), slices.Repeat([]error{errMissingAnswers}, len(names))
	}
	return records, errs
}

var errMissingAnswers = driver.Errorf("the driver did not answer for every name of a batch")

// wanted reports whether a request was not canceled.
func (r *Reader) wanted(q *request) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return q.deliver != nil
}

// take returns the function that delivers, once.
func (r *Reader) take(q *request) func(driver.Record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	deliver := q.deliver
	q.deliver = nil
	return deliver
}

func (r *Reader) deliver(q *request, record driver.Record, err error) {
	if deliver := r.take(q); deliver != nil {
		deliver(record, err)
	}
}

func (r *Reader) failAll(batch []*request, err error) {
	for _, q := range batch {
		r.deliver(q, driver.Record{}, err)
	}
}
