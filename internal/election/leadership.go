package election

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver/text"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/event"
)

// term is one spell of leadership: a hold, the task that runs in it, and a steward
// goroutine that watches over both.
type term struct {
	runner *Runner
	hold   *engine.Hold
	since  time.Duration
	task   atomic.Pointer[pulse] // of the task that runs right now, or nil
	nudge  chan struct{}         // capacity 1: the steward looks again
	over   chan struct{}         // closed when the lock is released

	// Guarded by runner.mu.
	busy        bool          // a task runs, or is about to: its caller will retire or rest
	idleAt      time.Duration // when to give up if no task runs
	steppedDown bool          // a cool-down follows
	retired     bool          // somebody releases the lock
}

// begin starts a term, for a task that is about to run.
func (r *Runner) begin(h *engine.Hold) *term {
	t := &term{runner: r, hold: h, since: r.client.Now(), busy: true, nudge: make(chan struct{}, 1), over: make(chan struct{})}
	r.term.Store(t)
	if err := r.closed(); err != nil {
		h.Cancel(err) // Close may have looked before
	}
	// Both end with the hold. They are refused only after Shutdown, whose end of the
	// hold this very caller will see.
	r.client.Background().Go(t.steward)
	if r.settings.health != nil {
		r.client.Background().Go(t.watchHealth)
	}
	return t
}

// resume takes up the present term for another task, if it is still live. One that
// is dead is waited for, so that it is released before the next campaign.
func (r *Runner) resume(ctx context.Context) *term {
	r.mu.Lock()
	t := r.term.Load()
	live := t != nil && !t.retired && t.hold.Err() == nil
	if live {
		t.busy = true
	}
	r.mu.Unlock()
	if live || t == nil {
		return t
	}
	t.look()
	select {
	case <-t.over:
	case <-ctx.Done():
	}
	return nil
}

// unfit says why a task is not to be begun: its context would be dead already.
func (t *term) unfit(ctx context.Context) error {
	if err := t.runner.ended(ctx, nil); err != nil {
		return err
	}
	if err := t.hold.Err(); err != nil {
		return fmt.Errorf("holdfast: lock %q: %w", t.hold.Name(), err)
	}
	return nil
}

// run runs a task on the caller's goroutine. Its context descends from ctx and ends
// with the hold.
func (t *term) run(ctx context.Context, task func(context.Context) error) error {
	ctx, stop := cause.Join(ctx, t.hold.Context())
	defer stop()
	p := t.runner.newPulse(ctx)
	t.task.Store(p)
	defer func() { t.task.Store(nil); p.over.Store(true) }()
	t.look()
	return task(context.WithValue(engine.WithHold(ctx, t.hold), pulseKey{}, p))
}

// lead runs Run's task to the end of the term. done says that Run is over; not
// done with an error, that the task is to be restarted.
func (t *term) lead(ctx context.Context, task func(context.Context) error) (done bool, err error) {
	defer t.retire(ctx) // also if task panics
	if t.unfit(ctx) != nil {
		return false, nil // the campaign finds out why
	}
	err = t.run(ctx, task)
	ended := t.hold.Err()
	switch {
	case ctx.Err() != nil:
		return true, t.hold.Verdict(err)
	case ended != nil: // lost, stepped down, or closed: back to campaigning
		if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, ended) {
			t.hold.Report(event.Error, "task", err)
		}
		return false, nil
	case err == nil:
		t.waitMinHold(ctx)
		return true, nil
	case t.runner.settings.restart == nil:
		return true, err
	default:
		t.hold.Report(event.Error, "task", err)
		return false, err
	}
}

// waitMinHold keeps leading until the least time is over.
func (t *term) waitMinHold(ctx context.Context) {
	left := t.since + t.runner.settings.minHold - t.runner.client.Now()
	if left <= 0 {
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-t.hold.Context().Done():
	}
}

// rest keeps the term without a task until the next one, or the idle limit. A hold
// that has ended is released before it returns.
func (t *term) rest(ctx context.Context) {
	r := t.runner
	if t.hold.Err() != nil {
		t.retire(ctx)
		return
	}
	r.mu.Lock()
	t.busy = false
	t.idleAt = max(r.client.Now()+r.settings.idleLimit, t.since+r.settings.minHold)
	r.mu.Unlock()
	t.look()
}

// retire ends the term and releases the lock, which is bounded. It is for the call that has
// the term busy: the steward retires only terms that no call has.
func (t *term) retire(ctx context.Context) {
	r := t.runner
	r.mu.Lock()
	t.retired = true
	r.mu.Unlock()
	t.giveBack(ctx)
}

// giveBack releases the lock of a term that was marked as retired. The cool-down
// begins only now: until the release nobody else could lead.
func (t *term) giveBack(ctx context.Context) {
	t.hold.Finish(ctx)
	r := t.runner
	r.mu.Lock()
	if t.steppedDown {
		r.cool = r.client.Now() + r.settings.coolDown
	}
	r.mu.Unlock()
	r.term.CompareAndSwap(t, nil)
	close(t.over)
}

// stepDown ends the hold's context for a cause. The lease is kept until the task has
// returned; a cool-down follows.
func (t *term) stepDown(cause error) { t.end(cause, t.hold.Cancel) }

// giveUp steps down and has the lease renewed no more either, since the task may
// never return.
func (t *term) giveUp(cause error) {
	t.end(cause, func(cause error) { t.hold.GiveUp(cause) })
}

func (t *term) end(cause error, end func(error)) {
	leading := t.hold.Err() == nil
	r := t.runner
	r.mu.Lock()
	first := !t.steppedDown && !t.retired
	t.steppedDown = true
	r.mu.Unlock()
	end(cause)
	if leading && first {
		t.hold.Report(event.SteppedDown, "", cause)
	}
}

// look has the steward look again.
func (t *term) look() {
	select {
	case t.nudge <- struct{}{}:
	default:
	}
}

// steward watches a term until it is over: it steps down when the task stalls, and
// retires the term when it is idle for too long, or ends while no task runs that
// would retire it.
func (t *term) steward() {
	timer := time.NewTimer(t.inspect())
	defer timer.Stop()
	ended := t.hold.Context().Done()
	for {
		select {
		case <-t.over:
			return
		case <-ended:
			ended = nil // once; a task that goes on is watched further
		case <-t.nudge:
		case <-timer.C:
		}
		timer.Reset(t.inspect())
	}
}

// inspect acts on a stall or on idleness, and returns when to look again.
func (t *term) inspect() time.Duration {
	const unwatched = time.Hour // any time: a nudge comes when something changes
	r := t.runner
	now, ended := r.client.Now(), t.hold.Err() != nil
	r.mu.Lock()
	busy, idleFor := t.busy, t.idleAt-now
	expired := !busy && !t.retired && (ended || idleFor <= 0)
	if expired {
		t.retired = true // in one step with the check, so that no call takes it up
	}
	r.mu.Unlock()
	switch {
	case expired:
		t.giveBack(t.hold.Context())
		return unwatched
	case !busy:
		return max(idleFor, time.Millisecond)
	}
	in, watched := t.stalledIn(now)
	switch {
	case !watched:
		return unwatched
	case in <= 0:
		t.giveUp(fmt.Errorf("holdfast: %q: %w: %w for %s", t.hold.Name(), cause.ErrSteppedDown, ErrStalled, text.Duration(r.settings.stall)))
		return unwatched
	}
	return in
}
