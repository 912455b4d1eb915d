package election

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/event"
)

// A leader that is alive but does no work would keep its lease forever. Two mechanisms detect it: the
// user's health check, and heartbeats that the task no longer sends.

// taskState is the state of one running task, found through its context.
type taskState struct {
	runner   *Runner
	outer    *taskState   // of the task that this one runs in, or nil
	lastBeat atomic.Int64 // by the client's clock
	returned atomic.Bool  // the task has returned; its context may still be in use
}

type taskStateKey struct{}

func (r *Runner) newTaskState(ctx context.Context) *taskState {
	t := &taskState{runner: r, outer: taskStateFrom(ctx)}
	t.beat()
	return t
}

func taskStateFrom(ctx context.Context) *taskState {
	if ctx == nil {
		return nil
	}
	t, _ := ctx.Value(taskStateKey{}).(*taskState)
	return t
}

func (t *taskState) beat() { t.lastBeat.Store(int64(t.runner.client.Now())) }

// Heartbeat reports to the stall watchdog that the task whose context ctx descends from is alive.
// Outside of a task it does nothing.
func Heartbeat(ctx context.Context) {
	for t := taskStateFrom(ctx); t != nil; t = t.outer { // also for the tasks that it runs in
		t.beat()
	}
}

// inTask reports whether ctx descends from the context of a task of this runner that has not returned.
func (r *Runner) inTask(ctx context.Context) bool {
	for t := taskStateFrom(ctx); t != nil; t = t.outer {
		if t.runner == r && !t.returned.Load() {
			return true
		}
	}
	return false
}

// stallsIn returns how long the task may still send no heartbeat. It reports false if nothing is to
// be watched: no task runs, or the lease is lost already.
func (l *leadership) stallsIn(now time.Duration) (time.Duration, bool) {
	t, limit := l.task.Load(), l.runner.settings.stall
	if limit == 0 || t == nil || l.hold.LeaseErr() != nil {
		return 0, false
	}
	return time.Duration(t.lastBeat.Load()) + limit - now, true
}

// excuseSuspend counts the task as alive if the machine was suspended since the last check: the client's clock has moved on, and
// the timers of a task that sends heartbeats have stood still.
func (l *leadership) excuseSuspend() {
	timer, now := time.Now(), l.runner.client.Now()
	suspended := now-l.checked-timer.Sub(l.checkedTimer) > time.Second
	l.checked, l.checkedTimer = now, timer
	if t := l.task.Load(); suspended && t != nil {
		t.beat()
	}
}

// watchHealth runs the health check until the hold ends, and gives leadership up when it fails.
func (l *leadership) watchHealth() {
	r := l.runner
	ticker := time.NewTicker(r.settings.healthEvery)
	defer ticker.Stop()
	for {
		select {
		case <-l.hold.Context().Done():
			return
		case <-ticker.C:
		}
		if err := r.checkHealth(l.hold.Context()); err != nil && l.hold.Err() == nil {
			l.giveUp(driver.Errorf("%q: %w: %w", r.name, cause.ErrSteppedDown, err))
		}
	}
}

// checkHealth runs the user's check, if there is one, within its time limit, and reports a failure.
func (r *Runner) checkHealth(ctx context.Context) error {
	if r.settings.health == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, r.settings.healthEvery)
	defer cancel()
	err := r.startHealthCheck(limited)
	if err == nil {
		return nil
	}
	err = driver.Errorf("health check: %w", err)
	if ctx.Err() == nil { // a check that was cut short has not failed
		r.emit(event.Event{Type: event.Error, Name: r.name, Op: "health check", Err: err, Time: time.Now()})
	}
	return err
}

// startHealthCheck calls the user's check on another goroutine and waits for its result or the end of
// ctx. At most one check runs at a time, even if one ignores its context.
func (r *Runner) startHealthCheck(ctx context.Context) error {
	select {
	case r.checking <- struct{}{}:
	case <-ctx.Done():
		return driver.Errorf("the one before has not returned: %w", context.Cause(ctx))
	}
	result := make(chan error, 1)
	if !r.client.Checks().Go(func() { r.callHealthCheck(ctx, result) }) {
		<-r.checking
		return cause.ErrShutdown
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return driver.Errorf("not done in time: %w", context.Cause(ctx))
	}
}

// callHealthCheck calls the user's check. A panic is a failure whose error has the stack; it would
// otherwise end the process with the lock held.
func (r *Runner) callHealthCheck(ctx context.Context, result chan<- error) {
	event.CallUser(func() error { return r.settings.health(ctx) }, func(ended event.Result) {
		<-r.checking
		result <- ended.Err
	})
}
