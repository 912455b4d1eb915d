// Package batchread reads the records of many locks with one call to the backend.
package batchread

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/priority"
	"github.com/holdfast-go/holdfast/internal/timing"
	"github.com/holdfast-go/holdfast/internal/worker"
)

// Reader reads records for callers that wait for them. Reads that are due together, or soon
// will be, share a call. So waiting for a thousand names costs a few calls a minute instead of
// thousands.
//
// One goroutine makes the calls, one after another. It runs while any read is planned.
type Reader struct {
	inspector driver.BatchInspector
	now       func() time.Duration
	limit     time.Duration   // of each call
	closing   context.Context // ends when Shutdown begins: then all reads fail
	calls     worker.Group    // run, and the backend's call
	wake      chan struct{}   // capacity 1: the queue changed
	hung      <-chan struct{} // of run: a call that was given up on; closed when it has returned

	mu      sync.Mutex                // never held across I/O or deliver
	queue   *priority.Queue[*request] // by when each is due
	running bool
}

// request is one name to be read once.
type request struct {
	name    string
	planned time.Duration // when the request was made
	due     time.Duration
	deliver func(driver.Record, error) // nil once called or canceled
	index   int                        // in the queue; -1 outside
}

// MaxNames is the greatest number of names in one call.
const MaxNames = 1000

// New returns a Reader, or nil if inspector is nil, for a backend that does not read in batches.
// Its reads fail when closing ends.
func New(closing context.Context, inspector driver.BatchInspector, now func() time.Duration, limit time.Duration) *Reader {
	if inspector == nil {
		return nil
	}
	return &Reader{inspector: inspector, now: now, limit: limit, closing: closing, wake: make(chan struct{}, 1), queue: newQueue()}
}

func newQueue() *priority.Queue[*request] {
	return priority.New(func(x, y *request) bool { return x.due < y.due }, func(q *request, index int) { q.index = index })
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
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue.Push(q)
	switch {
	case r.running && q.index == 0:
		r.wakeUp()
	case !r.running:
		r.running = r.calls.Go(r.run)
	}
	return func() { r.cancel(q) }
}

func (r *Reader) cancel(q *request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q.deliver = nil
	if q.index >= 0 {
		r.queue.Remove(q.index)
	}
	if r.queue.Len() == 0 {
		r.wakeUp() // run may end
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

func (r *Reader) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		batch, wait, more := r.takeDue()
		for chunk := range slices.Chunk(batch, MaxNames) {
			r.serve(chunk)
		}
		switch {
		case !more:
			return
		case len(batch) > 0:
			continue
		}
		timer.Reset(wait)
		select {
		case <-r.wake:
		case <-timer.C:
		case <-r.closing.Done():
		}
	}
}

// takeDue takes the requests to serve now out of the queue, the most urgent first. If there is
// none, wait is how long until one is due. more is false if the queue is empty: then run must
// end.
func (r *Reader) takeDue() (batch []*request, wait time.Duration, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queue.Len() == 0 {
		r.running = false
		return nil, 0, false
	}
	now, closing := r.now(), r.closing.Err() != nil
	if wait = r.queue.First().due - now; wait > 0 && !closing {
		return nil, wait, true
	}
	all := r.queue.All()
	r.queue = newQueue()
	for _, q := range all {
		// With a later share than a quarter, requests made at different times would never share
		// a call.
		if closing || now >= q.planned+(q.due-q.planned)/4 {
			q.index = -1
			batch = append(batch, q)
		} else {
			r.queue.Push(q)
		}
	}
	slices.SortFunc(batch, func(x, y *request) int { return cmp.Compare(x.due, y.due) })
	return batch, 0, true
}

// serve serves requests with one call.
func (r *Reader) serve(batch []*request) {
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
	records, errs, err := r.inspect(names)
	for _, q := range batch {
		i, read := indexOf[q.name]
		switch {
		case !read: // it was canceled before the call
		case err != nil:
			r.deliver(q, driver.Record{}, err)
		default:
			r.deliver(q, records[i], errs[i])
		}
	}
}

// inspect makes one call. A driver may ignore the end of its time limit: then the call is given
// up on, and there is no other call until it has returned.
func (r *Reader) inspect(names []string) ([]driver.Record, []error, error) {
	select {
	case <-r.hung:
		r.hung = nil
	default:
	}
	switch {
	case r.closing.Err() != nil:
		return nil, nil, context.Cause(r.closing)
	case r.hung != nil:
		return nil, nil, timing.ErrHung
	}
	ctx, cancel := context.WithTimeout(r.closing, r.limit)
	var records []driver.Record
	var errs []error
	done := make(chan struct{})
	began := r.calls.Go(func() {
		defer close(done)
		defer cancel()
		records, errs = Inspect(ctx, r.inspector, names)
	})
	if !began {
		cancel()
		return nil, nil, context.Cause(r.closing)
	}
	timer := time.NewTimer(timing.Patience(r.limit))
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		r.hung = done
		return nil, nil, timing.ErrHung
	}
	return records, errs, nil
}

// Inspect calls InspectBatch and checks that the driver answers for every name.
func Inspect(ctx context.Context, inspector driver.BatchInspector, names []string) ([]driver.Record, []error) {
	records, errs := inspector.InspectBatch(ctx, names)
	if len(records) != len(names) || len(errs) != len(names) {
		return make([]driver.Record, len(names)), slices.Repeat([]error{errMissingAnswers}, len(names))
	}
	return records, errs
}

var errMissingAnswers = errors.New("holdfast: the driver did not answer for every name of a batch")

// wanted reports whether a request was not canceled.
func (r *Reader) wanted(q *request) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return q.deliver != nil
}

func (r *Reader) deliver(q *request, record driver.Record, err error) {
	r.mu.Lock()
	deliver := q.deliver
	q.deliver = nil
	r.mu.Unlock()
	if deliver != nil {
		deliver(record, err)
	}
}

func (r *Reader) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}
