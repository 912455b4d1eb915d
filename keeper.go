package holdfast

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
	"github.com/holdfast-go/holdfast/internal/priority"
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
type keeper struct {
	locker Locker
	batch  driver.BatchRenewer // or nil
	now    func() time.Duration
	logger *slog.Logger
	calls  worker.Group    // renewals and hooks under way
	ctx    context.Context // ends with close; every renewal descends from it
	cancel context.CancelFunc
	wake   chan struct{} // capacity 1: the heap changed
	done   chan struct{} // closed when run has returned

	mu      sync.Mutex             // never held across I/O or a caller's function, the clock apart
	queue   *priority.Queue[*kept] // by when each is due
	lines   [64]*lines             // by class
	running bool
	closed  bool
}

// phase is where a kept lease is in its life.
type phase uint8

const (
	keeping phase = iota // renewed in time so far
	ended                // lost or given up; its work may still run
	dropped              // released, or its overrun was told: not in the heap
)

// policy is what the leases of one caller, or of many, have in common.
type policy struct {
	timing  timing
	emit    func(Event)
	overrun func(Event) // the user's hook, or nil
}

// kept is one lease under the keeper's care.
type kept struct {
	*policy
	lease Lease
	owner interface{ lost(cause error) } // is called when the lease is lost

	// loss mirrors timing.lossAt(start), for Hold.Err to read without the lock.
	loss atomic.Int64
	// gone is why the lease was lost or given up, or nil.
	gone atomic.Pointer[error]

	// The rest is guarded by keeper.mu.
	start    time.Duration // just before the last successful request was sent
	next     time.Duration // when to renew; during a call, when to give up on it
	phase    phase
	lined    bool     // up for a call
	failures int32    // tries since the last success
	call     *renewal // under way, or nil
	lastErr  error    // of the latest failed try
	index    int      // in the heap; -1 outside
}

func newKeeper(locker Locker, now func() time.Duration, logger *slog.Logger) *keeper {
	k := &keeper{
		locker: locker, batch: locker.Capabilities().BatchRenewer, now: now, logger: logger,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		queue: priority.New(func(x, y *kept) bool { return x.due() < y.due() }, func(l *kept, index int) { l.index = index }),
	}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k
}

// add begins to keep a lease whose acquiring request was sent at start.
func (k *keeper) add(l *kept, start time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.phase != keeping { // dropped already, by a Shutdown
		return
	}
	l.begin(start)
	l.next = start + l.timing.renewEvery
	k.queue.Push(l)
	if !k.running && !k.closed {
		k.running = true
		go k.run()
	}
	k.rouse()
}

// drop stops keeping a lease: its owner releases it. It reports whether the lease
// was still kept until now. If its time ran out unnoticed, the loss is told.
func (k *keeper) drop(l *kept) bool {
	k.mu.Lock()
	was := l.phase
	l.phase = dropped
	late := was == keeping && l.index >= 0 && k.now() >= l.timing.lossAt(l.start)
	cause := l.lateError()
	k.remove(l)
	k.mu.Unlock()
	if late {
		l.tell(EventLost, "", cause)
	}
	return was == keeping && !late
}

// giveUp ends a hold and renews its lease no more, so that it expires even if its
// work never ends.
func (k *keeper) giveUp(l *kept, cause error) {
	k.mu.Lock()
	gave := l.phase == keeping
	if gave {
		k.finish(l, cause)
	}
	k.mu.Unlock()
	if gave {
		l.owner.lost(cause)
	}
}

// close ends all keeping. Leases still kept are renewed no more; until they have
// expired run goes on, to tell of work that overruns.
func (k *keeper) close(ctx context.Context) error {
	k.mu.Lock()
	k.closed = true
	left := slices.Clone(k.queue.All())
	for _, l := range left {
		if l.phase == keeping {
			k.finish(l, fmt.Errorf("holdfast: %q: %w: Shutdown gave up on it", l.lease.Name, ErrLost))
		}
	}
	running := k.running
	k.mu.Unlock()
	k.cancel()
	k.rouse()
	if running && len(left) == 0 {
		<-k.done // never waits for I/O
	}
	if !k.calls.Wait(ctx) {
		return fmt.Errorf("holdfast: shutdown: a renewal or an overrun hook has not returned: %w", endOf(ctx))
	}
	return nil
}

// suspendCheck bounds the sleep between looks at the clock. Timers stand still
// while the system is suspended, the elapsed-time clock does not: after a resume
// a deadline is noticed within this time.
const suspendCheck = time.Second

