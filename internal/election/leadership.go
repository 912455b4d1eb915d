package election

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/event"
)

// leadership is one hold of the lock, the task that runs under it, and the goroutine that watches
// both.
type leadership struct {
	runner   *Runner
	hold     *engine.Hold
	since    time.Duration
	task     atomic.Pointer[taskState] // of the task that runs, or nil
	changed  chan struct{}             // capacity 1: wakes watch
	released chan struct{}             // closed when the lock is released

	// When watch last checked, by the client's clock and by that of timers.
	checked      time.Duration
	checkedTimer time.Time

	// Guarded by runner.mu.
	busy        bool          // a call has it: its task runs, or is about to; the call ends it or keeps it idle
	idleUntil   time.Duration // when to end it if it is not busy
	steppedDown bool          // a cool-down follows
	ending      bool          // a goroutine is releasing the lock
}

// lead begins a leadership for a task that is about to run.
func (r *Runner) lead(h *engine.Hold) *leadership {
	l := &leadership{runner: r, hold: h, since: r.client.Now(), busy: true, changed: make(chan struct{}, 1), released: make(chan struct{})}
	r.leadership.Store(l)
	if err := r.closed(); err != nil {
		h.Cancel(err) // Close may have read r.leadership before
	}
	// Both goroutines end with the hold. They do not start after Shutdown; the caller then sees
	// that Shutdown has ended the hold.
	r.client.Runners().Go(l.watch)
	if r.settings.health != nil {
		r.client.Runners().Go(l.watchHealth)
	}
	return l
}

// resume returns the present leadership for another task, if its hold is live. If the hold has
// ended, resume waits until it is released, so that the next campaign begins after that.
func (r *Runner) resume(ctx context.Context) *leadership {
	r.mu.Lock()
	l := r.leadership.Load()
	live := l != nil && !l.ending && l.hold.Err() == nil
	if live {
		l.busy = true
	}
	r.mu.Unlock()
	if live || l == nil {
		return l
	}
	l.wakeWatch()
	select {
	case <-l.released:
	case <-ctx.Done():
	}
	return nil
}

// ended returns an error if a task must not begin, because its context would have ended already.
func (l *leadership) ended(ctx context.Context) error {
	if err := l.runner.ended(ctx, nil); err != nil {
		return err
	}
	if err := l.hold.Err(); err != nil {
		return driver.Errorf("lock %q: %w", l.hold.Name(), err)
	}
	return nil
}

// run runs a task on the caller's goroutine. The task's context descends from ctx and ends with the
// hold.
func (l *leadership) run(ctx context.Context, task func(context.Context) error) error {
	ctx, stop := cause.Join(ctx, l.hold.Context())
	defer stop()
	t := l.runner.newTaskState(ctx)
	l.task.Store(t)
	defer func() { l.task.Store(nil); t.returned.Store(true) }()
	l.wakeWatch()
	ctx = context.WithValue(engine.WithHold(ctx, l.hold), taskStateKey{}, t)
	return l.hold.Call(func() error { return task(ctx) })
}

// runToEnd runs Run's task and ends the leadership. done means that Run returns err. If it is not
// done and there is an error, Run restarts the task.
func (l *leadership) runToEnd(ctx context.Context, task func(context.Context) error) (done bool, err error) {
	defer l.end(ctx) // Promise 7: after the task has returned or panicked.
	if l.ended(ctx) != nil {
		return false, nil // the next campaign returns the error
	}
	err = l.run(ctx, task)
	switch {
	case ctx.Err() != nil:
		return true, l.hold.Verdict(err)
	case l.hold.Err() != nil: // lost, stepped down, or closed
		l.hold.ReportTask(err)
		return false, nil // Promise 9: back to campaigning.
	case err == nil:
		l.waitMinHold(ctx)
		return true, nil
	case l.runner.settings.restart == nil:
		return true, err
	default:
		l.hold.Report(event.Error, "task", err)
		return false, err
	}
}

// waitMinHold waits until the lock has been held for the time of WithMinHold.
func (l *leadership) waitMinHold(ctx context.Context) {
	left := l.since + l.runner.settings.minHold - l.runner.client.Now()
	if left <= 0 {
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-l.hold.Context().Done():
	}
}

