package holdfast

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// LeaderAwareRunner has one of many instances of a service run a task: each
// instance makes a runner for the same name, and the one that holds the lock leads.
// All methods are safe for concurrent use; tasks of one runner never overlap.
type LeaderAwareRunner struct {
	client   *Client
	name     string
	settings runnerSettings
	emit     func(Event)

	closing context.Context // ends, with its cause, by Close or the client's Shutdown
	close   context.CancelCauseFunc

	slot    chan struct{} // capacity 1: taken by the call that campaigns or runs a task
	running atomic.Bool   // that call is Run
	asker   *asker        // of RunTaskOnLeader, across calls; guarded by slot

	term atomic.Pointer[term] // present leadership, or nil; changed under mu
	mu   sync.Mutex           // never held across I/O or a caller's function
	cool time.Duration        // until when not to campaign; guarded by mu
}

// Errors of a runner.
var (
	// ErrBusy: Run is called while Run is running, or RunTaskOnLeader is.
	ErrBusy = errors.New("the runner is busy")
	// ErrSteppedDown is the cause of a task's context when leadership was given up:
	// by StepDown, after a failed health check, or after a stall.
	ErrSteppedDown = errors.New("stepped down")
	// ErrStalled comes with ErrSteppedDown when the task sent no heartbeat in time.
	ErrStalled = errors.New("no heartbeat in time")

	errRunnerClosed = fmt.Errorf("holdfast: the runner is %w", ErrClosed)
)

// NewLeaderAwareRunner makes a runner for the lock of this name. It does nothing
// until Run or RunTaskOnLeader is called. Options are checked here, against the
// backend's limits; the error is an *[InvalidError].
func NewLeaderAwareRunner(client *Client, name string, opts ...RunnerOption) (*LeaderAwareRunner, error) {
	if client == nil {
		return nil, &InvalidError{"client", "nil", "a Client"}
	}
	if err := ValidateName(name, client.limits); err != nil {
		return nil, err
	}
	cfg := runnerConfig{lock: client.defaults}
	for _, o := range opts {
		o.applyRunner(&cfg)
	}
	s, err := cfg.settle(client.limits)
	if err != nil {
		return nil, err
	}
	var sinks []*sink
	for _, observe := range cfg.observers {
		sinks = append(sinks, client.newSink(observe))
	}
	r := &LeaderAwareRunner{client: client, name: name, settings: s, emit: client.emit(sinks), slot: make(chan struct{}, 1)}
	r.closing, r.close = context.WithCancelCause(client.closing)
	return r, nil
}

// Run campaigns for leadership, runs task while leading, and campaigns again after
// every loss, until the task is done or ctx ends. task runs on the caller's
// goroutine; its context descends from ctx and ends on a loss, a step-down,
// Close or Shutdown. A new campaign never begins before task has returned, and the
// lock is released only then, also when task panics.
//
// task returns nil while still leading: Run returns nil (after WithMinHold's time).
// It returns an error while leading: Run releases the lock and returns the
// error, or with WithRestart carries on. It returns after a loss or a step-down:
// Run campaigns again. When ctx ends while campaigning, the error matches ctx's
// error and what kept the lock; when it ends while leading, task's result is
// returned, joined with ErrLost if the lock was lost too. After Close or Shutdown
// the error matches ErrClosed.
//
// A backend that fails ends nothing: each failure is told to the observers and
// retried.
func (r *LeaderAwareRunner) Run(ctx context.Context, task func(ctx context.Context) error) error {
	select {
	case r.slot <- struct{}{}:
	default:
		return fmt.Errorf("holdfast: run %q: %w", r.name, ErrBusy)
	}
	r.running.Store(true)
	defer func() { r.running.Store(false); <-r.slot }()
	for failures := 0; ; {
		t, err := r.campaign(ctx)
		if err != nil {
			return err
		}
		since := r.client.now()
		done, err := t.lead(ctx, task)
		if done {
			return err
		}
		if err != nil { // to be restarted
			if r.client.now()-since > r.settings.restart.Max {
				failures = 0
			}
			pause := exponential(failures, r.settings.restart.Initial, r.settings.restart.Max)
			failures++
			if err := r.sleep(ctx, pause); err != nil {
				return err
			}
		}
	}
}

// campaign waits until this instance leads.
func (r *LeaderAwareRunner) campaign(ctx context.Context) (*term, error) {
	ctx, stop := until(ctx, r.closing)
	defer stop()
	for {
		if err := r.sleep(ctx, 0); err != nil { // ended already
			return nil, err
		}
		if t := r.resume(ctx); t != nil {
			return t, nil
		}
		if err := r.sleep(ctx, r.cooling()); err != nil {
			return nil, err
		}
		if err := r.checkHealth(ctx); err != nil {
			r.emit(Event{Type: EventError, Name: r.name, Op: "health check", Err: err, Time: time.Now()})
			if err := r.sleep(ctx, r.settings.healthEvery); err != nil {
				return nil, err
			}
			continue
		}
		h, err := r.client.waitAcquire(ctx, context.WithoutCancel(ctx), r.name, r.settings.settings, r.emit, true)
		if err != nil {
			return nil, err
		}
		return r.begin(h), nil
	}
}

