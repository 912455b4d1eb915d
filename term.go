package holdfast

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// term is one spell of leadership: a hold, the task that runs in it, and a steward
// goroutine that watches over both.
type term struct {
	runner *LeaderAwareRunner
	hold   *Hold
	since  time.Duration
	beat   atomic.Int64  // last heartbeat of the running task
	tasked atomic.Bool   // a task runs right now
	nudge  chan struct{} // capacity 1: the steward looks again
	over   chan struct{} // closed when the lock is released

	// Guarded by runner.mu.
	busy    bool          // a task runs, or is about to: its caller will retire or rest
	idleAt  time.Duration // when to give up if no task runs
	retired bool
}

type termKey struct{}

// Heartbeat tells the stall watchdog that the task whose context ctx descends from
// is alive (see WithStallTimeout). It is cheap, and does nothing elsewhere.
func Heartbeat(ctx context.Context) {
	if t, ok := ctx.Value(termKey{}).(*term); ok {
		t.beat.Store(int64(t.runner.client.now()))
	}
}

// begin starts a term, for a task that is about to run.
func (r *LeaderAwareRunner) begin(h *Hold) *term {
	t := &term{runner: r, hold: h, since: r.client.now(), busy: true, nudge: make(chan struct{}, 1), over: make(chan struct{})}
	r.mu.Lock()
	r.term.Store(t)
	r.mu.Unlock()
	if r.closing.Err() != nil {
		h.cancel(context.Cause(r.closing)) // Close may have looked before
	}
	r.client.background.run(t.steward)
	return t
}

// resume takes up the present term for another task, if it is still live. One that
// is dead is waited for, so that it is released before the next campaign.
func (r *LeaderAwareRunner) resume(ctx context.Context) *term {
	r.mu.Lock()
	t := r.term.Load()
	live := t != nil && !t.retired && t.hold.Err() == nil
	if live {
		t.busy = true
	}
	r.mu.Unlock()
	switch {
	case live:
		return t
	case t != nil:
		t.retire()
		select {
		case <-t.over:
		case <-ctx.Done():
		}
	}
	return nil
}

// run runs a task on the caller's goroutine. Its context descends from ctx and ends
// with the hold.
func (t *term) run(ctx context.Context, task func(context.Context) error) error {
	ctx, stop := until(ctx, t.hold.Context())
	defer stop()
	ctx = context.WithValue(context.WithValue(ctx, holdKey{}, t.hold), termKey{}, t)
	t.beat.Store(int64(t.runner.client.now()))
	t.tasked.Store(true)
	defer t.tasked.Store(false)
	t.look()
	return task(ctx)
}

// lead runs Run's task to the end of the term. done says that Run is over; not
// done with an error, that the task is to be restarted.
func (t *term) lead(ctx context.Context, task func(context.Context) error) (done bool, err error) {
	defer t.retire() // also if task panics
	r := t.runner
	if t.hold.Err() != nil { // over before it began
		return false, nil
	}
	err = t.run(ctx, task)
	switch {
	case ctx.Err() != nil:
		return true, t.hold.verdict(err)
	case t.hold.Err() != nil: // lost, stepped down, or closed: back to campaigning
		if err != nil && !errors.Is(err, context.Canceled) {
			t.hold.kept.tell(EventError, "task", err)
		}
		return false, nil
	case err == nil:
		t.waitMinHold(ctx)
		return true, nil
	case r.settings.restart == nil:
		return true, err
	default:
		t.hold.kept.tell(EventError, "task", err)
		return false, err
	}
}

// waitMinHold keeps leading until the least time is over.
func (t *term) waitMinHold(ctx context.Context) {
	timer := time.NewTimer(t.since + t.runner.settings.minHold - t.runner.client.now())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-t.hold.Context().Done():
	}
}

// rest keeps the term without a task until the next one, or the idle limit.
func (t *term) rest() {
	r := t.runner
	r.mu.Lock()
	t.busy = false
	t.idleAt = max(r.client.now()+r.settings.idleLimit, t.since+r.settings.minHold)
	r.mu.Unlock()
	t.look()
	if t.hold.Err() != nil {
		t.retire()
	}
}

// retire ends the term and releases the lock. It waits for the release, which
// is bounded, also if another goroutine retires the term.
func (t *term) retire() {
	r := t.runner
	r.mu.Lock()
	first := !t.retired
	t.retired = true
	r.mu.Unlock()
	if !first {
		<-t.over
		return
	}
	t.giveBack()
}

// giveBack releases the lock of a term that was marked as retired.
func (t *term) giveBack() {
	t.hold.finish(context.Background())
	t.runner.term.CompareAndSwap(t, nil)
	close(t.over)
}

// stepDown ends the hold's context for a cause and starts the cool-down. With
// giveUp the lease is renewed no more either, since the task may never return.
func (t *term) stepDown(cause error, giveUp bool) {
	r := t.runner
	r.mu.Lock()
	r.cool = r.client.now() + r.settings.coolDown
	r.mu.Unlock()
	t.hold.kept.tell(EventSteppedDown, "", cause)
	if giveUp {
		r.client.keeper.giveUp(t.hold.kept, cause)
	} else {
		t.hold.cancel(cause)
	}
}

// look has the steward look again.
func (t *term) look() {
	select {
	case t.nudge <- struct{}{}:
	default:
	}
}

// steward watches a term until it is over: it steps down when the task stalls or the
// health check fails, and retires the term when it is idle for too long, or
// ends while no task runs that would retire it.
func (t *term) steward() {
	health, stop := t.healthTicks()
	defer stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-t.over:
			return
		case <-t.hold.Context().Done():
			if t.idle() {
				t.retire()
			}
			<-t.over
			return
		case <-health:
			if err := t.runner.checkHealth(t.hold.Context()); err != nil && t.hold.Err() == nil {
				t.stepDown(fmt.Errorf("holdfast: %q: %w: health check: %w", t.hold.Name(), ErrSteppedDown, err), true)
			}
		case <-t.nudge:
		case <-timer.C:
		}
		timer.Reset(t.inspect())
	}
}

func (t *term) healthTicks() (<-chan time.Time, func()) {
	if t.runner.settings.health == nil {
		return nil, func() {}
	}
	ticker := time.NewTicker(t.runner.settings.healthEvery)
	return ticker.C, ticker.Stop
}

// idle reports whether no task runs.
func (t *term) idle() bool {
	t.runner.mu.Lock()
	defer t.runner.mu.Unlock()
	return !t.busy
}

// inspect acts on a stall or on idleness, and returns when to look again.
func (t *term) inspect() time.Duration {
	const unwatched = time.Hour // any time: a nudge comes when something changes
	r := t.runner
	now := r.client.now()
	r.mu.Lock()
	busy, idleFor := t.busy, t.idleAt-now
	expired := !busy && idleFor <= 0 && !t.retired
	if expired {
		t.retired = true // in one step with the check, so that no call takes it up
	}
	r.mu.Unlock()
	switch {
	case expired:
		t.giveBack()
		return unwatched
	case !busy:
		return max(idleFor, time.Millisecond)
	case r.settings.stall == 0 || !t.tasked.Load() || t.hold.Err() != nil:
		return unwatched
	}
	stalledIn := time.Duration(t.beat.Load()) + r.settings.stall - now
	if stalledIn <= 0 {
		t.stepDown(fmt.Errorf("holdfast: %q: %w: %w for %v", t.hold.Name(), ErrSteppedDown, ErrStalled, r.settings.stall), true)
		return unwatched
	}
	return stalledIn
}
