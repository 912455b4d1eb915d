package locktest

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// Failures counts what was told to have failed.
func (e *Events) Failures(op string) (n int) {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	for _, ev := range e.List {
		if ev.Type == holdfast.EventError && ev.Op == op {
			n++
		}
	}
	return n
}

// First returns the first event of a type.
func (e *Events) First(typ holdfast.EventType) holdfast.Event {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	for _, ev := range e.List {
		if ev.Type == typ {
			return ev
		}
	}
	return holdfast.Event{}
}

// Op counts the failures of one operation.
func (e *Events) Op(op string) (n int) {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	for _, ev := range e.List {
		if ev.Type == holdfast.EventError && ev.Op == op {
			n++
		}
	}
	return n
}

// Again is enter for a task that may be one of several in one leadership.
func (e *Exclusive) Again(ctx context.Context, name string, token uint64) {
	e.mu.Lock()
	same := e.Token[name] == token
	e.mu.Unlock()
	if !same {
		e.Enter(ctx, name, token)
	}
}

var ErrInjected = errors.New("injected failure")

// The calls that a fault can strike.
const (
	OpAcquire  = "acquire"
	OpHandOver = "hand over" // with the lease that is to be granted
	OpRenew    = "renew"
	OpRelease  = "release"
	OpInspect  = "look" // InspectBatch, with the lease of nobody
)

// Fault says what becomes of one call.
type Fault struct {
	Delay  time.Duration // before the backend does it
	Refuse error         // not done; this is the answer
	Lose   error         // done, but this is the answer
	Hang   bool          // the answer never comes: returns when ctx ends, undone
	Deaf   bool          // with delay: the call does not notice that ctx ended
	Late   time.Duration // the caller gives up (as hang), and the backend does it so much after the call
}

// Faulty is a Locker between a client and a backend that does not behave.
type Faulty struct {
	holdfast.Locker
	Tb      testing.TB
	Faults  func(op string, n int, lease holdfast.Lease) Fault // n counts the calls of this op from 1
	Watcher bool
	NoLooks bool
	Check   func(ctx context.Context, op string) // of every call, or nil
	Pace    *Pace                                // of requests and looks, or nil
	Lates   sync.WaitGroup                       // calls under way; the test waits for them

	mu    sync.Mutex
	calls map[string]int
}

func NewFaulty(tb testing.TB, l holdfast.Locker, faults func(op string, n int, lease holdfast.Lease) Fault) *Faulty {
	if faults == nil {
		faults = func(string, int, holdfast.Lease) Fault { return Fault{} }
	}
	f := &Faulty{Locker: l, Tb: tb, Faults: faults, calls: map[string]int{}}
	tb.Cleanup(f.Lates.Wait)
	return f
}

func (f *Faulty) Count(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

func (f *Faulty) Total() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		n += c
	}
	return n
}

func (f *Faulty) call(ctx context.Context, op string, lease holdfast.Lease, do func(context.Context) error) error {
	f.Lates.Add(1)
	defer f.Lates.Done()
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
		f.Lates.Go(func() {
			time.Sleep(ft.Late)
			_ = do(context.WithoutCancel(ctx))
		})
		ft.Hang = true
	}
	if ft.Delay > 0 {
		done := ctx.Done()
		if ft.Deaf {
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

func (f *Faulty) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	return f.grant(ctx, OpAcquire, req, f.Locker.TryAcquire)
}

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

func (f *Faulty) Renew(ctx context.Context, l holdfast.Lease) error {
	return f.call(ctx, OpRenew, l, func(ctx context.Context) error { return f.Locker.Renew(ctx, l) })
}

func (f *Faulty) Release(ctx context.Context, l holdfast.Lease) error {
	return f.call(ctx, OpRelease, l, func(ctx context.Context) error { return f.Locker.Release(ctx, l) })
}

// InspectBatch is that of the Locker under it. A fault is one of all names.
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

// Capabilities has the client's renewals come one by one and, unless watcher, its waiters poll.
func (f *Faulty) Capabilities() driver.Capabilities {
	a := f.Locker.Capabilities()
	a.BatchRenewer = nil
	if a.HandOverer != nil {
		a.HandOverer = f
	}
	if a.BatchInspector != nil {
		a.BatchInspector = f
	}
	if f.NoLooks {
		a.BatchInspector = nil
	}
	if !f.Watcher {
		a.Watcher = nil
	}
	return a
}

// NewClient makes a client that goes by the test's time and is shut down at its end.
func NewClient(tb testing.TB, l holdfast.Locker, opts ...holdfast.ClientOption) *holdfast.Client {
	tb.Helper()
	start := time.Now()
	opts = append([]holdfast.ClientOption{
		holdfast.WithElapsed(func() time.Duration { return time.Since(start) }),
		holdfast.WithLogger(slog.New(slog.DiscardHandler)),
	}, opts...)
	c, err := holdfast.New(l, opts...)
	if err != nil {
		tb.Fatalf("New: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = c.Shutdown(ctx)
	})
	return c
}

func MustLock(tb testing.TB, c *holdfast.Client, name string, opts ...holdfast.Option) *holdfast.Hold {
	tb.Helper()
	h, err := c.Lock(tb.Context(), name, opts...)
	if err != nil {
		tb.Fatalf("Lock: %v", err)
	}
	return h
}

func MustTryLock(tb testing.TB, c *holdfast.Client, name string, opts ...holdfast.Option) *holdfast.Hold {
	tb.Helper()
	h, err := c.TryLock(tb.Context(), name, opts...)
	if err != nil {
		tb.Fatalf("TryLock: %v", err)
	}
	return h
}

// Exclusive checks from outside that no two holds of a name are live at once and
// that tokens rise.
type Exclusive struct {
	tb    testing.TB
	mu    sync.Mutex
	last  map[string]context.Context
	Token map[string]uint64
}

func NewExclusive(tb testing.TB) *Exclusive {
	return &Exclusive{tb: tb, last: map[string]context.Context{}, Token: map[string]uint64{}}
}

// Enter notes a new hold by its context: the one before must have ended by now.
func (e *Exclusive) Enter(ctx context.Context, name string, token uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if token <= e.Token[name] {
		e.tb.Errorf("%q: token %d came after %d", name, token, e.Token[name])
	}
	if last := e.last[name]; last != nil && last.Err() == nil && ctx.Err() == nil {
		e.tb.Errorf("%q: the holds with tokens %d and %d are live at once", name, e.Token[name], token)
	}
	e.last[name], e.Token[name] = ctx, token
}

// Events collects what an observer is told.
type Events struct {
	Mu   sync.Mutex
	List []holdfast.Event
}

func (e *Events) Observe(ev holdfast.Event) {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	e.List = append(e.List, ev)
}

func (e *Events) Count(t holdfast.EventType) (n int) {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	for _, ev := range e.List {
		if ev.Type == t {
			n++
		}
	}
	return n
}

func (e *Events) Types() (list []holdfast.EventType) {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	for _, ev := range e.List {
		list = append(list, ev.Type)
	}
	return list
}

// IsHeld reports whether the backend thinks that the name is held.
func IsHeld(tb testing.TB, store *memory.Store, name string) bool {
	tb.Helper()
	l := store.Locker()
	defer l.Close(context.Background())
	r, err := l.Inspect(context.Background(), name)
	if err != nil {
		tb.Fatalf("Inspect: %v", err)
	}
	return r.State == driver.StateHeld
}
