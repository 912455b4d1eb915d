package renewal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/priority"
	"github.com/holdfast-go/holdfast/internal/timing"
	"github.com/holdfast-go/holdfast/internal/worker"
)

// keeper is the one renewal engine: every hold of a Client is kept by it, and
// nothing else renews a lease or decides that one is lost.
//
// One goroutine, run, goes by a heap of leases ordered by when each needs
// something next: a renewal, the loss, the overrun. It never does I/O, so a hung
// call cannot delay a deadline. A lease that is due for renewal lines up for a call
// (renewal.go), which runs on a goroutine of its own and reports back through
// renewed. A lease costs its heap entry; nothing waits for it between renewals.
type Renewer struct {
	locker driver.Locker
	batch  driver.BatchRenewer // or nil
	now    func() time.Duration
	logger *slog.Logger
	calls  worker.Group    // renewals and hooks under way
	ctx    context.Context // ends with close; every renewal descends from it
	cancel context.CancelFunc
	wake   chan struct{} // capacity 1: the heap changed
	done   chan struct{} // closed when run has returned

	mu      sync.Mutex              // never held across I/O or a caller's function, the clock apart
	entries *priority.Queue[*Entry] // by when each is due
	queues  [64]*queue              // by class
	running bool
	closed  bool
}

// phase is where a kept lease is in its life.
type phase uint8

const (
	renewing phase = iota // renewed in time so far
	ended                 // lost or given up; its work may still run
	removed               // released, or its overrun was told: not in the heap
)

// policy is what the leases of one caller, or of many, have in common.
type Policy struct {
	Timing  timing.Timing
	Emit    func(event.Event)
	Overrun func(event.Event) // the user's hook, or nil
}

// kept is one lease under the keeper's care.
type Entry struct {
	*Policy
	Lease driver.Lease
	owner interface{ Lost(cause error) } // is called when the lease is lost

	// loss mirrors timing.lossAt(start), for Hold.Err to read without the lock.
	Loss atomic.Int64
	// gone is why the lease was lost or given up, or nil.
	gone atomic.Pointer[error]

	// The rest is guarded by keeper.mu.
	start    time.Duration // just before the last successful request was sent
	next     time.Duration // when to renew; during a call, when to give up on it
	phase    phase
	queued   bool  // up for a call
	failures int32 // tries since the last success
	call     *call // under way, or nil
	lastErr  error // of the latest failed try
	index    int   // in the heap; -1 outside
}

// init prepares an entry, before it is added.
func (l *Entry) Init(p *Policy, lease driver.Lease, owner interface{ Lost(cause error) }) {
	l.Policy, l.Lease, l.owner, l.index = p, lease, owner, -1
}

// lostErr says why the lease was lost or given up; nil if it was not, as far as is known.
func (l *Entry) LostErr() error {
	if why := l.gone.Load(); why != nil {
		return *why
	}
	return nil
}

// lossAt is when the lease is lost unless it is renewed before.
func (l *Entry) LossAt() time.Duration { return time.Duration(l.Loss.Load()) }

func New(locker driver.Locker, now func() time.Duration, logger *slog.Logger) *Renewer {
	k := &Renewer{
		locker: locker, batch: locker.Capabilities().BatchRenewer, now: now, logger: logger,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		entries: priority.New(func(x, y *Entry) bool { return x.due() < y.due() }, func(l *Entry, index int) { l.index = index }),
	}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k
}

// add begins to keep a lease whose acquiring request was sent at start.
func (k *Renewer) Add(l *Entry, start time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.phase != renewing { // dropped already, by a Shutdown
		return
	}
	l.begin(start)
	l.next = start + l.Timing.RenewEvery
	k.entries.Push(l)
	if !k.running && !k.closed {
		k.running = true
		go k.run()
	}
	k.wakeUp()
}