func (k *keeper) run() {
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
func (k *keeper) step() (wait time.Duration, some bool) {
	var acts []func()
	k.mu.Lock()
	now := k.now()
	for k.queue.Len() > 0 && k.queue.First().due() <= now {
		if act := k.advance(k.queue.First(), now); act != nil {
			acts = append(acts, act)
		}
	}
	acts = append(acts, k.dispatch(now)...)
	if some = k.queue.Len() > 0; some {
		wait = k.queue.First().due() - now
	}
	k.mu.Unlock()
	for _, act := range acts {
		act()
	}
	return wait, some
}

// advance moves a due lease one step on and returns what to do without the lock.
func (k *keeper) advance(l *kept, now time.Duration) func() {
	switch {
	case l.phase == ended:
		l.phase = dropped
		k.remove(l)
		return func() { k.tellOverrun(l) }
	case now >= l.timing.lossAt(l.start):
		return k.lose(l, l.lateError())
	case l.call != nil: // its time limit is over, and the driver has not returned
		l.failed(errHung, now)
		k.reorder(l)
		return func() { l.tell(EventError, "renew", errHung) }
	default:
		k.lineUp(l)
		return nil
	}
}

// renewed takes in the result that a call, also one given up before, had for one of
// its leases. It returns what to do without the lock, and whether a failure is to be
// told.
func (k *keeper) renewed(l *kept, c *renewal, now time.Duration, err error) (act func(), failed bool) {
	current := l.call == c
	if current {
		l.call = nil
	}
	switch {
	case l.phase != keeping:
		return nil, false
	case now >= l.timing.lossAt(l.start):
		// Too late, whatever the reply says: the hold may already have told so.
		return k.lose(l, l.lateError()), false
	case errors.Is(err, ErrLost):
		return k.lose(l, fmt.Errorf("holdfast: %q: %w", l.lease.Name, err)), false
	case err == nil:
		// A reply that was overtaken by a later call's must not set the clock back.
		l.begin(max(l.start, c.start))
		if l.call == nil && !l.lined { // else its next call comes soon
			l.next = l.start + l.timing.renewEvery
		}
	case current:
		l.failed(err, now)
		failed = true
	}
	k.reorder(l)
	return nil, failed
}

// lose ends a lease; the result ends the hold's context and tells why.
func (k *keeper) lose(l *kept, cause error) func() {
	k.finish(l, cause)
	return func() {
		l.tell(EventLost, "", cause) // first: the end lets the next waiter in
		l.owner.lost(cause)
	}
}

// finish stops renewing a lease whose work may still run.
func (k *keeper) finish(l *kept, cause error) {
	l.phase = ended
	l.gone.Store(&cause)
	k.reorder(l)
}

func (k *keeper) reorder(l *kept) {
	if l.index >= 0 {
		k.queue.Fix(l.index)
	}
	k.rouse()
}

func (k *keeper) remove(l *kept) {
	if l.index >= 0 {
		k.queue.Remove(l.index)
	}
}

func (k *keeper) rouse() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// begin counts a lease's time from a successful request sent at start.
func (l *kept) begin(start time.Duration) {
	l.start, l.failures, l.lastErr = start, 0, nil
	l.loss.Store(int64(l.timing.lossAt(start)))
}

// failed plans the next try: later each time, and yet so that there is time for some
// more before the loss.
func (l *kept) failed(err error, now time.Duration) {
	l.call, l.lastErr = nil, err
	left := l.timing.lossAt(l.start) - now
	l.next = now + min(l.timing.retry(int(l.failures)), max(left/4, l.timing.share(300, time.Second)))
	l.failures++
}

// tryLimit is how long a try that begins now may take: at most half of what is left,
// so that a request which hangs does not take the last chance, unless that is too
// short for any answer. No try of one lease outlives its loss.
func (l *kept) tryLimit(now time.Duration) time.Duration {
	left := l.timing.lossAt(l.start) - now
	return min(max(left/2, l.timing.tryTimeout/4), l.timing.tryTimeout, left)
}

// due is when the lease needs something next.
func (l *kept) due() time.Duration {
	switch loss := l.timing.lossAt(l.start); {
	case l.phase == ended:
		return l.timing.expiresAt(l.start)
	case l.lined:
		return loss
	default:
		return min(l.next, loss)
	}
}

// lateError says why a lease was lost by the clock. The failures before it are
// told as text: their own kind is not what happened to the lease.
func (l *kept) lateError() error {
	if l.lastErr == nil {
		return fmt.Errorf("holdfast: %q: %w: not renewed in time", l.lease.Name, ErrLost)
	}
	return fmt.Errorf("holdfast: %q: %w: not renewed in time; %d tries failed, the last: %s", l.lease.Name, ErrLost, l.failures, l.lastErr.Error())
}

func (l *kept) tell(t EventType, op string, err error) { l.emit(l.event(t, op, err)) }

func (l *kept) event(t EventType, op string, err error) Event {
	return Event{Type: t, Name: l.lease.Name, Owner: l.lease.Owner, Token: l.lease.Token, Op: op, Err: err, Time: time.Now()}
}

func (k *keeper) tellOverrun(l *kept) {
	e := l.event(EventOverrun, "", nil)
	l.emit(e)
	if l.overrun != nil {
		k.calls.Go(func() { guarded(k.logger, l.overrun, e) })
	}
}
