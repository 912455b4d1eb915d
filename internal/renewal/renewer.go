// Package renewal renews leases, detects their loss, and reports work that overruns its lease.
package renewal

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/dispatch"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/worker"
)

// Renewer renews all leases of a Client. Nothing else renews a lease or decides that one is
// lost.
//
// One goroutine, run, serves a priority queue of entries, ordered by when each needs something
// next: a renewal, its loss, its overrun. It does no I/O, so a call that hangs cannot delay a
// deadline. An entry that is due for renewal waits for a backend call (calls.go), which runs on
// a goroutine of its own. Between its renewals a lease costs its entry and nothing else.
type Renewer struct {
	locker  driver.Locker
	batch   driver.BatchRenewer // or nil
	now     func() time.Duration
	logger  *slog.Logger
	calls   worker.Group    // renewals under way
	Hooks   worker.Group    // overrun hooks under way
	ctx     context.Context // ends with Close; every renewal descends from it
	cancel  context.CancelFunc
	wake    chan struct{} // capacity 1: entries have changed
	measure bool          // Owner.Renewed is called
	done    chan struct{} // closed when run has returned

	mu      sync.Mutex              // never held across I/O or a function of the caller's, but for the clock
	entries *dispatch.Queue[*Entry] // by when each is due
	due     *dispatch.Calls[*Entry]
	running bool
	closed  bool
}

