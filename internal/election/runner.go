package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/event"
)

// Runner has one of many instances of a service run a task: each
// instance makes a runner for the same name, and the one that holds the lock leads.
// All methods are safe for concurrent use; tasks of one runner never overlap.
type Runner struct {
	client   *engine.Client
	name     string
	settings runnerSettings
	emit     func(event.Event)

	closing context.Context // ends, with its cause, by Close, or by Shutdown during a call
	close   context.CancelCauseFunc

	slot     chan struct{}       // capacity 1: taken by the call that campaigns or runs a task
	asker    *engine.Acquisition // of RunTaskOnLeader, across calls; guarded by slot
	checking chan struct{}       // capacity 1: taken while a health check runs

	term atomic.Pointer[term] // present leadership, or nil

	mu     sync.Mutex    // never held across I/O or a caller's function
	calls  int           // of Run and RunTaskOnLeader under way
	alone  bool          // the one call under way is Run
	unhook func() bool   // while there are calls: no more need to hear of Shutdown
	cool   time.Duration // until when not to campaign
}

// ErrStalled comes with ErrSteppedDown when the task sent no heartbeat in time.
var ErrStalled = errors.New("no heartbeat in time")

var (
	errClosed     = fmt.Errorf("holdfast: the runner is %w", driver.ErrClosed)
	errCoolingOff = fmt.Errorf("holdfast: cooling down after having %w", cause.ErrSteppedDown)
)

// New makes a runner for the lock of this name.
func New(client *engine.Client, name string, cfg Config) (*Runner, error) {
	s, err := cfg.resolve(client.Limits())
	if err != nil {
		return nil, err
	}
	if err := engine.ValidateSlots(name, s.Slots, client.Limits()); err != nil {
		return nil, err
	}
	r := &Runner{
		client: client, name: name, settings: s, emit: event.AsLeader(client.EmitTo(s.Observers)),
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
func (r *Runner) Run(ctx context.Context, task func(ctx context.Context) error) error {
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
			if r.client.Now()-t.since > r.settings.restart.Max {
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
func (r *Runner) enter(ctx context.Context, op string, task func(context.Context) error, alone bool) error {
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
			r.unhook = context.AfterFunc(r.client.Closing(), func() { r.close(cause.ErrShutdown) })
		}
		r.calls, r.alone = r.calls+1, alone
	}
	r.mu.Unlock()
	if busy {
		return fmt.Errorf("holdfast: %s %q: %w", op, r.name, driver.Invalid("call", "during another one", "the only one of this runner"))
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
func (r *Runner) leave() {
	<-r.slot
	r.uncount()
}

func (r *Runner) uncount() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls, r.alone = r.calls-1, false
	if r.calls == 0 {
		r.unhook()
	}
}

// campaign waits until this instance leads.
func (r *Runner) campaign(ctx context.Context) (*term, error) {
	ctx, stop := cause.Join(ctx, r.closing)
	defer stop()
	for {
		if err := r.ended(ctx, nil); err != nil {
			return nil, err
		}
		if t := r.resume(ctx); t != nil {
			return t, nil
		}
		if d := r.cooling(); d > 0 {
			if err := r.sleep(ctx, d, errCoolingOff); err != nil {
				return nil, err
			}
		}
		if err := r.checkHealth(ctx); err != nil {
			if err := r.sleep(ctx, r.settings.healthEvery, err); err != nil {
				return nil, err
			}
			continue
		}
		h, err := r.client.WaitAcquire(ctx, context.WithoutCancel(ctx), r.name, r.settings.Settings, r.emit, true)
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
func (r *Runner) RunTaskOnLeader(ctx context.Context, task func(ctx context.Context) error) (ran bool, err error) {
	if err := r.enter(ctx, "run task", task, false); err != nil {
		return false, err
	}
	defer r.leave()
	ctx, stop := cause.Join(ctx, r.closing)
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
	return true, t.hold.Verdict(err)
}

// leadNow makes one attempt to become leader. Nil and nil: another leads.
func (r *Runner) leadNow(ctx context.Context) (*term, error) {
	if ctx.Err() != nil { // while the term before was released
		return nil, nil
	}
	if r.cooling() > 0 {
		return nil, nil
	}
	if err := r.checkHealth(ctx); err != nil {
		return nil, err
	}
	if !r.client.Work().Start() { // so that a clean-up begins before Shutdown is done
		return nil, cause.ErrShutdown
	}
	defer r.client.Work().Done()
	if r.asker == nil {
		r.asker = r.client.NewAcquisition(r.name, r.settings.Settings, r.emit)
	}
	a := r.asker
	h, err := r.client.TryAcquire(ctx, context.Background(), a, true)
	switch {
	case err == nil:
		r.asker = nil
		return r.begin(h), nil
	case errors.Is(err, driver.ErrHeld): // the asker is kept: it knows which holder was reported
		a.Identify(ctx)
		return nil, nil
	}
	// Nobody knows whether there will be another call, so this request is cleaned up
	// now, and the next one has another ID.
	a.Abandon()
	return nil, err
}

// IsLeader reports whether this instance leads now. It does no I/O and allocates
// nothing. By the time it has returned, the answer can be out of date: what a
// deposed leader must not do has to be guarded by its token.
func (r *Runner) IsLeader() bool {
	t := r.term.Load()
	return t != nil && t.hold.Err() == nil
}

// Name is the name of the lock.
func (r *Runner) Name() string { return r.name }

// Leading returns the lease under which this instance leads now; false if it does not.
// Like IsLeader it does no I/O.
func (r *Runner) Leading() (driver.Lease, bool) {
	t := r.term.Load()
	if t == nil || t.hold.Err() != nil {
		return driver.Lease{}, false
	}
	return t.hold.Lease(), true
}

// Leader asks the backend who leads; a Record that is Free says that nobody does. Of the
// leaders of a pool (WithSlots) it tells the first, perhaps without the lock's data.
func (r *Runner) Leader(ctx context.Context) (driver.Record, error) {
	return r.client.HolderOf(ctx, r.name, r.settings.Settings)
}

// sleep waits for d. The error says what ended it, and what kept the lock.
func (r *Runner) sleep(ctx context.Context, d time.Duration, kept error) error {
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
func (r *Runner) ended(ctx context.Context, kept error) error {
	if err := r.closed(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return r.client.WaitEnded(ctx, r.name, kept)
	}
	return nil
}

// closed is nil before Close and Shutdown.
func (r *Runner) closed() error {
	if r.client.Closing().Err() != nil {
		return cause.ErrShutdown
	}
	return context.Cause(r.closing)
}

// cooling returns how much longer not to campaign.
func (r *Runner) cooling() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(r.cool-r.client.Now(), 0)
}
