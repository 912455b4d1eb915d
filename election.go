package holdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// LeaderAwareRunner has one of many instances of a service run a task: each
// instance makes a runner for the same name, and the one that holds the lock leads.
// All methods are safe for concurrent use; tasks of one runner never overlap.
type LeaderAwareRunner struct {
	client   *Client
	name     string
	settings runnerSettings
	emit     func(Event)

	closing context.Context // ends, with its cause, by Close, or by Shutdown during a call
	close   context.CancelCauseFunc

	slot     chan struct{} // capacity 1: taken by the call that campaigns or runs a task
	asker    *asker        // of RunTaskOnLeader, across calls; guarded by slot
	checking chan struct{} // capacity 1: taken while a health check runs

	term atomic.Pointer[term] // present leadership, or nil

	mu     sync.Mutex    // never held across I/O or a caller's function
	calls  int           // of Run and RunTaskOnLeader under way
	alone  bool          // the one call under way is Run
	unhook func() bool   // while there are calls: no more need to hear of Shutdown
	cool   time.Duration // until when not to campaign
}

// Errors of a runner.
var (
	// ErrBusy: Run was called while another call of Run or RunTaskOnLeader was under
	// way, or RunTaskOnLeader while Run was, or from the runner's own task.
	ErrBusy = errors.New("the runner is busy")
	// ErrSteppedDown is the cause of a task's context when leadership was given up:
	// by StepDown, after a failed health check, or after a stall.
	ErrSteppedDown = errSteppedDown
	// ErrStalled comes with ErrSteppedDown when the task sent no heartbeat in time.
	ErrStalled = errors.New("no heartbeat in time")

	errRunnerClosed = fmt.Errorf("holdfast: the runner is %w", ErrClosed)
	errCooling      = fmt.Errorf("holdfast: cooling down after having %w", ErrSteppedDown)
)

// NewLeaderAwareRunner makes a runner for the lock of this name. It does nothing
// until Run or RunTaskOnLeader is called. Options are checked here, against the
// backend's limits; the error is an *[InvalidError].
func NewLeaderAwareRunner(client *Client, name string, opts ...RunnerOption) (*LeaderAwareRunner, error) {
	if client == nil {
		return nil, driver.Invalid("client", "nil", "a Client")
	}
	cfg := runnerConfig{lock: client.defaults}
	for _, o := range opts {
		if o == nil {
			return nil, driver.Invalid("option", "nil", "a RunnerOption")
		}
		o.applyRunner(&cfg)
	}
	s, err := cfg.settle(client.limits)
	if err != nil {
		return nil, err
	}
	if err := validateSlots(name, s.slots, client.limits); err != nil {
		return nil, err
	}
	var sinks []*sink
	for _, observe := range cfg.observers {
		if observe == nil {
			return nil, driver.Invalid("observer", "nil", "a function")
		}
		sinks = append(sinks, client.newSink(observe))
	}
	r := &LeaderAwareRunner{
		client: client, name: name, settings: s, emit: asLeader(client.emit(sinks)),
		slot: make(chan struct{}, 1), checking: make(chan struct{}, 1),
	}
	r.closing, r.close = context.WithCancelCause(context.Background())
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
// Run campaigns again, and an error of task's own is told to the observers. When
// ctx ends before task was begun, the error matches ctx's error and what kept the
// lock; when it ends while leading, task's result is returned, joined with ErrLost or
// ErrSteppedDown if the lock was not kept until task had returned. After Close or
// Shutdown the error matches ErrClosed.
//
// A backend that fails ends nothing: each failure is told to the observers and
// retried.
func (r *LeaderAwareRunner) Run(ctx context.Context, task func(ctx context.Context) error) error {
	if err := r.enter(ctx, "run", task, true); err != nil {
		return err
	}
	defer r.leave()
	for failures := 0; ; {
		t, err := r.campaign(ctx)
		if err != nil {
			return err
		}
		done, err := t.lead(ctx, task)
		if done {
			return err
		}
		if err != nil { // to be restarted
			if r.client.now()-t.since > r.settings.restart.Max {
				failures = 0
			}
			pause := clock.Backoff(failures, r.settings.restart.Initial, r.settings.restart.Max)
			failures++
			if err := r.sleep(ctx, pause, err); err != nil {
				return err
			}
		}
	}
}

// enter admits a call of Run alone, and calls of RunTaskOnLeader one after another.
func (r *LeaderAwareRunner) enter(ctx context.Context, op string, task func(context.Context) error, alone bool) error {
	if task == nil {
		return driver.Invalid("task", "nil", "a function")
	}
	if err := r.ended(ctx, nil); err != nil {
		return err
	}
	own := r.within(ctx) // would wait for itself
	r.mu.Lock()
	busy := own || r.alone || alone && r.calls > 0
	if !busy {
		if r.calls == 0 { // not for good: the client outlives its runners
			r.unhook = context.AfterFunc(r.client.closing, func() { r.close(errShutdown) })
		}
		r.calls, r.alone = r.calls+1, alone
	}
	r.mu.Unlock()
	if busy {
		return fmt.Errorf("holdfast: %s %q: %w", op, r.name, ErrBusy)
	}
	select {
	case r.slot <- struct{}{}:
		return nil
	case <-ctx.Done():
	case <-r.closing.Done():
	}
	r.uncount()
	return r.ended(ctx, nil)
}

// leave undoes enter.
func (r *LeaderAwareRunner) leave() {
	<-r.slot
	r.uncount()
}

func (r *LeaderAwareRunner) uncount() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls, r.alone = r.calls-1, false
	if r.calls == 0 {
		r.unhook()
	}
}

