package locktest

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Scripted is a Locker some of whose methods a test replaces. It has a Waker if OnWatch is set,
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
	return driver.Capabilities{Waker: s}
}

// Wake implements [driver.Waker].
func (s Scripted) Wake(name string, _ driver.WaiterID, wake func(driver.Wakeup)) (stop func()) {
	return s.OnWatch(name, func() { wake(driver.Wakeup{Kind: driver.WakingBegan}) })
}

// Info implements [driver.Locker].
func (s Scripted) Info() driver.Info {
	info := s.Locker.Info()
	if s.Allowed != nil {
		info.Limits = *s.Allowed
	}
	return info
}

// Unordered is the [driver.Queue] of a Locker whose waiters a test wakes. There is nothing to leave.
type Unordered struct{}

// Leave implements [driver.Queue].
func (Unordered) Leave(context.Context, driver.WaiterID, []string) error { return nil }

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

// Ending is a Locker that ends the caller's context while it grants a lock.
type Ending struct {
	holdfast.Locker
	End func()
}

// TryAcquire implements [driver.Locker].
func (e Ending) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	l, err := e.Locker.TryAcquire(context.WithoutCancel(ctx), req)
	e.End()
	return l, err
}

// Endless is a Locker with a lock that another program holds by a lease without an end, as on Azure.
type Endless struct {
	driver.Locker
	Broken atomic.Pointer[driver.BreakTarget]
}

// Inspect implements [driver.Locker].
func (*Endless) Inspect(context.Context, string) (driver.Record, error) {
	return driver.Record{Name: "job", State: driver.StateHeld, Endless: true}, nil
}

// List implements [driver.Lister].
func (l *Endless) List(ctx context.Context, _ string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) { yield(l.Inspect(ctx, "job")) }
}

// Capabilities implements [driver.Locker].
func (l *Endless) Capabilities() driver.Capabilities {
	return driver.Capabilities{Lister: l, Breaker: l}
}

// Break implements [driver.Breaker].
func (l *Endless) Break(_ context.Context, _ string, target driver.BreakTarget) error {
	l.Broken.Store(&target)
	return nil
}

// BreakNow implements [driver.Breaker].
func (*Endless) BreakNow(context.Context, string, driver.BreakTarget) error {
	return errors.ErrUnsupported
}

// CallGauge is a Locker that measures how many calls of each method are under way at once. A batch of releases is
// one call of Release.
type CallGauge struct {
	holdfast.Locker
	OneByOne bool // it does not release in batches
	mu       sync.Mutex
	now      map[driver.Method]int
	most     map[driver.Method]int
}

// NewCallGauge makes a CallGauge; delay is added to each acquire and release.
func NewCallGauge(l holdfast.Locker, delay time.Duration) *CallGauge {
	g := &CallGauge{now: map[driver.Method]int{}, most: map[driver.Method]int{}}
	g.Locker = driver.Intercept(l, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
		method := call.Method
		if method == driver.MethodReleaseBatch {
			method = driver.MethodRelease
		}
		g.count(method, 1)
		defer g.count(method, -1)
		if method == driver.MethodTryAcquire || method == driver.MethodRelease {
			time.Sleep(delay)
		}
		return next(ctx, call)
	})
	return g
}

// Capabilities implements [driver.Locker].
func (g *CallGauge) Capabilities() driver.Capabilities {
	c := g.Locker.Capabilities()
	if g.OneByOne {
		c.BatchReleaser = nil
	}
	return c
}

func (g *CallGauge) count(method driver.Method, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now[method] += n
	g.most[method] = max(g.most[method], g.now[method])
}

// Highest returns the most calls of a method that were under way at once, since Reset.
func (g *CallGauge) Highest(method driver.Method) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most[method]
}

// Reset forgets what was measured.
func (g *CallGauge) Reset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.most)
}

// LossyWatcher is a Locker whose Watcher loses wake-ups while Loses is set.
type LossyWatcher struct {
	holdfast.Locker
	Loses atomic.Bool
	mu    sync.Mutex
	wakes []func(driver.Wakeup)
}

// NewLossyWatcher makes a LossyWatcher that loses wake-ups or does not.
func NewLossyWatcher(l holdfast.Locker, loses bool) *LossyWatcher {
	w := &LossyWatcher{}
	w.Loses.Store(loses)
	w.Locker = driver.Intercept(l, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
		if call.Method == driver.MethodWake {
			wake := call.Wake
			w.mu.Lock()
			w.wakes = append(w.wakes, wake)
			w.mu.Unlock()
			call.Wake = func(up driver.Wakeup) {
				if !w.Loses.Load() {
					wake(up)
				}
			}
		}
		return next(ctx, call)
	})
	return w
}

// WakeAll wakes every waiter there has been.
func (w *LossyWatcher) WakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, wake := range w.wakes {
		wake(driver.Wakeup{})
	}
}

// mortal is the Locker of a process that can die: then no call succeeds.
func mortal(l holdfast.Locker, dead *atomic.Bool) holdfast.Locker {
	return driver.Intercept(l, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
		if dead.Load() && call.Method != driver.MethodClose {
			return driver.Answer{Err: ErrInjected}
		}
		return next(ctx, call)
	})
}
