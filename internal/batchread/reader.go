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

// lookout looks at records for those who wait, many with one call: the looks that are
// due together, and those that soon will be, travel together. So waiting for a thousand
// names costs a few calls a minute, not thousands.
//
// One goroutine goes by a heap of looks, ordered by when each is due. It is there while
// something is looked for. A Client has a lookout only if its backend reads in batches.
type Reader struct {
	inspector driver.BatchInspector
	now       func() time.Duration
	limit     time.Duration   // of each call
	closing   context.Context // ends with Shutdown, and with it every look
	calls     worker.Group    // run, and the backend's call
	wake      chan struct{}   // capacity 1: the heap changed
	late      <-chan struct{} // of run: a call that was given up; closed when it has returned

	mu      sync.Mutex                // never held across I/O or deliver
	queue   *priority.Queue[*request] // by when each is due
	running bool
}

// look is one name to be looked at once.
type request struct {
	name    string
	since   time.Duration // when it was asked for
	at      time.Duration
	deliver func(driver.Record, error) // nil once called or canceled
	index   int                        // in the heap; -1 outside
}

// maxLooks bounds the names of one call.
const MaxNames = 1000

// newLookout makes the lookout of a Client, or nil for a backend that does not read in
// batches.
func New(closing context.Context, inspector driver.BatchInspector, now func() time.Duration, limit time.Duration) *Reader {
	if inspector == nil {
		return nil
	}
	return &Reader{inspector: inspector, now: now, limit: limit, closing: closing, wake: make(chan struct{}, 1), queue: newQueue()}
}

func newQueue() *priority.Queue[*request] {
	return priority.New(func(x, y *request) bool { return x.at < y.at }, func(l *request, index int) { l.index = index })
}

// look has deliver called once with what a read shows of name, begun after this call:
// when the clock reaches at, or, if that saves a call, when a quarter of the time until
// then is over. deliver must return at once; it is called by another goroutine, without
// locks. An error is one of the read, or errShutdown. Once Shutdown is done, nothing
// is delivered.
//
// After cancel has returned, deliver is not called any more; a call that has begun
// may still be under way. To cancel what was delivered does nothing.
func (o *Reader) Read(name string, at time.Duration, deliver func(driver.Record, error)) (cancel func()) {
	l := &request{name: name, since: o.now(), at: at, deliver: deliver}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue.Push(l)
	switch {
	case o.running && l.index == 0:
		o.wakeUp()
	case !o.running:
		o.running = o.calls.Go(o.run)
	}
	return func() { o.cancel(l) }
}

func (o *Reader) cancel(l *request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l.deliver = nil
	if l.index >= 0 {
		o.queue.Remove(l.index)
	}
	if o.queue.Len() == 0 {
		o.wakeUp() // run may end
	}
}

// close waits for what is under way; that ends with o.closing.
func (o *Reader) Close(ctx context.Context) bool {
	if o == nil {
		return true
	}
	o.calls.Close()
	return o.calls.Wait(ctx)
}

func (o *Reader) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		batch, wait, some := o.due()
		for chunk := range slices.Chunk(batch, MaxNames) {
			o.answer(chunk)
		}
		switch {
		case !some:
			return
		case len(batch) > 0:
			continue
		}
		timer.Reset(wait)
		select {
		case <-o.wake:
		case <-timer.C:
		case <-o.closing.Done():
		}
	}
}

// due takes the looks to make now, the most urgent first, or else tells how long
// until there is one. some is false if there are no looks at all: then run must end.
func (o *Reader) due() (batch []*request, wait time.Duration, some bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.queue.Len() == 0 {
		o.running = false
		return nil, 0, false
	}
	now, over := o.now(), o.closing.Err() != nil
	if wait = o.queue.First().at - now; wait > 0 && !over {
		return nil, wait, true
	}
	all := o.queue.All()
	o.queue = newQueue()
	for _, l := range all {
		// A quarter: more, and those who began at different times would never come together.
		if over || now >= l.since+(l.at-l.since)/4 {
			l.index = -1
			batch = append(batch, l)
		} else {
			o.queue.Push(l)
		}
	}
	slices.SortFunc(batch, func(a, b *request) int { return cmp.Compare(a.at, b.at) })
	return batch, 0, true
}

// answer makes the looks of one call.
func (o *Reader) answer(batch []*request) {
	place := map[string]int{}
	var names []string
	for _, l := range batch {
		if _, known := place[l.name]; !known && o.wanted(l) {
			place[l.name] = len(names)
			names = append(names, l.name)
		}
	}
	if len(names) == 0 {
		return
	}
	records, errs, err := o.inspect(names)
	for _, l := range batch {
		i, asked := place[l.name]
		switch {
		case !asked: // it was canceled before
		case err != nil:
			o.deliver(l, driver.Record{}, err)
		default:
			o.deliver(l, records[i], errs[i])
		}
	}
}

// read makes one call. The driver may ignore the end of its time: then it is left
// behind, and until it has returned there is no other call.
func (o *Reader) inspect(names []string) ([]driver.Record, []error, error) {
	select {
	case <-o.late:
		o.late = nil
	default:
	}
	switch {
	case o.closing.Err() != nil:
		return nil, nil, context.Cause(o.closing)
	case o.late != nil:
		return nil, nil, timing.ErrHung
	}
	ctx, cancel := context.WithTimeout(o.closing, o.limit)
	var records []driver.Record
	var errs []error
	done := make(chan struct{})
	began := o.calls.Go(func() {
		defer close(done)
		defer cancel()
		records, errs = Inspect(ctx, o.inspector, names)
	})
	if !began {
		cancel()
		return nil, nil, context.Cause(o.closing)
	}
	timer := time.NewTimer(o.limit + o.limit/4)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		o.late = done
		return nil, nil, timing.ErrHung
	}
	return records, errs, nil
}

// readBatch calls InspectBatch and sees to it that there is an answer for each name.
func Inspect(ctx context.Context, inspector driver.BatchInspector, names []string) ([]driver.Record, []error) {
	records, errs := inspector.InspectBatch(ctx, names)
	if len(records) != len(names) || len(errs) != len(names) {
		return make([]driver.Record, len(names)), slices.Repeat([]error{errOddBatch}, len(names))
	}
	return records, errs
}

var errOddBatch = errors.New("holdfast: the driver did not answer for every name of a batch")

func (o *Reader) wanted(l *request) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return l.deliver != nil
}

func (o *Reader) deliver(l *request, r driver.Record, err error) {
	o.mu.Lock()
	deliver := l.deliver
	l.deliver = nil
	o.mu.Unlock()
	if deliver != nil {
		deliver(r, err)
	}
}

func (o *Reader) wakeUp() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}
