// Package faulty has a driver.Locker between a client and a backend to whose calls faults happen,
// as a test says. It is the mechanism of the public package holdfasttest and of the module's own
// tests (internal/locktest).
package faulty

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/worker"
)

// Kinds of calls, each with the lease that it concerns: of an acquire or a handoff the one asked
// for; of a call that concerns no lease an empty one, with the lock's name if there is one.
const (
	OpAcquire   = "acquire"
	OpHandOver  = "hand over"
	OpRenew     = "renew"
	OpRelease   = "release"
	OpInspect   = "inspect" // InspectBatch
	OpRead      = "read"    // Inspect
	OpList      = "list"
	OpBreak     = "break" // Break and BreakNow
	OpReadData  = "read data"
	OpWriteData = "write data"
	OpCheck     = "check" // Check and RemoveProbe
)

// Fault is what happens to one call. The zero Fault lets it through.
type Fault struct {
	Delay         time.Duration // before the backend is asked
	Refuse        error         // the backend is not asked; this is the answer
	Lose          error         // the backend is asked, but this is the answer
	Hang          bool          // the backend is not asked; the call returns when its context ends
	IgnoreContext bool          // during Delay, the call does not notice the end of its context
	Late          time.Duration // the call hangs, and the backend is asked this long after it began
}

// Faults chooses what happens to a call; n counts the calls of each kind from 1.
type Faults = func(op string, n int, lease driver.Lease) Fault

// Locker passes calls on to a backend, except for what Faults happen to them. It has no batched
// renewals, so that each renewal is a call of its own. It reports its Watcher, Queue and batched
// reads only as the fields say. The fields are set before the first call.
type Locker struct {
	driver.Locker
	Faults       Faults // nil: no fault happens
	Watcher      bool
	Queue        bool
	NoBatchReads bool
	Check        func(ctx context.Context, op string) // called for every call, or nil
	InFlight     worker.Group                         // calls under way

	// Paused returns nil, or a channel that is closed when the paused process of this Locker runs
	// again. A paused process sends no call and receives no answer. Paused may be nil.
	Paused func() <-chan struct{}
	// Silent reports whether wake-ups do not arrive now; WakeMissed delivers them later. Silent may
	// be nil.
	Silent func() bool

	mu     sync.Mutex
	calls  map[string]int
	missed map[*watch]struct{}
}

// New makes a Locker on a backend.
func New(l driver.Locker, faults Faults) *Locker {
	return &Locker{Locker: l, Faults: faults, calls: map[string]int{}, missed: map[*watch]struct{}{}}
}

// Count returns how many calls of a kind there were.
func (f *Locker) Count(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// Total returns how many calls there were.
func (f *Locker) Total() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		n += c
	}
	return n
}

// awaitResume waits while the process is paused. Nothing ends a pause early, also no context.
func (f *Locker) awaitResume() {
	if f.Paused == nil {
		return
	}
	for resumed := f.Paused(); resumed != nil; resumed = f.Paused() {
		<-resumed
	}
}

func (f *Locker) call(ctx context.Context, op string, lease driver.Lease, do func(context.Context) error) error {
	f.InFlight.Start()
	defer f.InFlight.Done()
	f.awaitResume()
	f.mu.Lock()
	f.calls[op]++
	n := f.calls[op]
	f.mu.Unlock()
	if f.Check != nil {
		f.Check(ctx, op)
	}
	var fault Fault
	if f.Faults != nil {
		fault = f.Faults(op, n, lease)
	}
	err := f.apply(ctx, fault, do)
	f.awaitResume()
	return err
}

// apply makes a call to which a fault happens.
func (f *Locker) apply(ctx context.Context, fault Fault, do func(context.Context) error) error {
	if fault.Late > 0 {
		f.InFlight.Go(func() {
			time.Sleep(fault.Late)
			_ = do(context.WithoutCancel(ctx))
		})
		fault.Hang = true
	}
	if fault.Delay > 0 {
		done := ctx.Done()
		if fault.IgnoreContext {
			ctx, done = context.WithoutCancel(ctx), nil
		}
		delay := time.NewTimer(fault.Delay)
		defer delay.Stop()
		select {
		case <-delay.C:
		case <-done:
			return ctx.Err()
		}
	}
	switch {
	case fault.Hang:
		<-ctx.Done()
		return ctx.Err()
	case fault.Refuse != nil:
		return fault.Refuse
	}
	err := do(ctx)
	if fault.Lose != nil {
		return fault.Lose
	}
	return err
}