// campaign waits until this instance leads.
func (r *LeaderAwareRunner) campaign(ctx context.Context) (*term, error) {
	ctx, stop := until(ctx, r.closing)
	defer stop()
	for {
		if err := r.ended(ctx, nil); err != nil {
			return nil, err
		}
		if t := r.resume(ctx); t != nil {
			return t, nil
		}
		if d := r.cooling(); d > 0 {
			if err := r.sleep(ctx, d, errCooling); err != nil {
				return nil, err
			}
		}
		if err := r.checkHealth(ctx); err != nil {
			if err := r.sleep(ctx, r.settings.healthEvery, err); err != nil {
				return nil, err
			}
			continue
		}
		h, err := r.client.waitAcquire(ctx, context.WithoutCancel(ctx), r.name, r.settings.settings, r.emit, true)
		if err != nil {
			return nil, cmp.Or(r.closed(), err)
		}
		return r.begin(h), nil
	}
}

// RunTaskOnLeader is for the periodic job: it runs task if this instance leads, or
// can become leader at once, and reports whether it ran. Leadership is kept in
// the background between calls, so that of many instances calling every few
// seconds one stays leader; an instance that stops calling gives it up
// (WithIdleLimit). If another leads, or this runner is cooling down, the result
// is false and nil; false and an error mean that the backend did not say, that the
// health check failed, or that ctx ended first.
//
// task runs as with Run. Its error is returned and leadership kept; if the lock was
// not kept until task had returned, the error matches ErrLost or ErrSteppedDown
// too. If task panics, the lock is released first. Calls of one runner take turns.
func (r *LeaderAwareRunner) RunTaskOnLeader(ctx context.Context, task func(ctx context.Context) error) (ran bool, err error) {
	if err := r.enter(ctx, "run task", task, false); err != nil {
		return false, err
	}
	defer r.leave()
	ctx, stop := until(ctx, r.closing)
	defer stop()
	t := r.resume(ctx)
	if t == nil {
		if t, err = r.leadNow(ctx); t == nil {
			return false, cmp.Or(r.ended(ctx, err), err)
		}
	}
	returned := false
	defer func() {
		if returned {
			t.rest(ctx)
		} else { // task panicked
			t.retire(ctx)
		}
	}()
	if err := t.unfit(ctx); err != nil {
		returned = true
		return false, err
	}
	err = t.run(ctx, task)
	returned = true
	return true, t.hold.verdict(err)
}

// leadNow makes one attempt to become leader. Nil and nil: another leads.
func (r *LeaderAwareRunner) leadNow(ctx context.Context) (*term, error) {
	if ctx.Err() != nil { // while the term before was released
		return nil, nil
	}
	if r.cooling() > 0 {
		return nil, nil
	}
	if err := r.checkHealth(ctx); err != nil {
		return nil, err
	}
	if !r.client.work.Start() { // so that a clean-up begins before Shutdown is done
		return nil, errShutdown
	}
	defer r.client.work.Done()
	if r.asker == nil {
		r.asker = r.client.newAsker(r.name, r.settings.settings, r.emit)
	}
	a := r.asker
	h, err := r.client.tryAcquire(ctx, context.Background(), a, true)
	switch {
	case err == nil:
		r.asker = nil
		return r.begin(h), nil
	case errors.Is(err, ErrHeld): // the asker is kept: it knows which holder was reported
		a.identify(ctx)
		return nil, nil
	}
	// Nobody knows whether there will be another call, so this request is cleaned up
	// now, and the next one has another ID.
	a.abandon()
	return nil, err
}

// IsLeader reports whether this instance leads now. It does no I/O and allocates
// nothing. By the time it has returned, the answer can be out of date: what a
// deposed leader must not do has to be guarded by its token.
func (r *LeaderAwareRunner) IsLeader() bool {
	t := r.term.Load()
	return t != nil && t.hold.Err() == nil
}

// Name is the name of the lock.
func (r *LeaderAwareRunner) Name() string { return r.name }

// Leading returns the lease under which this instance leads now; false if it does not.
// Like IsLeader it does no I/O.
func (r *LeaderAwareRunner) Leading() (Lease, bool) {
	t := r.term.Load()
	if t == nil || t.hold.Err() != nil {
		return Lease{}, false
	}
	return t.hold.Lease(), true
}

// Leader asks the backend who leads; a Record that is Free says that nobody does. Of the
// leaders of a pool (WithSlots) it tells the first, perhaps without the lock's data.
func (r *LeaderAwareRunner) Leader(ctx context.Context) (Record, error) {
	return r.client.holderOf(ctx, r.name, r.settings.settings)
}

// sleep waits for d. The error says what ended it, and what kept the lock.
func (r *LeaderAwareRunner) sleep(ctx context.Context, d time.Duration, kept error) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-r.closing.Done():
	}
	return r.ended(ctx, kept)
}

// ended says which of the runner, the client and ctx has ended, if any.
func (r *LeaderAwareRunner) ended(ctx context.Context, kept error) error {
	if err := r.closed(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return r.client.waitEnded(ctx, r.name, kept)
	}
	return nil
}

// closed is nil before Close and Shutdown.
func (r *LeaderAwareRunner) closed() error {
	if r.client.closing.Err() != nil {
		return errShutdown
	}
	return context.Cause(r.closing)
}

// cooling returns how much longer not to campaign.
func (r *LeaderAwareRunner) cooling() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(r.cool-r.client.now(), 0)
}
