// Package faulty has a driver.Locker between a client and a backend to whose calls faults happen,
// as a test says. It is the mechanism of the public package holdfasttest and of the module's own
// tests (test/locktest).
package faulty

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/worker"
)

// Kinds of calls, each with the lease that it concerns: of an acquire the one asked
// for; of a call that concerns no lease an empty one, with the lock's name if there is one.
const (
	OpAcquire   = "acquire"
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
// renewals and releases, so that each one is a call of its own. It reports its Waker, Queue and batched
// reads only as the fields say. The fields are set before the first call.
type Locker struct {
	driver.Locker        // the backend, with the faults
	Faults        Faults // nil: no fault happens
	Watcher       bool   // it wakes those that have no position
	Queue         bool
	NoBatchReads  bool
	Check         func(ctx context.Context, op string) // called for every call, or nil
	InFlight      worker.Group                         // calls under way

	// Paused returns nil, or a channel that is closed when the paused process of this Locker runs
	// again. A paused process sends no call and receives no answer. Paused may be nil.
	Paused func() <-chan struct{}
	// Silent reports whether wake-ups do not arrive now; WakeMissed delivers them later. Silent may
	// be nil.
	Silent func() bool

	mu     sync.Mutex
	calls  map[string]int
	waiter driver.WaiterID // of the latest request
	missed map[*watch]struct{}
}

// New makes a Locker on a backend.
func New(l driver.Locker, faults Faults) *Locker {
	f := &Locker{Faults: faults, calls: map[string]int{}, missed: map[*watch]struct{}{}}
	f.Locker = driver.Intercept(l, f.intercept)
	return f
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

// Position returns the position in the queue of a name that the sender of the latest request has.
func (f *Locker) Position(ctx context.Context, name string) (int, error) {
	f.mu.Lock()
	waiter := f.waiter
	f.mu.Unlock()
	records, errs := f.Locker.Capabilities().BatchInspector.InspectBatch(ctx, waiter, []string{name})
	return records[0].Position, errs[0]
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

// ops has the kinds of the calls to which faults happen.
var ops = map[driver.Method]string{
	driver.MethodTryAcquire: OpAcquire, driver.MethodRenew: OpRenew, driver.MethodRelease: OpRelease,
	driver.MethodInspect: OpRead, driver.MethodInspectBatch: OpInspect, driver.MethodList: OpList,
	driver.MethodBreak: OpBreak, driver.MethodBreakNow: OpBreak, driver.MethodReadData: OpReadData, driver.MethodWriteData: OpWriteData,
	driver.MethodCheck: OpCheck, driver.MethodRemoveProbe: OpCheck,
}

// intercept makes a call, or lets a fault happen to it. A fault of a batch happens to all its records, and
// one of a list to the whole list.
func (f *Locker) intercept(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
	op, known := ops[call.Method]
	switch {
	case call.Method == driver.MethodWake:
		return f.wait(ctx, call, next)
	case !known:
		return next(ctx, call)
	}
	f.InFlight.Start()
	defer f.InFlight.Done()
	f.awaitResume()
	f.mu.Lock()
	f.calls[op]++
	n := f.calls[op]
	f.waiter = cmp.Or(call.Request.Waiter, f.waiter)
	f.mu.Unlock()
	if f.Check != nil {
		f.Check(ctx, op)
	}
	var fault Fault
	if f.Faults != nil {
		fault = f.Faults(op, n, call.Concerned())
	}
	do := func(ctx context.Context) driver.Answer { return next(ctx, call) }
	if call.Method == driver.MethodList {
		do = func(ctx context.Context) driver.Answer { return listed(ctx, call, next) }
	}
	a := f.apply(ctx, fault, do)
	f.awaitResume()
	if call.Method == driver.MethodList && a.Err == nil {
		for i, r := range a.Records {
			if !call.Yield(r, a.Errs[i]) {
				break
			}
		}
	}
	return a
}

// listed lists everything before it returns: a late call may not yield.
func listed(ctx context.Context, call driver.Call, next driver.Next) (all driver.Answer) {
	call.Yield = func(r driver.Record, err error) bool {
		all.Records, all.Errs = append(all.Records, r), append(all.Errs, err)
		return true
	}
	all.Err = next(ctx, call).Err
	return all
}

// apply makes a call to which a fault happens.
func (f *Locker) apply(ctx context.Context, fault Fault, do func(context.Context) driver.Answer) driver.Answer {
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
			return driver.Answer{Err: ctx.Err()}
		}
	}
	switch {
	case fault.Hang:
		<-ctx.Done()
		return driver.Answer{Err: ctx.Err()}
	case fault.Refuse != nil:
		return driver.Answer{Err: fault.Refuse}
	}
	a := do(ctx)
	if fault.Lose != nil {
		return driver.Answer{Err: fault.Lose}
	}
	return a
}

// watch is one call of Wake.
type watch struct{ wake func() }

// wait makes a call of Wake. A wake-up that was missed comes as [driver.WakingBegan].
func (f *Locker) wait(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
	wake := call.Wake
	w := &watch{func() { wake(driver.Wakeup{Kind: driver.WakingBegan}) }}
	call.Wake = func(up driver.Wakeup) { f.deliver(w, func() { wake(up) }) }
	return driver.Answer{Stop: f.forget(w, next(ctx, call).Stop)}
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

// Info is that of the backend, without what the fields exclude.
func (f *Locker) Info() driver.Info {
	info := f.Locker.Info()
	info.WakesOnlyQueue = f.Queue && !f.Watcher || f.Watcher && info.WakesOnlyQueue
	return info
}

// Capabilities are those of the backend, without batched renewals and releases and what the fields exclude.
func (f *Locker) Capabilities() driver.Capabilities {
	c := f.Locker.Capabilities()
	c.BatchRenewer, c.BatchReleaser = nil, nil
	if !f.Queue {
		c.Queue = nil
	}
	if !f.Watcher && !f.Queue {
		c.Waker = nil
	}
	if f.NoBatchReads {
		c.BatchInspector = nil
	}
	return c
}
