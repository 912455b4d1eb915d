package locktest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Scripted is a Locker some of whose methods a test replaces. It has a Watcher if OnWatch is set,
// and no other capability.
type Scripted struct {
	holdfast.Locker
	OnAcquire func(ctx context.Context, req driver.Request) (holdfast.Lease, error)
	OnWatch   func(name string, wake func()) (stop func())
	Allowed   *driver.Limits
}

// TryAcquire implements [driver.Locker].
func (s Scripted) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	if s.OnAcquire == nil {
		return s.Locker.TryAcquire(ctx, req)
	}
	return s.OnAcquire(ctx, req)
}

// Capabilities implements [driver.Locker].
func (s Scripted) Capabilities() driver.Capabilities {
	if s.OnWatch == nil {
		return driver.Capabilities{}
	}
	return driver.Capabilities{Watcher: s}
}

// Watch implements [driver.Watcher].
func (s Scripted) Watch(name string, wake func()) (stop func()) { return s.OnWatch(name, wake) }

// Limits implements [driver.Locker].
func (s Scripted) Limits() driver.Limits {
	if s.Allowed != nil {
		return *s.Allowed
	}
	return s.Locker.Limits()
}

// Anonymous is a Locker that says of a holder only that there is one.
type Anonymous struct{ holdfast.Locker }

// TryAcquire implements [driver.Locker].
func (a Anonymous) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	l, err := a.Locker.TryAcquire(ctx, req)
	if errors.Is(err, holdfast.ErrHeld) {
		err = &holdfast.HeldError{Record: holdfast.Record{Name: req.Name, State: driver.StateHeld}}
	}
	return l, err
}

// RenewalGauge is a Faulty that measures how many renewals and releases are under way at once.
type RenewalGauge struct {
	*Faulty
	now, Highest atomic.Int64
}

func (g *RenewalGauge) measure(call func() error) error {
	n := g.now.Add(1)
	defer g.now.Add(-1)
	for most := g.Highest.Load(); n > most && !g.Highest.CompareAndSwap(most, n); most = g.Highest.Load() {
	}
	return call()
}

// Renew implements [driver.Locker].
func (g *RenewalGauge) Renew(ctx context.Context, l holdfast.Lease) error {
	return g.measure(func() error { return g.Faulty.Renew(ctx, l) })
}

// Release implements [driver.Locker].
func (g *RenewalGauge) Release(ctx context.Context, l holdfast.Lease) error {
	return g.measure(func() error { return g.Faulty.Release(ctx, l) })
}

// CallGauge is a Locker that measures how many acquires, and how many releases, are under way at
// once.
type CallGauge struct {
	holdfast.Locker
	delay time.Duration
	mu    sync.Mutex
	now   map[string]int
	most  map[string]int
}

// NewCallGauge makes a CallGauge; delay is added to each call.
func NewCallGauge(l holdfast.Locker, delay time.Duration) *CallGauge {
	return &CallGauge{Locker: l, delay: delay, now: map[string]int{}, most: map[string]int{}}
}

func (g *CallGauge) begin(op string) (end func()) {
	g.mu.Lock()
	g.now[op]++
	g.most[op] = max(g.most[op], g.now[op])
	g.mu.Unlock()
	time.Sleep(g.delay)
	return func() {
		g.mu.Lock()
		g.now[op]--
		g.mu.Unlock()
	}
}

// TryAcquire implements [driver.Locker].
func (g *CallGauge) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	defer g.begin(OpAcquire)()
	return g.Locker.TryAcquire(ctx, req)
}

// Release implements [driver.Locker].
func (g *CallGauge) Release(ctx context.Context, l holdfast.Lease) error {
	defer g.begin(OpRelease)()
	return g.Locker.Release(ctx, l)
}

// Highest returns the most calls of a kind that were under way at once.
func (g *CallGauge) Highest(op string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most[op]
}

// LossyWatcher is a Locker whose Watcher loses wake-ups while Loses is set.
type LossyWatcher struct {
	holdfast.Locker
	Loses atomic.Bool
	mu    sync.Mutex
	wakes []func()
}

// Capabilities implements [driver.Locker].
func (w *LossyWatcher) Capabilities() driver.Capabilities {
	c := w.Locker.Capabilities()
	c.Watcher = w
	return c
}

// Watch implements [driver.Watcher].
func (w *LossyWatcher) Watch(name string, wake func()) (stop func()) {
	w.mu.Lock()
	w.wakes = append(w.wakes, wake)
	w.mu.Unlock()
	return w.Locker.Capabilities().Watcher.Watch(name, func() {
		if !w.Loses.Load() {
			wake()
		}
	})
}

// WakeAll wakes every waiter there has been.
func (w *LossyWatcher) WakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, wake := range w.wakes {
		wake()
	}
}

// mortal is the Locker of a process that can die: then nothing is renewed or released.
type mortal struct {
	holdfast.Locker
	dead *atomic.Bool
}

func (m mortal) Renew(ctx context.Context, l holdfast.Lease) error {
	if m.dead.Load() {
		return ErrInjected
	}
	return m.Locker.Renew(ctx, l)
}

func (m mortal) RenewBatch(ctx context.Context, leases []holdfast.Lease) []error {
	if m.dead.Load() {
		return slices.Repeat([]error{ErrInjected}, len(leases))
	}
	return m.Locker.Capabilities().BatchRenewer.RenewBatch(ctx, leases)
}

func (m mortal) Release(ctx context.Context, l holdfast.Lease) error {
	if m.dead.Load() {
		return ErrInjected
	}
	return m.Locker.Release(ctx, l)
}

func (m mortal) Capabilities() driver.Capabilities {
	c := m.Locker.Capabilities()
	c.BatchRenewer, c.HandOverer = m, nil
	return c
}