// ask makes a call that has an answer. A late call may write its answer after ask has returned.
func ask[T any](ctx context.Context, f *Locker, op string, lease driver.Lease, do func(context.Context) (T, error)) (T, error) {
	var mu sync.Mutex
	var got, none T
	err := f.call(ctx, op, lease, func(ctx context.Context) error {
		answer, err := do(ctx)
		mu.Lock()
		defer mu.Unlock()
		got = answer
		return err
	})
	if err != nil {
		return none, err
	}
	mu.Lock()
	defer mu.Unlock()
	return got, nil
}

func asked(req driver.Request) driver.Lease {
	return driver.Lease{Name: req.Name, ID: req.ID, Owner: req.Owner, TTL: req.TTL}
}

// TryAcquire implements [driver.Locker].
func (f *Locker) TryAcquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	return ask(ctx, f, OpAcquire, asked(req), func(ctx context.Context) (driver.Lease, error) {
		return f.Locker.TryAcquire(ctx, req)
	})
}

// HandOver implements [driver.HandOverer].
func (f *Locker) HandOver(ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
	return ask(ctx, f, OpHandOver, asked(req), func(ctx context.Context) (driver.Lease, error) {
		return f.Locker.Capabilities().HandOverer.HandOver(ctx, from, req)
	})
}

// Renew implements [driver.Locker].
func (f *Locker) Renew(ctx context.Context, l driver.Lease) error {
	return f.call(ctx, OpRenew, l, func(ctx context.Context) error { return f.Locker.Renew(ctx, l) })
}

// Release implements [driver.Locker].
func (f *Locker) Release(ctx context.Context, l driver.Lease) error {
	return f.call(ctx, OpRelease, l, func(ctx context.Context) error { return f.Locker.Release(ctx, l) })
}

// Inspect implements [driver.Locker].
func (f *Locker) Inspect(ctx context.Context, name string) (driver.Record, error) {
	return ask(ctx, f, OpRead, driver.Lease{Name: name}, func(ctx context.Context) (driver.Record, error) {
		return f.Locker.Inspect(ctx, name)
	})
}

// InspectBatch implements [driver.BatchInspector]. A fault happens to all records.
func (f *Locker) InspectBatch(ctx context.Context, names []string) ([]driver.Record, []error) {
	type answer struct {
		records []driver.Record
		errs    []error
	}
	got, err := ask(ctx, f, OpInspect, driver.Lease{}, func(ctx context.Context) (a answer, _ error) {
		a.records, a.errs = f.Locker.Capabilities().BatchInspector.InspectBatch(ctx, names)
		return a, nil
	})
	if err != nil {
		return make([]driver.Record, len(names)), slices.Repeat([]error{err}, len(names))
	}
	return got.records, got.errs
}

// List implements [driver.Lister]. A fault happens to the whole list.
func (f *Locker) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	type item struct {
		record driver.Record
		err    error
	}
	return func(yield func(driver.Record, error) bool) {
		items, err := ask(ctx, f, OpList, driver.Lease{}, func(ctx context.Context) (items []item, _ error) {
			for r, err := range f.Locker.Capabilities().Lister.List(ctx, prefix) {
				items = append(items, item{r, err})
			}
			return items, nil
		})
		if err != nil {
			yield(driver.Record{}, err)
			return
		}
		for _, i := range items {
			if !yield(i.record, i.err) {
				return
			}
		}
	}
}

// Break implements [driver.Breaker].
func (f *Locker) Break(ctx context.Context, name string, token uint64) error {
	return f.call(ctx, OpBreak, driver.Lease{Name: name}, func(ctx context.Context) error {
		return f.Locker.Capabilities().Breaker.Break(ctx, name, token)
	})
}

