package holdfast

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/election"
)

// LeaderAwareRunner makes one of many instances of a service run a task: each instance makes a
// runner for the same name, and the instance that holds the lock leads. All methods are safe for
// concurrent use. Tasks of one runner never overlap.
type LeaderAwareRunner struct{ core *election.Runner }

// NewLeaderAwareRunner makes a runner for the lock of this name. The runner does nothing until Run
// or RunTaskOnLeader is called. The error is an *[InvalidError] if an argument or option is not
// allowed.
func NewLeaderAwareRunner(client *Client, name string, opts ...RunnerOption) (*LeaderAwareRunner, error) {
	if client == nil {
		return nil, driver.Invalid("client", "nil", "a Client")
	}
	cfg := election.Config{Lock: client.core.Defaults()}
	for _, o := range opts {
		if o == nil {
			return nil, driver.Invalid("option", "nil", "a RunnerOption")
		}
		o.applyRunner(&cfg)
	}
	r, err := election.New(client.core, name, cfg)
	if err != nil {
		return nil, err
	}
	return &LeaderAwareRunner{r}, nil
}

// Run campaigns for leadership, runs task while leading, and campaigns again after every loss,
// until the task is done or ctx ends. task runs on the caller's goroutine. Its context descends
// from ctx and ends on a loss, a step-down, Close or Shutdown. A new campaign begins, and the
// lock is released, only after task has returned or panicked.
//
// Run handles these cases:
//
//   - task returns nil while still leading: Run returns nil, after the time of WithMinHold.
//   - task returns an error while leading: Run releases the lock and returns that error. With
//     WithRestart, Run campaigns again instead.
//   - task returns after a loss or a step-down: Run campaigns again. If task returned an error of
//     its own, that is reported to the observers.
//   - task ends the goroutine with [runtime.Goexit]: Run releases the lock, an EventError reports it,
//     and the caller's goroutine ends, so Run neither returns nor campaigns again.
//   - ctx ends before task has begun: Run returns an error that matches ctx's error and what kept
//     the lock.
//   - ctx ends while leading: Run returns the task's result, joined with ErrLost or ErrSteppedDown
//     if the lock was not held until task had returned.
//   - Close or Shutdown was called: Run returns an error that matches ErrClosed.
//   - Another call of Run or RunTaskOnLeader is in progress, or the runner's own task calls Run: Run
//     returns an *[InvalidError].
//
// A failure of the backend does not end Run: each failure is reported to the observers and retried.
func (r *LeaderAwareRunner) Run(ctx context.Context, task func(ctx context.Context) error) error {
	return r.core.Run(ctx, task)
}

// RunTaskOnLeader is for periodic jobs. It runs task if this instance leads, or can become leader
// at once, and reports whether task ran. Between calls the runner stays leader in the background.
// So of many instances that call every few seconds, one stays leader. An instance that stops
// calling gives leadership up; see [WithIdleLimit].
//
// If another instance leads, or this runner is cooling down, the result is false and nil. If the
// backend did not answer, the health check failed, or ctx ended first, the result is false and an
// error.
//
// task runs as with Run. RunTaskOnLeader returns its error, and this instance stays leader. If the
// lock was not held until task had returned, the error matches ErrLost or ErrSteppedDown too. If
// task panics, the lock is released before the panic continues. Calls of one runner run one after another. A
// call during Run, or from the runner's own task, returns an *[InvalidError].
func (r *LeaderAwareRunner) RunTaskOnLeader(ctx context.Context, task func(ctx context.Context) error) (ran bool, err error) {
	return r.core.RunTaskOnLeader(ctx, task)
}

// Name returns the name of the lock.
func (r *LeaderAwareRunner) Name() string { return r.core.Name() }

// IsLeader reports whether this instance leads now. It does no I/O and allocates nothing. The
// answer can be out of date as soon as it is returned. Use a fencing token to protect what a former
// leader must not do.
func (r *LeaderAwareRunner) IsLeader() bool { return r.core.IsLeader() }

// Leading returns the lease under which this instance leads now, or false if it does not lead. Like
// IsLeader it does no I/O.
func (r *LeaderAwareRunner) Leading() (Lease, bool) { return r.core.Leading() }

// Leader reads from the backend who leads. The state of the record is free if nobody leads. Of the
// leaders of a pool ([WithSlots]) it returns the first, perhaps without the lock's data.
// [Client.Observe] follows the leader without campaigning.
func (r *LeaderAwareRunner) Leader(ctx context.Context) (Record, error) {
	return r.core.Leader(ctx)
}

// StepDown gives leadership up: the task's context ends, the lock is released when the task has
// returned, and other instances go first during the cool-down. StepDown waits for the release. If
// ctx ends before, the lease is no longer renewed, so it expires even if the task still runs, and
// the error says so. If this instance does not lead, StepDown does nothing. If a task calls it with
// its own context, it does not wait.
func (r *LeaderAwareRunner) StepDown(ctx context.Context) error { return r.core.StepDown(ctx) }

// Close ends the runner: Run returns ErrClosed, and so does RunTaskOnLeader, unless its task has begun:
// then it returns the task's result. A running task's context ends, and the lock is released when the
// task has returned. Close waits for that. If ctx ends before, the lease is no longer renewed, as with
// StepDown. Further calls wait too. If a task calls Close with its own context, it does not wait.
func (r *LeaderAwareRunner) Close(ctx context.Context) error { return r.core.Close(ctx) }

// Heartbeat reports to the stall watchdog that the task whose context ctx descends from is alive;
// see [WithStallTimeout]. It is cheap, safe for concurrent use, and does nothing outside a task.
func Heartbeat(ctx context.Context) { election.Heartbeat(ctx) }
