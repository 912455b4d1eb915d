package election

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/event"
)

// A leader that is alive but of no use would keep its lease for ever. Two things find
// it: the user's health check, and the heartbeats that the task no longer sends.

// pulse is one running task, as its context knows it.
type pulse struct {
	runner *Runner
	outer  *pulse       // of the task that this one runs in, or nil
	last   atomic.Int64 // when it was alive, by the client's clock
	over   atomic.Bool  // it has returned; its context may live on
}

type pulseKey struct{}

func (r *Runner) newPulse(ctx context.Context) *pulse {
	p := &pulse{runner: r, outer: pulseFrom(ctx)}
	p.beat()
	return p
}

func pulseFrom(ctx context.Context) *pulse {
	p, _ := ctx.Value(pulseKey{}).(*pulse)
	return p
}

func (p *pulse) beat() { p.last.Store(int64(p.runner.client.Now())) }

// Heartbeat tells the stall watchdog that the task whose context ctx descends from
// is alive (see WithStallTimeout). It is cheap, safe for concurrent use, and does
// nothing elsewhere.
func Heartbeat(ctx context.Context) {
	for p := pulseFrom(ctx); p != nil; p = p.outer { // a task in a task is alive in both
		p.beat()
	}
}

// within reports whether ctx is of a task of this runner that has not returned.
func (r *Runner) within(ctx context.Context) bool {
	for p := pulseFrom(ctx); p != nil; p = p.outer {
		if p.runner == r && !p.over.Load() {
			return true
		}
	}
	return false
}

// stalledIn is how long the term's task may still send no heartbeat. It reports false
// when nobody is to be watched: no task runs, or there is nothing left to give up.
func (t *term) stalledIn(now time.Duration) (time.Duration, bool) {
	p, limit := t.task.Load(), t.runner.settings.stall
	if limit == 0 || p == nil || t.hold.LeaseErr() != nil {
		return 0, false
	}
	return time.Duration(p.last.Load()) + limit - now, true
}

// watchHealth gives a term up when the health check fails, until the hold ends.
func (t *term) watchHealth() {
	r := t.runner
	ticker := time.NewTicker(r.settings.healthEvery)
	defer ticker.Stop()
	for {
		select {
		case <-t.hold.Context().Done():
			return
		case <-ticker.C:
		}
		if err := r.checkHealth(t.hold.Context()); err != nil && t.hold.Err() == nil {
			t.giveUp(fmt.Errorf("holdfast: %q: %w: %w", r.name, cause.ErrSteppedDown, err))
		}
	}
}

// checkHealth runs the user's check, if there is one, within its time, and tells the
// observers if it fails. At most one runs at a time, also if it ignores its context.
func (r *Runner) checkHealth(ctx context.Context) error {
	if r.settings.health == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, r.settings.healthEvery)
	defer cancel()
	err := r.examine(limited)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("health check: %w", err)
	if ctx.Err() == nil { // cut short is not failed
		r.emit(event.Event{Type: event.Error, Name: r.name, Op: "health check", Err: err, Time: time.Now()})
	}
	return err
}

func (r *Runner) examine(ctx context.Context) error {
	select {
	case r.checking <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("the one before has not returned: %w", context.Cause(ctx))
	}
	result := make(chan error, 1)
	if !r.client.Background().Go(func() { r.shielded(ctx, result) }) {
		<-r.checking
		return cause.ErrShutdown
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("not done in time: %w", context.Cause(ctx))
	}
}

// shielded calls the user's check. A panic counts as a failure, whose error carries
// the stack: on this goroutine it would else end the process with the lock held.
func (r *Runner) shielded(ctx context.Context, result chan<- error) {
	err := errors.New("the function ended its goroutine") // runtime.Goexit
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
		<-r.checking
		result <- err
	}()
	err = r.settings.health(ctx)
}