// New makes a Renewer with the clock now. With measure, owners are notified of renewals.
func New(locker driver.Locker, now func() time.Duration, logger *slog.Logger, measure bool) *Renewer {
	r := &Renewer{
		locker: locker, batch: locker.Capabilities().BatchRenewer, now: now, logger: logger, measure: measure,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		entries: dispatch.NewQueue(func(x, y *Entry) bool { return x.due() < y.due() }, func(e *Entry, index int) { e.index = int32(index) }),
	}
	r.due = newCalls(r)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Add begins to renew a lease whose acquiring request was sent at start.
func (r *Renewer) Add(e *Entry, start time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.phase != renewing { // a Shutdown has removed it already
		return
	}
	e.countFrom(start)
	e.next = start + e.Timing.RenewEvery
	r.entries.Push(e)
	if !r.running && !r.closed {
		r.running = true
		go r.run()
	}
	r.wakeUp()
}

// Remove stops renewing a lease, whose owner releases it. It reports whether the lease was
// renewed in time until now. If its time was over and nobody had noticed, the loss is reported.
func (r *Renewer) Remove(e *Entry) bool {
	r.mu.Lock()
	active := e.phase == renewing
	e.phase = removed
	late := active && e.index >= 0 && e.late(r.now())
	cause := e.lateErr()
	r.drop(e)
	r.mu.Unlock()
	if late {
		e.Report(event.Lost, "", cause)
	}
	return active && !late
}

// GiveUp ends a hold and stops renewing its lease, so that the lease expires even if the work
// never ends.
func (r *Renewer) GiveUp(e *Entry, cause error) {
	r.mu.Lock()
	active := e.phase == renewing
	if active {
		r.end(e, cause)
	}
	r.mu.Unlock()
	if active {
		e.owner.Lost(cause)
	}
}

// Lease returns the lease with the State of its latest renewal.
func (r *Renewer) Lease(e *Entry) driver.Lease {
	r.mu.Lock()
	defer r.mu.Unlock()
	return e.Lease
}

// RenewNow makes a lease due for renewal. It does nothing while a renewal is under way.
func (r *Renewer) RenewNow(e *Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.idle() {
		e.next = r.now()
		r.reorder(e)
	}
}

// ClockMoved makes the Renewer read its clock at once.
func (r *Renewer) ClockMoved() { r.wakeUp() }

// Close stops all renewing and waits for the calls under way. It reports whether they ended
// before ctx. Until the leases left have expired, run goes on, to report work that overruns.
func (r *Renewer) Close(ctx context.Context) bool {
	r.mu.Lock()
	r.closed = true
	left := slices.Clone(r.entries.All())
	for _, e := range left {
		if e.phase == renewing {
			r.end(e, driver.Errorf("%q: %w: Shutdown gave up on it", e.Lease.Name, driver.ErrLost))
		}
	}
	running := r.running
	r.mu.Unlock()
	r.cancel()
	r.wakeUp()
	if running && len(left) == 0 {
		select { // calls counts what run does: without it, run is about to return
		case <-r.done:
		case <-ctx.Done():
		}
	}
	return r.calls.Wait(ctx)
}

// suspendCheck bounds how long run sleeps. Timers stand still while the system is suspended,
// and the elapsed-time clock does not: after a resume, run notices a deadline within this time.
const suspendCheck = time.Second

func (r *Renewer) run() {
	defer close(r.done)
	timer := time.NewTimer(suspendCheck) // Add wakes it
	defer timer.Stop()
	for {
		select {
		case <-r.wake:
		case <-timer.C:
		}
		if wait, some := r.step(); some {
			timer.Reset(min(wait, suspendCheck))
		} else if r.ctx.Err() != nil {
			return
		}
	}
}

// step does all that is due. It returns how long until something is due again; some is false
// if there are no entries.
func (r *Renewer) step() (wait time.Duration, some bool) {
	var actions []func() // without the mutex
	var lost []*Entry
	r.mu.Lock()
	now := r.now()
	for r.entries.Len() > 0 && r.entries.First().due() <= now {
		e := r.entries.First()
		if action := r.advance(e, now); action != nil {
			actions = append(actions, action)
		}
		if e.phase == ended {
			lost = append(lost, e)
		}
	}
	r.due.Start()
	if some = r.entries.Len() > 0; some {
		wait = r.entries.First().due() - now
	}
	if len(actions) > 0 && r.calls.Start() { // Close waits for them, since a telemetry hook may hang
		defer r.calls.Done()
	}
	r.mu.Unlock()
	perform(lost, actions)
	return wait, some
}

// perform ends the contexts of entries that were lost, and does the actions, without the mutex.
func perform(lost []*Entry, actions []func()) {
	for _, e := range lost {
		e.owner.Cancel(e.LostErr()) // Promise 2: all contexts end before the hook, which may be slow, notes the first loss.
	}
	for _, action := range actions {
		action()
	}
}

// advance does what an entry is due for. It returns what to do without the mutex.
func (r *Renewer) advance(e *Entry, now time.Duration) func() {
	switch {
	case e.phase == ended:
		e.phase = removed
		r.drop(e)
		return func() { r.reportOverrun(e) }
	case e.late(now):
		// Promise 2: the deadline ends the hold although a call may still be under way.
		return r.lose(e, e.lateErr())
	default:
		r.enqueue(e)
		return nil
	}
}

// noteResult takes in the result of a call for one of its entries, also of a call that is no
// longer waited for. It returns what to do without the mutex, and whether to report a
// failure.
func (r *Renewer) noteResult(e *Entry, c *call, now time.Duration, state driver.LeaseState, err error) (action func(), failed bool) {
	current := e.call == c
	if current {
		e.call = nil
	}
	switch {
	case e.phase != renewing:
		return nil, false
	case e.late(now):
		// Promise 2: a success that comes too late does not count; Hold.Err may have reported
		// the loss already.
		return r.lose(e, e.lateErr()), false
	case errors.Is(err, driver.ErrLost):
		// Promise 4: of the backend's answers, only the definite one ends the lease.
		return r.lose(e, driver.Errorf("%q: %w", e.Lease.Name, err)), false
	case err == nil:
		if left := e.LossAt() - now; r.measure {
			action = func() { e.owner.Renewed(left) }
		}
		// A later call may have succeeded before: the deadline never moves back.
		if before := e.start.load(); c.start >= before {
			e.Lease.State = state
		}
		e.countFrom(max(e.start.load(), c.start))
		if e.idle() { // else its next call comes soon
			e.next = e.start.load() + e.Timing.RenewEvery
		}
	case current:
		e.noteFailure(err, now)
		failed = true
	}
	r.reorder(e)
	return action, failed
}

// lose reports a loss and ends the lease. What it returns ends the hold's context. The report comes first, with mu held, because
// whoever sees the loss may release the lock and acquire it again. It only adds to the observers' backlogs.
func (r *Renewer) lose(e *Entry, cause error) func() {
	e.Report(event.Lost, "", cause)
	r.end(e, cause)
	return func() { e.owner.Lost(cause) }
}

// end stops renewing a lease whose work may still run.
func (r *Renewer) end(e *Entry, cause error) {
	e.phase = ended // the rest of a heap in which it may wait for a call is ordered by next
	e.over.Store(&ending{cause, r.now()})
	r.reorder(e)
}

func (r *Renewer) reportOverrun(e *Entry) {
	overrun := e.event(event.Overrun, "", nil)
	e.Emit(overrun)
	e.owner.Overran()
	if e.Overrun != nil {
		r.Hooks.Go(func() { event.Call(r.logger, e.Overrun, overrun) })
	}
}

// reorder moves an entry after its due time has changed.
func (r *Renewer) reorder(e *Entry) {
	if e.index >= 0 {
		r.entries.Fix(int(e.index))
	}
	r.wakeUp()
}

// drop takes an entry out of the queue of entries.
func (r *Renewer) drop(e *Entry) {
	if e.index >= 0 {
		r.entries.Remove(int(e.index))
	}
}

func (r *Renewer) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}
