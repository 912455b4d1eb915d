// Package election runs a task in one of many instances of a service: the mechanism behind
// holdfast.LeaderAwareRunner.
//
// A [Runner] campaigns for a lock. A grant begins a leadership, in which tasks run one after another
// on the goroutines of the callers. A watcher goroutine ends the leadership when a task stalls or no
// task has run for the idle limit; another runs the health check. When a leadership ends, its lock
// is released after the task has returned, and only then can the next campaign begin.
package election

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// Runner runs a task in one of many instances of a service: each instance makes a runner for the same
// name, and the instance that holds the lock leads. All methods are safe for concurrent use; tasks
// of one runner never overlap. The methods are documented at holdfast.LeaderAwareRunner.
type Runner struct {
	client   *engine.Client
	name     string
	settings runnerSettings
	emit     func(event.Event)

	closing context.Context // ended, with its cause, by Close, or by Shutdown during a call
	close   context.CancelCauseFunc

	busy        chan struct{}       // capacity 1: has a value while a call campaigns or runs a task
	acquisition *engine.Acquisition // of RunTaskOnLeader, across calls; guarded by busy
	checking    chan struct{}       // capacity 1: has a value while a health check runs

	leadership atomic.Pointer[leadership] // the present one, or nil

	mu             sync.Mutex    // never held across I/O or a caller's function, but for the clock
	calls          int           // of Run and RunTaskOnLeader under way
	runOnly        bool          // the one call under way is Run
	ignoreShutdown func() bool   // set while there are calls: the runner need not notice Shutdown any more
	coolUntil      time.Duration // no campaign before
}

// ErrStalled comes with cause.ErrSteppedDown when the task sent no heartbeat in time.
var ErrStalled = errors.New("no heartbeat in time")

var (
	errClosed      = driver.Errorf("the runner is %w", driver.ErrClosed)
	errCoolingDown = driver.Errorf("cooling down after having %w", cause.ErrSteppedDown)
)

// New makes a runner for the lock of this name.
func New(client *engine.Client, name string, cfg Config) (*Runner, error) {
	s, err := cfg.resolve(client.Info().Limits)
	if err != nil {
		return nil, err
	}
	if err := engine.ValidateSlots(name, s.Slots, client.Info().Limits); err != nil {
		return nil, err
	}
	r := &Runner{
		client: client, name: name, settings: s, emit: event.AsLeader(client.EmitTo(s.Observers)),
		busy: make(chan struct{}, 1), checking: make(chan struct{}, 1),
	}
	r.closing, r.close = context.WithCancelCause(context.Background())
	return r, nil
}

// Run campaigns, runs task while leading, and campaigns again after every loss, until the task is
// done or ctx ends.
func (r *Runner) Run(ctx context.Context, task func(ctx context.Context) error) error {
	if err := r.enter(ctx, "run", task, true); err != nil {
		return err
	}
	defer r.leave()
	for failures := 0; ; { // Promise 9: only the task's end, ctx, Close and Shutdown end the loop; a loss does not.
		l, err := r.campaign(ctx)
		if err != nil {
			return err
		}
		done, err := l.runToEnd(ctx, task)
		if done {
			return err
		}
		if err != nil { // Run restarts the task
			restart := r.settings.restart
			if r.client.Now()-l.since > restart.Max {
				failures = 0
			}
			backoff := timing.Backoff(failures, restart.Initial, restart.Max)
			failures++
			if err := r.sleep(ctx, backoff, err); err != nil {
				return err
			}
		}
	}
}

// enter begins a call: one of Run alone, those of RunTaskOnLeader one after another.
func (r *Runner) enter(ctx context.Context, op string, task func(context.Context) error, runOnly bool) error {
	if err := cause.Check(ctx); err != nil {
		return err
	}
	if task == nil {
		return driver.Invalid("task", "nil", "a function")
	}
	if err := r.ended(ctx, nil); err != nil {
		return err
	}
	fromOwnTask := r.inTask(ctx) // it would deadlock
	r.mu.Lock()
	busy := fromOwnTask || r.runOnly || runOnly && r.calls > 0
	if !busy {
		if r.calls == 0 { // only during calls, because the client may outlive many runners
			r.ignoreShutdown = context.AfterFunc(r.client.Closing(), func() { r.close(cause.ErrShutdown) })
		}
		r.calls, r.runOnly = r.calls+1, runOnly
	}
	r.mu.Unlock()
	if busy {
		return driver.Errorf("%s %q: %w", op, r.name, driver.Invalid("call", "during another one", "the only one of this runner"))
	}
	select {
	case r.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
	case <-r.closing.Done():
	}
	r.endCall()
	return r.ended(ctx, nil)
}

// leave ends a call.
func (r *Runner) leave() {
	<-r.busy
	r.endCall()
}