// drop stops keeping a lease: its owner releases it. It reports whether the lease
// was still kept until now. If its time ran out unnoticed, the loss is told.
func (k *Renewer) Remove(l *Entry) bool {
	k.mu.Lock()
	was := l.phase
	l.phase = removed
	late := was == renewing && l.index >= 0 && k.now() >= l.Timing.LossAt(l.start)
	cause := l.lateError()
	k.unqueue(l)
	k.mu.Unlock()
	if late {
		l.Report(event.Lost, "", cause)
	}
	return was == renewing && !late
}

// giveUp ends a hold and renews its lease no more, so that it expires even if its
// work never ends.
func (k *Renewer) GiveUp(l *Entry, cause error) {
	k.mu.Lock()
	gave := l.phase == renewing
	if gave {
		k.end(l, cause)
	}
	k.mu.Unlock()
	if gave {
		l.owner.Lost(cause)
	}
}

// close ends all keeping. Leases still kept are renewed no more; until they have
// expired run goes on, to tell of work that overruns.
func (k *Renewer) Close(ctx context.Context) bool {
	k.mu.Lock()
	k.closed = true
	left := slices.Clone(k.entries.All())
	for _, l := range left {
		if l.phase == renewing {
			k.end(l, fmt.Errorf("holdfast: %q: %w: Shutdown gave up on it", l.Lease.Name, driver.ErrLost))
		}
	}
	running := k.running
	k.mu.Unlock()
	k.cancel()
	k.wakeUp()
	if running && len(left) == 0 {
		<-k.done // never waits for I/O
	}
	return k.calls.Wait(ctx)
}

// suspendCheck bounds the sleep between looks at the clock. Timers stand still
// while the system is suspended, the elapsed-time clock does not: after a resume
// a deadline is noticed within this time.
const suspendCheck = time.Second

func (k *Renewer) run() {
	defer close(k.done)
	timer := time.NewTimer(suspendCheck) // add rouses
	defer timer.Stop()
	for {
		select {
		case <-k.wake:
		case <-timer.C:
		}
		if wait, some := k.step(); some {
			timer.Reset(min(wait, suspendCheck))
		} else if k.ctx.Err() != nil {
			return
		}
	}
}

// step does all that is due and returns how long until something is again; some
// is false if nothing is kept.
func (k *Renewer) step() (wait time.Duration, some bool) {
	var acts []func()
	k.mu.Lock()
	now := k.now()
	for k.entries.Len() > 0 && k.entries.First().due() <= now {
		if act := k.advance(k.entries.First(), now); act != nil {
			acts = append(acts, act)
		}
	}
	acts = append(acts, k.dispatch(now)...)
	if some = k.entries.Len() > 0; some {
		wait = k.entries.First().due() - now
	}
	k.mu.Unlock()
	for _, act := range acts {
		act()
	}
	return wait, some
}

// advance moves a due lease one step on and returns what to do without the lock.
func (k *Renewer) advance(l *Entry, now time.Duration) func() {
	switch {
	case l.phase == ended:
		l.phase = removed
		k.unqueue(l)
		return func() { k.reportOverrun(l) }
	case now >= l.Timing.LossAt(l.start):
		return k.lose(l, l.lateError())
	case l.call != nil: // its time limit is over, and the driver has not returned
		l.noteFailure(timing.ErrHung, now)
		k.reorder(l)
		return func() { l.Report(event.Error, "renew", timing.ErrHung) }
	default:
		k.enqueue(l)
		return nil
	}
}