// BreakNow implements [driver.Breaker].
func (f *Locker) BreakNow(ctx context.Context, name string, token uint64) error {
	return f.call(ctx, OpBreak, driver.Lease{Name: name}, func(ctx context.Context) error {
		return f.Locker.Capabilities().Breaker.BreakNow(ctx, name, token)
	})
}

// ReadData implements [driver.DataStore].
func (f *Locker) ReadData(ctx context.Context, name string) ([]byte, driver.DataRevision, error) {
	type answer struct {
		data []byte
		at   driver.DataRevision
	}
	got, err := ask(ctx, f, OpReadData, driver.Lease{Name: name}, func(ctx context.Context) (a answer, err error) {
		a.data, a.at, err = f.Locker.Capabilities().DataStore.ReadData(ctx, name)
		return a, err
	})
	return got.data, got.at, err
}

// WriteData implements [driver.DataStore].
func (f *Locker) WriteData(ctx context.Context, l driver.Lease, data []byte, at driver.DataRevision) error {
	return f.call(ctx, OpWriteData, l, func(ctx context.Context) error {
		return f.Locker.Capabilities().DataStore.WriteData(ctx, l, data, at)
	})
}

// checker is the [driver.Checker] of a Locker.
type checker struct{ *Locker }

// Check implements [driver.Checker].
func (f checker) Check(ctx context.Context, report func(driver.Finding)) error {
	return f.call(ctx, OpCheck, driver.Lease{}, func(ctx context.Context) error {
		return f.Locker.Locker.Capabilities().Checker.Check(ctx, report)
	})
}

// RemoveProbe implements [driver.Checker].
func (f checker) RemoveProbe(ctx context.Context, name string) error {
	return f.call(ctx, OpCheck, driver.Lease{Name: name}, func(ctx context.Context) error {
		return f.Locker.Locker.Capabilities().Checker.RemoveProbe(ctx, name)
	})
}

// watch is one call of Watch or Wait.
type watch struct{ wake func() }

// Watch implements [driver.Watcher].
func (f *Locker) Watch(name string, wake func()) (stop func()) {
	w := &watch{wake}
	return f.forget(w, f.Locker.Capabilities().Watcher.Watch(name, func() { f.deliver(w, wake) }))
}

// Wait implements [driver.Queue]. A wake-up that was missed comes as
// [driver.MaybeMissed].
func (f *Locker) Wait(name string, wake func(turn time.Duration)) (stop func()) {
	w := &watch{func() { wake(driver.MaybeMissed) }}
	return f.forget(w, f.Locker.Capabilities().Queue.Wait(name, func(turn time.Duration) { f.deliver(w, func() { wake(turn) }) }))
}

// deliver calls wake, or notes that w has missed it.
func (f *Locker) deliver(w *watch, wake func()) {
	if f.Silent == nil || !f.Silent() {
		wake()
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.missed[w] = struct{}{}
}

// forget returns a function that stops a watch and forgets what it has missed.
func (f *Locker) forget(w *watch, stopInner func()) (stop func()) {
	return func() {
		stopInner()
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.missed, w)
	}
}

// WakeMissed delivers the wake-ups that did not arrive while Silent.
func (f *Locker) WakeMissed() {
	f.mu.Lock()
	missed := f.missed
	f.missed = map[*watch]struct{}{}
	f.mu.Unlock()
	for w := range missed {
		w.wake()
	}
}

// Capabilities are those of the backend, without batched renewals and what the fields exclude.
func (f *Locker) Capabilities() driver.Capabilities {
	below := f.Locker.Capabilities()
	c := driver.Capabilities{History: below.History}
	if f.Watcher && below.Watcher != nil {
		c.Watcher = f
	}
	if f.Queue && below.Queue != nil {
		c.Queue = f
	}
	if below.HandOverer != nil {
		c.HandOverer = f
	}
	if below.BatchInspector != nil && !f.NoBatchReads {
		c.BatchInspector = f
	}
	if below.Lister != nil {
		c.Lister = f
	}
	if below.Breaker != nil {
		c.Breaker = f
	}
	if below.DataStore != nil {
		c.DataStore = f
	}
	if below.Checker != nil {
		c.Checker = checker{f}
	}
	return c
}