func (r *Runner) endCall() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls, r.runOnly = r.calls-1, false
	if r.calls == 0 {
		r.ignoreShutdown()
	}
}

// campaign waits until this instance leads.
func (r *Runner) campaign(ctx context.Context) (*leadership, error) {
	ctx, stop := cause.Join(ctx, r.closing)
	defer stop()
	for {
		if err := r.ended(ctx, nil); err != nil {
			return nil, err
		}
		if l := r.resume(ctx); l != nil {
			return l, nil
		}
		if d := r.cooling(); d > 0 {
			if err := r.sleep(ctx, d, errCoolingDown); err != nil {
				return nil, err
			}
		}
		if err := r.checkHealth(ctx); err != nil {
			if err := r.sleep(ctx, r.settings.healthEvery, err); err != nil {
				return nil, err
			}
			continue // Promise 9: checkHealth has reported the failure, and the campaign goes on.
		}
		h, err := r.client.WaitAcquire(ctx, context.WithoutCancel(ctx), r.name, r.settings.Settings, r.emit, true)
		if err != nil {
			return nil, cmp.Or(r.closed(), err)
		}
		return r.lead(h), nil
	}
}

// RunTaskOnLeader runs task if this instance leads or can become leader at once, and reports whether
// it ran. Leadership is kept between calls.
func (r *Runner) RunTaskOnLeader(ctx context.Context, task func(ctx context.Context) error) (ran bool, err error) {
	if err := r.enter(ctx, "run task", task, false); err != nil {
		return false, err
	}
	defer r.leave()
	ctx, stop := cause.Join(ctx, r.closing)
	defer stop()
	l := r.resume(ctx)
	if l == nil {
		if l, err = r.tryLead(ctx); l == nil {
			return false, cmp.Or(r.ended(ctx, err), err)
		}
	}
	returned := false
	defer func() {
		if returned {
			l.keepIdle(ctx)
		} else { // task panicked
			l.end(ctx)
		}
	}()
	if err := l.ended(ctx); err != nil {
		returned = true
		return false, err
	}
	err = l.run(ctx, task)
	returned = true
	return true, l.hold.Verdict(err)
}

// tryLead makes one attempt to become leader. It returns nil and nil if another leads.
func (r *Runner) tryLead(ctx context.Context) (*leadership, error) {
	if ctx.Err() != nil { // while the earlier leadership was released
		return nil, nil
	}
	if r.cooling() > 0 {
		return nil, nil
	}
	if err := r.checkHealth(ctx); err != nil {
		return nil, err
	}
	if !r.client.Work().Start() { // so that Shutdown waits for the cleanup of this attempt
		return nil, cause.ErrShutdown
	}
	defer r.client.Work().Done()
	if r.acquisition == nil {
		r.acquisition = r.client.NewAcquisition(r.name, r.settings.Settings, r.emit)
	}
	a, goesOn := r.acquisition, false
	defer func() {
		if !goesOn { // also after a panic of the driver that the caller recovers
			// There may be no further call, so the request in doubt is cleaned up now. The next one has
			// another ID.
			a.Abandon()
		}
	}()
	h, err := r.client.TryAcquire(ctx, context.Background(), a, true)
	switch {
	case err == nil:
		r.acquisition, goesOn = nil, true
		return r.lead(h), nil
	case errors.Is(err, driver.ErrHeld): // the acquisition is kept: it knows which holder was reported
		goesOn = true
		a.Identify(ctx)
		a.NoteWaiting()
		return nil, nil
	}
	return nil, err
}

// IsLeader reports whether this instance leads now, without I/O or allocation.
func (r *Runner) IsLeader() bool {
	l := r.leadership.Load()
	return l != nil && l.hold.Err() == nil
}

// Name is the name of the lock.
func (r *Runner) Name() string { return r.name }

// Leading returns the lease under which this instance leads now; false if it does not.
func (r *Runner) Leading() (driver.Lease, bool) {
	l := r.leadership.Load()
	if l == nil || l.hold.Err() != nil {
		return driver.Lease{}, false
	}
	return l.hold.Lease(), true
}

// Leader asks the backend who leads.
func (r *Runner) Leader(ctx context.Context) (driver.Record, error) {
	return r.client.HolderOf(ctx, r.name, r.settings.Settings)
}

// sleep waits for d. An error says what ended the wait, and the reason for it.
func (r *Runner) sleep(ctx context.Context, d time.Duration, reason error) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-r.closing.Done():
	}
	return r.ended(ctx, reason)
}

// ended returns an error if the runner, the client or ctx has ended. reason is why the caller does
// not lead, or nil.
func (r *Runner) ended(ctx context.Context, reason error) error {
	if err := r.closed(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return r.client.WaitEnded(ctx, r.name, reason)
	}
	return nil
}

// closed returns an error after Close and Shutdown.
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
	return max(r.coolUntil-r.client.Now(), 0)
}