// renewed takes in the result that a call, also one given up before, had for one of
// its leases. It returns what to do without the lock, and whether a failure is to be
// told.
func (k *Renewer) takeResult(l *Entry, c *call, now time.Duration, err error) (act func(), failed bool) {
	current := l.call == c
	if current {
		l.call = nil
	}
	switch {
	case l.phase != renewing:
		return nil, false
	case now >= l.Timing.LossAt(l.start):
		// Too late, whatever the reply says: the hold may already have told so.
		return k.lose(l, l.lateError()), false
	case errors.Is(err, driver.ErrLost):
		return k.lose(l, fmt.Errorf("holdfast: %q: %w", l.Lease.Name, err)), false
	case err == nil:
		// A reply that was overtaken by a later call's must not set the clock back.
		l.begin(max(l.start, c.start))
		if l.call == nil && !l.queued { // else its next call comes soon
			l.next = l.start + l.Timing.RenewEvery
		}
	case current:
		l.noteFailure(err, now)
		failed = true
	}
	k.reorder(l)
	return nil, failed
}

// lose ends a lease; the result ends the hold's context and tells why.
func (k *Renewer) lose(l *Entry, cause error) func() {
	k.end(l, cause)
	return func() {
		l.Report(event.Lost, "", cause) // first: the end lets the next waiter in
		l.owner.Lost(cause)
	}
}

// finish stops renewing a lease whose work may still run.
func (k *Renewer) end(l *Entry, cause error) {
	l.phase = ended
	l.gone.Store(&cause)
	k.reorder(l)
}

func (k *Renewer) reorder(l *Entry) {
	if l.index >= 0 {
		k.entries.Fix(l.index)
	}
	k.wakeUp()
}

func (k *Renewer) unqueue(l *Entry) {
	if l.index >= 0 {
		k.entries.Remove(l.index)
	}
}

func (k *Renewer) wakeUp() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// begin counts a lease's time from a successful request sent at start.
func (l *Entry) begin(start time.Duration) {
	l.start, l.failures, l.lastErr = start, 0, nil
	l.Loss.Store(int64(l.Timing.LossAt(start)))
}

// failed plans the next try: later each time, and yet so that there is time for some
// more before the loss.
func (l *Entry) noteFailure(err error, now time.Duration) {
	l.call, l.lastErr = nil, err
	left := l.Timing.LossAt(l.start) - now
	l.next = now + min(l.Timing.Backoff(int(l.failures)), max(left/4, l.Timing.Share(300, time.Second)))
	l.failures++
}

// tryLimit is how long a try that begins now may take: at most half of what is left,
// so that a request which hangs does not take the last chance, unless that is too
// short for any answer. No try of one lease outlives its loss.
func (l *Entry) requestLimit(now time.Duration) time.Duration {
	left := l.Timing.LossAt(l.start) - now
	return min(max(left/2, l.Timing.RequestTimeout/4), l.Timing.RequestTimeout, left)
}

// due is when the lease needs something next.
func (l *Entry) due() time.Duration {
	switch loss := l.Timing.LossAt(l.start); {
	case l.phase == ended:
		return l.Timing.ExpiresAt(l.start)
	case l.queued:
		return loss
	default:
		return min(l.next, loss)
	}
}

// lateError says why a lease was lost by the clock. The failures before it are
// told as text: their own kind is not what happened to the lease.
func (l *Entry) lateError() error {
	if l.lastErr == nil {
		return fmt.Errorf("holdfast: %q: %w: not renewed in time", l.Lease.Name, driver.ErrLost)
	}
	return fmt.Errorf("holdfast: %q: %w: not renewed in time; %d tries failed, the last: %s", l.Lease.Name, driver.ErrLost, l.failures, l.lastErr.Error())
}

func (l *Entry) Report(t event.Type, op string, err error) { l.Emit(l.event(t, op, err)) }

func (l *Entry) event(t event.Type, op string, err error) event.Event {
	return event.Event{Type: t, Name: l.Lease.Name, Owner: l.Lease.Owner, Token: l.Lease.Token, Op: op, Err: err, Time: time.Now()}
}

func (k *Renewer) reportOverrun(l *Entry) {
	e := l.event(event.Overrun, "", nil)
	l.Emit(e)
	if l.Overrun != nil {
		k.calls.Go(func() { event.Call(k.logger, l.Overrun, e) })
	}
}
