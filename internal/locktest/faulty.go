package locktest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/worker"
)

// ErrInjected is the answer of a call that a Fault refused, ErrTask the error of a failed task.
var (
	ErrInjected = errors.New("injected failure")
	ErrTask     = errors.New("the task failed")
)

// Kinds of calls, each with the lease that it concerns: of an acquire or a handoff the one asked
// for.
const (
	OpAcquire  = "acquire"
	OpHandOver = "hand over"
	OpRenew    = "renew"
	OpRelease  = "release"
	OpInspect  = "inspect" // InspectBatch, with an empty lease
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
type Faults = func(op string, n int, lease holdfast.Lease) Fault

// Faulty is a Locker between a client and a backend to whose calls Faults happen. It has no
// batched renewals, and reports its Watcher, Queue and batched reads only as the fields say.
type Faulty struct {
	holdfast.Locker
	Tb           testing.TB
	Faults       Faults
	Watcher      bool
	Queue        bool
	NoBatchReads bool
	Check        func(ctx context.Context, op string) // called for every call, or nil
	Pace         *Pace                                // counts requests and reads, or nil
	InFlight     worker.Group                         // calls under way; the test's end waits for them

	mu    sync.Mutex
	calls map[string]int
}

// NewFaulty makes a Faulty; with nil no fault happens.
func NewFaulty(tb testing.TB, l holdfast.Locker, faults Faults) *Faulty {
	if faults == nil {
		faults = func(string, int, holdfast.Lease) Fault { return Fault{} }
	}
	f := &Faulty{Locker: l, Tb: tb, Faults: faults, calls: map[string]int{}}
	tb.Cleanup(func() { f.InFlight.Wait(context.Background()) })
	return f
}

// Count returns how many calls of a kind there were.
func (f *Faulty) Count(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// Total returns how many calls there were.
func (f *Faulty) Total() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		n += c
	}
	return n
}

func (f *Faulty) call(ctx context.Context, op string, lease holdfast.Lease, do func(context.Context) error) error {
	f.InFlight.Start()
	defer f.InFlight.Done()
	f.mu.Lock()
	f.calls[op]++
	n := f.calls[op]
	f.mu.Unlock()
	if f.Check != nil {
		f.Check(ctx, op)
	}
	f.Pace.note(op)
	ft := f.Faults(op, n, lease)
	if ft.Late > 0 {
		f.InFlight.Go(func() {
			time.Sleep(ft.Late)
			_ = do(context.WithoutCancel(ctx))
		})
		ft.Hang = true
	}
	if ft.Delay > 0 {
		done := ctx.Done()
		if ft.IgnoreContext {
			ctx, done = context.WithoutCancel(ctx), nil
		}
		select {
		case <-time.After(ft.Delay):
		case <-done:
			return ctx.Err()
		}
	}
	switch {
	case ft.Hang:
		<-ctx.Done()
		return ctx.Err()
	case ft.Refuse != nil:
		return ft.Refuse
	}
	err := do(ctx)
	if ft.Lose != nil {
		return ft.Lose
	}
	return err
}

// TryAcquire implements [driver.Locker].
func (f *Faulty) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	return f.grant(ctx, OpAcquire, req, f.Locker.TryAcquire)
}

// HandOver implements [driver.HandOverer].
func (f *Faulty) HandOver(ctx context.Context, from holdfast.Lease, req driver.Request) (holdfast.Lease, error) {
	return f.grant(ctx, OpHandOver, req, func(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
		return f.Locker.Capabilities().HandOverer.HandOver(ctx, from, req)
	})
}

func (f *Faulty) grant(ctx context.Context, op string, req driver.Request, do func(context.Context, driver.Request) (holdfast.Lease, error)) (holdfast.Lease, error) {
	asked := holdfast.Lease{Name: req.Name, ID: req.ID, Owner: req.Owner, TTL: req.TTL}
	var got holdfast.Lease
	err := f.call(ctx, op, asked, func(ctx context.Context) (err error) {
		l, err := do(ctx, req)
		f.mu.Lock()
		got = l
		f.mu.Unlock()
		return err
	})
	if err != nil {
		return holdfast.Lease{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return got, nil
}

// Renew implements [driver.Locker].
func (f *Faulty) Renew(ctx context.Context, l holdfast.Lease) error {
	return f.call(ctx, OpRenew, l, func(ctx context.Context) error { return f.Locker.Renew(ctx, l) })
}

// Release implements [driver.Locker].
func (f *Faulty) Release(ctx context.Context, l holdfast.Lease) error {
	return f.call(ctx, OpRelease, l, func(ctx context.Context) error { return f.Locker.Release(ctx, l) })
}

// InspectBatch reads many records. A fault happens to all of them.
func (f *Faulty) InspectBatch(ctx context.Context, names []string) ([]holdfast.Record, []error) {
	var got []holdfast.Record
	var errs []error
	err := f.call(ctx, OpInspect, holdfast.Lease{}, func(ctx context.Context) error {
		r, e := f.Locker.Capabilities().BatchInspector.InspectBatch(ctx, names)
		f.mu.Lock()
		got, errs = r, e
		f.mu.Unlock()
		return nil
	})
	if err != nil {
		return make([]holdfast.Record, len(names)), slices.Repeat([]error{err}, len(names))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return got, errs
}

// Capabilities lacks batched renewals, and what the fields exclude.
func (f *Faulty) Capabilities() driver.Capabilities {
	a := f.Locker.Capabilities()
	a.BatchRenewer = nil
	if a.HandOverer != nil {
		a.HandOverer = f
	}
	if a.BatchInspector != nil {
		a.BatchInspector = f
	}
	if f.NoBatchReads {
		a.BatchInspector = nil
	}
	if !f.Watcher {
		a.Watcher = nil
	}
	if !f.Queue {
		a.Queue = nil
	}
	return a
}

// Refuse refuses all calls of these kinds.
func Refuse(ops ...string) Faults {
	return func(op string, _ int, _ holdfast.Lease) Fault {
		if slices.Contains(ops, op) {
			return Fault{Refuse: ErrInjected}
		}
		return Fault{}
	}
}

// RenewalFaults applies these faults to the first renewals, in order, and refuses all others.
// With the default TTL of 30 s the first renewal is sent at 10 s and given up at 13.75 s; the
// second is sent at 14 s.
func RenewalFaults(first ...Fault) Faults {
	return func(op string, n int, _ holdfast.Lease) Fault {
		switch {
		case op != OpRenew:
			return Fault{}
		case n <= len(first):
			return first[n-1]
		}
		return Fault{Refuse: ErrInjected}
	}
}

// NeverAnswers is a backend that does not answer calls of one kind for the locks "ill …" for an
// hour, long after their time limit.
func NeverAnswers(t *testing.T, store *memory.Store, op string) *Faulty {
	return NewFaulty(t, store.Locker(), func(called string, _ int, l holdfast.Lease) Fault {
		if called == op && strings.HasPrefix(l.Name, "ill ") {
			return Fault{Delay: time.Hour, IgnoreContext: true, Refuse: ErrInjected}
		}
		return Fault{}
	})
}
