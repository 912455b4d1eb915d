package holdfast

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/election"
)

// LeaderAwareRunner makes one of many instances of a service run a task: each instance makes a
// runner for the same name, and the instance that holds the lock leads. All methods are safe for
// concurrent use; tasks of one runner never overlap.
type LeaderAwareRunner election.Runner

// NewLeaderAwareRunner makes a runner for the lock of this name. It does nothing until Run or
// RunTaskOnLeader is called. Options are checked here, against the backend's limits; the error
// is an *[InvalidError].
func NewLeaderAwareRunner(client *Client, name string, opts ...RunnerOption) (*LeaderAwareRunner, error) {
	if client == nil {
		return nil, driver.Invalid("client", "nil", "a Client")
	}
	cfg := election.Config{Lock: client.engine().Defaults()}
	for _, o := range opts {
		if o == nil {
			return nil, driver.Invalid("option", "nil", "a RunnerOption")
		}
		o.applyRunner(&cfg)
	}
	r, err := election.New(client.engine(), name, cfg)
	return (*LeaderAwareRunner)(r), err
}

func (r *LeaderAwareRunner) runner() *election.Runner { return (*election.Runner)(r) }

// Run campaigns for leadership, runs task while leading, and campaigns again after every loss,
// until the task is done or ctx ends. task runs on the caller's goroutine. Its context descends
// from ctx and ends on a loss, a step-down, Close or Shutdown. A new campaign begins, and the
// lock is released, only after task has returned or panicked.
//
// What Run returns:
//
//   - task returns nil while still leading: nil, after the time of WithMinHold.
//   - task returns an error while leading: that error, after the lock was released. With
//     WithRestart, Run campaigns again instead.
//   - task returns after a loss or a step-down: Run campaigns again. An error of the task's own
//     is reported to the observers.
//   - ctx ends before task was begun: an error that matches ctx's error and what kept the lock.
//   - ctx ends while leading: the task's result, joined with ErrLost or ErrSteppedDown if the
//     lock was not kept until task had returned.
//   - after Close or Shutdown: an error that matches ErrClosed.
//   - while another call of Run or RunTaskOnLeader runs, or from the runner's own task: an
//     *[InvalidError].
//
// A failing backend does not end Run: each failure is reported to the observers and retried.
func (r *LeaderAwareRunner) Run(ctx context.Context, task func(ctx context.Context) error) error {
	return r.runner().Run(ctx, task)
}

// RunTaskOnLeader is for periodic jobs. It runs task if this instance leads, or can become
// leader at once, and reports whether it ran. Leadership is kept in the background between
// calls, so that of many instances that call every few seconds, one stays leader. An instance
// that stops calling gives leadership up; see [WithIdleLimit]. If another instance leads, or
// this runner is cooling down, the result is false and nil. False and an error mean that the
// backend did not answer, that the health check failed, or that ctx ended first.
//
// task runs as with Run. Its error is returned and leadership kept. If the lock was not kept
// until task had returned, the error matches ErrLost or ErrSteppedDown too. If task panics, the
// lock is released first. Calls of one runner take turns; a call during Run, or from the
// runner's own task, returns an *[InvalidError].
func (r *LeaderAwareRunner) RunTaskOnLeader(ctx context.Context, task func(ctx context.Context) error) (ran bool, err error) {
	return r.runner().RunTaskOnLeader(ctx, task)
}

// Name is the name of the lock.
func (r *LeaderAwareRunner) Name() string { return r.runner().Name() }

// IsLeader reports whether this instance leads now. It does no I/O and allocates nothing. By
// the time it has returned, the answer can be out of date: guard with a token what a deposed
// leader must not do.
func (r *LeaderAwareRunner) IsLeader() bool { return r.runner().IsLeader() }

// Leading returns the lease under which this instance leads now; false if it does not. Like
// IsLeader it does no I/O.
func (r *LeaderAwareRunner) Leading() (Lease, bool) { return r.runner().Leading() }

// Leader asks the backend who leads; a record that is free says that nobody does. Of the
// leaders of a pool ([WithSlots]) it returns the first, perhaps without the lock's data.
// [Client.Observe] follows the leader without campaigning.
func (r *LeaderAwareRunner) Leader(ctx context.Context) (Record, error) {
	return r.runner().Leader(ctx)
}

// StepDown gives leadership up: the task's context ends, the lock is released when the task has
// returned, and other instances go first for the cool-down. StepDown waits for the release. If
// ctx ends before, the lease is no longer renewed, so that it expires although the task still
// runs, and the error says so. Without leadership StepDown does nothing. A task may call it with
// its own context; it then does not wait.
func (r *LeaderAwareRunner) StepDown(ctx context.Context) error { return r.runner().StepDown(ctx) }

// Close ends the runner: Run and RunTaskOnLeader return ErrClosed, a running task's context
// ends, and the lock is released when the task has returned. Close waits for that. If ctx ends
// before, the lease is no longer renewed, as with StepDown. Close may be called again, and waits
// again. A task may call it with its own context; it then does not wait.
func (r *LeaderAwareRunner) Close(ctx context.Context) error { return r.runner().Close(ctx) }

// Heartbeat tells the stall watchdog that the task whose context ctx descends from is alive; see
// [WithStallTimeout]. It is cheap, safe for concurrent use, and does nothing outside of a task.
func Heartbeat(ctx context.Context) { election.Heartbeat(ctx) }
