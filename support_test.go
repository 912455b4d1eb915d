package holdfast_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errInjected = errors.New("injected failure")

// The calls that a fault can strike.
const (
	opAcquire  = "acquire"
	opHandOver = "hand over" // with the lease that is to be granted
	opRenew    = "renew"
	opRelease  = "release"
	opLook     = "look" // InspectBatch, with the lease of nobody
)

// fault says what becomes of one call.
type fault struct {
	delay  time.Duration // before the backend does it
	refuse error         // not done; this is the answer
	lose   error         // done, but this is the answer
	hang   bool          // the answer never comes: returns when ctx ends, undone
	deaf   bool          // with delay: the call does not notice that ctx ended
	late   time.Duration // the caller gives up (as hang), and the backend does it so much after the call
}

// faulty is a Locker between a client and a backend that does not behave.
type faulty struct {
	holdfast.Locker
	tb      testing.TB
	faults  func(op string, n int, lease holdfast.Lease) fault // n counts the calls of this op from 1
	watcher bool
	noLooks bool
	check   func(ctx context.Context, op string) // of every call, or nil
	pace    *pace                                // of requests and looks, or nil
	lates   sync.WaitGroup                       // calls under way; the test waits for them

	mu    sync.Mutex
	calls map[string]int
}

func newFaulty(tb testing.TB, l holdfast.Locker, faults func(op string, n int, lease holdfast.Lease) fault) *faulty {
	if faults == nil {
		faults = func(string, int, holdfast.Lease) fault { return fault{} }
	}
	f := &faulty{Locker: l, tb: tb, faults: faults, calls: map[string]int{}}
	tb.Cleanup(f.lates.Wait)
	return f
}

func (f *faulty) count(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

func (f *faulty) total() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		n += c
	}
	return n
}

func (f *faulty) call(ctx context.Context, op string, lease holdfast.Lease, do func(context.Context) error) error {
	f.lates.Add(1)
	defer f.lates.Done()
	f.mu.Lock()
	f.calls[op]++
	n := f.calls[op]
	f.mu.Unlock()
	if f.check != nil {
		f.check(ctx, op)
	}
	f.pace.note(op)
	ft := f.faults(op, n, lease)
	if ft.late > 0 {
		f.lates.Go(func() {
			time.Sleep(ft.late)
			_ = do(context.WithoutCancel(ctx))
		})
		ft.hang = true
	}
	if ft.delay > 0 {
		done := ctx.Done()
		if ft.deaf {
			ctx, done = context.WithoutCancel(ctx), nil
		}
		select {
		case <-time.After(ft.delay):
		case <-done:
			return ctx.Err()
		}
	}
	switch {
	case ft.hang:
		<-ctx.Done()
		return ctx.Err()
	case ft.refuse != nil:
		return ft.refuse
	}
	err := do(ctx)
	if ft.lose != nil {
		return ft.lose
	}
	return err
}

func (f *faulty) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	return f.grant(ctx, opAcquire, req, f.Locker.TryAcquire)
}

func (f *faulty) HandOver(ctx context.Context, from holdfast.Lease, req driver.Request) (holdfast.Lease, error) {
	return f.grant(ctx, opHandOver, req, func(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
		return f.Locker.Capabilities().HandOverer.HandOver(ctx, from, req)
	})
}

func (f *faulty) grant(ctx context.Context, op string, req driver.Request, do func(context.Context, driver.Request) (holdfast.Lease, error)) (holdfast.Lease, error) {
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

func (f *faulty) Renew(ctx context.Context, l holdfast.Lease) error {
	return f.call(ctx, opRenew, l, func(ctx context.Context) error { return f.Locker.Renew(ctx, l) })
}

func (f *faulty) Release(ctx context.Context, l holdfast.Lease) error {
	return f.call(ctx, opRelease, l, func(ctx context.Context) error { return f.Locker.Release(ctx, l) })
}

// InspectBatch is that of the Locker under it. A fault is one of all names.
func (f *faulty) InspectBatch(ctx context.Context, names []string) ([]holdfast.Record, []error) {
	var got []holdfast.Record
	var errs []error
	err := f.call(ctx, opLook, holdfast.Lease{}, func(ctx context.Context) error {
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
func (f *faulty) Capabilities() driver.Capabilities {
	a := f.Locker.Capabilities()
	a.BatchRenewer = nil
	if a.HandOverer != nil {
		a.HandOverer = f
	}
	if a.BatchInspector != nil {
		a.BatchInspector = f
	}
	if f.noLooks {
		a.BatchInspector = nil
	}
	if !f.watcher {
		a.Watcher = nil
	}
	return a
}

// newClient makes a client that goes by the test's time and is shut down at its end.
func newClient(tb testing.TB, l holdfast.Locker, opts ...holdfast.ClientOption) *holdfast.Client {
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

func mustLock(tb testing.TB, c *holdfast.Client, name string, opts ...holdfast.Option) *holdfast.Hold {
	tb.Helper()
	h, err := c.Lock(tb.Context(), name, opts...)
	if err != nil {
		tb.Fatalf("Lock: %v", err)
	}
	return h
}

func mustTryLock(tb testing.TB, c *holdfast.Client, name string, opts ...holdfast.Option) *holdfast.Hold {
	tb.Helper()
	h, err := c.TryLock(tb.Context(), name, opts...)
	if err != nil {
		tb.Fatalf("TryLock: %v", err)
	}
	return h
}

// exclusive checks from outside that no two holds of a name are live at once and
// that tokens rise.
type exclusive struct {
	tb    testing.TB
	mu    sync.Mutex
	last  map[string]context.Context
	token map[string]uint64
}

func newExclusive(tb testing.TB) *exclusive {
	return &exclusive{tb: tb, last: map[string]context.Context{}, token: map[string]uint64{}}
}

// enter notes a new hold by its context: the one before must have ended by now.
func (e *exclusive) enter(ctx context.Context, name string, token uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if token <= e.token[name] {
		e.tb.Errorf("%q: token %d came after %d", name, token, e.token[name])
	}
	if last := e.last[name]; last != nil && last.Err() == nil && ctx.Err() == nil {
		e.tb.Errorf("%q: the holds with tokens %d and %d are live at once", name, e.token[name], token)
	}
	e.last[name], e.token[name] = ctx, token
}

// events collects what an observer is told.
type events struct {
	mu   sync.Mutex
	list []holdfast.Event
}

func (e *events) observe(ev holdfast.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, ev)
}

func (e *events) count(t holdfast.EventType) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.list {
		if ev.Type == t {
			n++
		}
	}
	return n
}

func (e *events) types() (list []holdfast.EventType) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.list {
		list = append(list, ev.Type)
	}
	return list
}

// isHeld reports whether the backend thinks that the name is held.
func isHeld(tb testing.TB, store *memory.Store, name string) bool {
	tb.Helper()
	l := store.Locker()
	defer l.Close(context.Background())
	r, err := l.Inspect(context.Background(), name)
	if err != nil {
		tb.Fatalf("Inspect: %v", err)
	}
	return r.State == driver.StateHeld
}