// keepIdle keeps the leadership without a task until the next call or the idle limit. If the hold
// has ended, keepIdle ends the leadership.
func (l *leadership) keepIdle(ctx context.Context) {
	r := l.runner
	if l.hold.Err() != nil {
		l.end(ctx)
		return
	}
	r.mu.Lock()
	l.busy = false
	l.idleUntil = max(r.client.Now()+r.settings.idleLimit, l.since+r.settings.minHold)
	r.mu.Unlock()
	l.wakeWatch()
}

// end releases the lock, within a time limit. Only the call that has the leadership may call it;
// when no call has it, watch ends it.
func (l *leadership) end(ctx context.Context) {
	r := l.runner
	r.mu.Lock()
	l.ending = true
	r.mu.Unlock()
	l.release(ctx)
}

// release releases the lock of a leadership that is marked as ending. The cool-down begins only now,
// because no other instance could lead before the release.
func (l *leadership) release(ctx context.Context) {
	defer func() { // also if the driver has panicked: the caller may recover, and lead again
		r := l.runner
		r.mu.Lock()
		if l.steppedDown {
			r.coolUntil = r.client.Now() + r.settings.coolDown
		}
		r.mu.Unlock()
		r.leadership.CompareAndSwap(l, nil)
		close(l.released)
	}()
	l.hold.Finish(ctx)
}

// stepDown ends the hold's context for a cause. The lease is renewed until the task has returned; a
// cool-down follows.
func (l *leadership) stepDown(cause error) { l.endHold(cause, l.hold.Err, l.hold.Cancel) }

// giveUp steps down and stops the renewal of the lease, because the task may never return. Until now it was renewed, also after Close.
func (l *leadership) giveUp(cause error) { l.endHold(cause, l.hold.LeaseErr, l.hold.GiveUp) }

// endHold ends the hold by end. That is a step-down only if the hold was live, as over says, and its release has not begun. The
// step-down is reported first and with mu held, so that the release, which needs mu to begin, is reported after it. Reporting calls
// no function of a user, so no observer can delay the end.
func (l *leadership) endHold(cause error, over func() error, end func(error)) {
	r := l.runner
	r.mu.Lock()
	if !l.steppedDown && !l.ending && over() == nil {
		l.steppedDown = true
		l.hold.Report(event.SteppedDown, "", cause)
	}
	r.mu.Unlock()
	end(cause)
}

// wakeWatch makes watch check the leadership again.
func (l *leadership) wakeWatch() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// watch runs until the lock is released. It steps down when the task stalls. It ends the leadership
// when that is idle for too long, or when the hold ends while no call has it.
func (l *leadership) watch() {
	timer := time.NewTimer(l.check())
	defer timer.Stop()
	ended := l.hold.Context().Done()
	for {
		select {
		case <-l.released:
			return
		case <-ended:
			ended = nil // once; a task that has not returned is watched further
		case <-l.changed:
		case <-timer.C:
		}
		timer.Reset(l.check())
	}
}

// check acts on a stall or on idleness, and returns when to check again.
func (l *leadership) check() time.Duration {
	const nothingToWatch = time.Hour // wakeWatch is called when that changes
	r := l.runner
	now, ended := r.client.Now(), l.hold.Err() != nil
	l.excuseSuspend()
	r.mu.Lock()
	busy, idleFor := l.busy, l.idleUntil-now
	expired := !busy && !l.ending && (ended || idleFor <= 0)
	if expired {
		l.ending = true // together with the check, so that no call resumes it
	}
	r.mu.Unlock()
	switch {
	case expired:
		l.release(l.hold.Context())
		return nothingToWatch
	case !busy:
		return max(idleFor, time.Millisecond)
	}
	in, watched := l.stallsIn(now)
	switch {
	case !watched:
		return nothingToWatch
	case in <= 0:
		l.giveUp(driver.Errorf("%q: %w: %w for %s", l.hold.Name(), cause.ErrSteppedDown, ErrStalled,
			driver.FormatDuration(r.settings.stall)))
		return nothingToWatch
	}
	return in
}