// RunTaskOnLeader is for the periodic job: it runs task if this instance leads, or
// can become leader at once, and reports whether it ran. Leadership is kept in
// the background between calls, so that of many instances calling every few
// seconds one stays leader; an instance that stops calling gives it up
// (WithIdleLimit). If another leads, or this runner is cooling down, the result
// is false and nil; false and an error mean that the backend did not say.
//
// task runs as with Run. Its error is returned and leadership kept; if the
// lock was lost before task returned, the error matches ErrLost too. If task
// panics, the lock is released first. Calls of one runner take turns.
func (r *LeaderAwareRunner) RunTaskOnLeader(ctx context.Context, task func(ctx context.Context) error) (ran bool, err error) {
	if r.running.Load() {
		return false, fmt.Errorf("holdfast: run task %q: %w", r.name, ErrBusy)
	}
	ctx, stop := until(ctx, r.closing)
	defer stop()
	select {
	case r.slot <- struct{}{}:
		defer func() { <-r.slot }()
	case <-ctx.Done():
		return false, waitEnded(ctx, r.name, nil)
	}
	if err := r.sleep(ctx, 0); err != nil {
		return false, err
	}
	t := r.resume(ctx)
	if t == nil {
		if t, err = r.leadNow(ctx); t == nil {
			return false, err
		}
	}
	if err := t.hold.Err(); err != nil { // over before it began
		t.retire()
		return false, err
	}
	returned := false
	defer func() {
		if returned {
			t.rest()
		} else { // task panicked
			t.retire()
		}
	}()
	err = t.run(ctx, task)
	returned = true
	return true, t.hold.verdict(err)
}

// leadNow makes one attempt to become leader. Nil and nil: another leads.
func (r *LeaderAwareRunner) leadNow(ctx context.Context) (*term, error) {
	if r.cooling() > 0 {
		return nil, nil
	}
	if err := r.checkHealth(ctx); err != nil {
		r.emit(Event{Type: EventError, Name: r.name, Op: "health check", Err: err, Time: time.Now()})
		return nil, err
	}
	if r.asker == nil { // kept until it succeeds: it knows since when a dead holder is stuck
		r.asker = r.client.newAsker(r.name, r.settings.settings, r.emit)
	}
	h, err := r.client.tryAcquire(ctx, r.asker, true)
	switch {
	case errors.Is(err, ErrHeld):
		return nil, nil
	case err != nil:
		return nil, err
	}
	r.asker = nil
	return r.begin(h), nil
}

// IsLeader reports whether this instance leads now. It does no I/O and allocates
// nothing. By the time it has returned, the answer can be out of date: what a
// deposed leader must not do has to be guarded by its token.
func (r *LeaderAwareRunner) IsLeader() bool {
	t := r.term.Load()
	return t != nil && t.hold.Err() == nil
}

// Leader asks the backend who leads; a Record that is Free says that nobody does.
func (r *LeaderAwareRunner) Leader(ctx context.Context) (Record, error) {
	return r.client.Inspect(ctx, r.name)
}

// StepDown gives leadership up: the task's context ends, and when the task has
// returned the lock is released; for the cool-down others go first. It waits for
// the release. If ctx ends before, the lease is renewed no more, so that it expires
// although the task still runs, and the error says so. Without leadership it
// does nothing. A task that wants to step down itself starts this on another
// goroutine, and returns.
func (r *LeaderAwareRunner) StepDown(ctx context.Context) error {
	t := r.term.Load()
	if t == nil {
		return nil
	}
	t.stepDown(ErrSteppedDown, false)
	select {
	case <-t.over:
		return nil
	case <-ctx.Done():
		r.client.keeper.giveUp(t.hold.kept, ErrSteppedDown)
		return fmt.Errorf("holdfast: step down %q: the task has not returned; the lock frees when its lease expires: %w", r.name, context.Cause(ctx))
	}
}

// Close ends the runner: Run and RunTaskOnLeader return ErrClosed, a running task's
// context ends, and the lock is released when it has returned. Close waits for
// that, or until ctx ends. Closing again waits again.
func (r *LeaderAwareRunner) Close(ctx context.Context) error {
	r.close(errRunnerClosed)
	if t := r.term.Load(); t != nil {
		t.hold.cancel(errRunnerClosed)
	}
	select {
	case r.slot <- struct{}{}: // no task runs, and no call will get further than this
		defer func() { <-r.slot }()
	case <-ctx.Done():
		return fmt.Errorf("holdfast: close runner %q: the task has not returned: %w", r.name, context.Cause(ctx))
	}
	if r.asker != nil {
		r.asker.abandon()
		r.asker = nil
	}
	if t := r.term.Load(); t != nil {
		t.retire()
	}
	return nil
}

// sleep waits for d; the error says what has ended: ctx, the runner or the client.
func (r *LeaderAwareRunner) sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-r.closing.Done():
	case <-timer.C:
	}
	switch {
	case r.closing.Err() != nil:
		return context.Cause(r.closing)
	case ctx.Err() != nil:
		return waitEnded(ctx, r.name, nil)
	}
	return nil
}

// cooling returns how much longer not to campaign.
func (r *LeaderAwareRunner) cooling() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(r.cool-r.client.now(), 0)
}

// checkHealth runs the user's check, if there is one, within its time.
func (r *LeaderAwareRunner) checkHealth(ctx context.Context) error {
	if r.settings.health == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.settings.healthEvery)
	defer cancel()
	result := make(chan error, 1)
	if !r.client.background.run(func() { result <- r.settings.health(ctx) }) {
		return errShutdown
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("health check not done: %w", context.Cause(ctx))
	}
}
