// Package gocronlock makes jobs of github.com/go-co-op/gocron/v2 run once in a cluster, however many
// instances have the same schedule. It needs no dependency: gocron's interfaces are met
// structurally, gocron's Lock as a type parameter.
//
//	locker, err := gocronlock.NewLocker[gocron.Lock](client, 50*time.Second)
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//	job, err := scheduler.NewJob(gocron.DurationJob(time.Minute),
//		gocron.NewTask(locker.Task("report", report)), gocron.WithName("report"))
//
// # Locker or Elector
//
// A [Locker] has a lock for each job, so the jobs of a cluster run on any instance. An [Elector]
// has one leader, which runs all jobs. gocron takes one of them.
//
// # The minimum hold
//
// gocron asks for the lock at the moment when its own timer fires. Timers of different instances
// fire at different moments: clocks differ, and jobs with a duration count from the instance's
// start. If a job is over, and its lock released, before the next instance asks, that instance
// runs the job again. So a Locker keeps every lock for a minimum time, counted from when it was
// taken, also in this process. Within it the job runs nowhere else.
//
//   - Jobs with times of day, such as gocron.CronJob: longer than the clocks differ, for example
//     a minute.
//   - Jobs with a duration, such as gocron.DurationJob: a little less than the duration, for
//     example 50 s of 60 s. Instances that are started at different times then run the job about
//     once in a duration, together.
//
// Jobs with different periods need lockers of their own (gocron.WithDistributedJobLocker). A
// Locker is cheap: it has no goroutine, connection or lock until a job runs.
//
// # What the lock guarantees
//
// At most one instance runs a job at a time, and none begins it within the minimum hold of a run.
// The lock is renewed while the job runs, for any length of time. It is released after the job
// has returned or panicked, even if gocron's context has ended by then. The Client's Shutdown
// waits for running jobs, and ends the minimum hold of those that have returned: another instance
// may then run the job in the same period. An instance that crashes keeps its locks for one TTL,
// even if that is more or less than the minimum hold.
//
// A lock is lost if it could not be renewed in time. gocron gives its jobs a context that does
// not end then. [Locker.Task] and [Elector.Task] make one that does, before another instance can
// run the job, and [holdfast.TokenFromContext] finds the fencing token in it. A run that was
// missed, because the lock was held or the backend failed, is not made up for.
package gocronlock

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/internal/namedlock"
	"github.com/holdfast-go/holdfast/driver"
)

// Lock is what gocron's interface Lock asks for.
type Lock interface {
	Unlock(ctx context.Context) error
}

// Locker is a gocron Locker, for WithDistributedLocker and WithDistributedJobLocker; L is
// gocron's interface Lock. Locks have the names of jobs, so every service needs its own job
// names or its own place on the backend. All methods are safe for concurrent use.
type Locker[L Lock] struct{ locks *namedlock.Set }

// NewLocker makes a Locker that keeps each lock for at least minHold, which must be positive; the
// package documentation says how to choose it. It starts nothing, and the Client's Shutdown ends
// all that it does.
func NewLocker[L Lock](client *holdfast.Client, minHold time.Duration, opts ...holdfast.Option) (*Locker[L], error) {
	if err := namedlock.CheckMinHold(minHold); err != nil {
		return nil, err
	}
	if _, ok := any((*unlocker)(nil)).(L); !ok {
		return nil, driver.Invalid("L", fmt.Sprintf("%T", (*L)(nil))[1:], "an interface with the method Unlock(context.Context) error alone")
	}
	locks, err := namedlock.New(client, minHold, opts...)
	if err != nil {
		return nil, err
	}
	return &Locker[L]{locks}, nil
}

// Lock makes one attempt at the lock of a job. If another instance has it, or this one still has
// it, the error matches [holdfast.ErrHeld], and gocron skips the run. gocron calls it.
func (l *Locker[L]) Lock(ctx context.Context, key string) (lock L, err error) {
	held, err := l.locks.TryLock(ctx, key)
	if err != nil {
		return lock, err
	}
	lock, _ = any(&unlocker{held}).(L) // NewLocker has checked the type
	return lock, nil
}

// Task makes the task of a job that has this name (gocron.WithName) and this Locker. fn runs
// under gocron's context for the job, which ends also when the lock is lost, with a cause that
// matches [holdfast.ErrLost]. If the job has another name or no Locker, the task returns an
// *[holdfast.InvalidError] and fn does not run.
func (l *Locker[L]) Task(name string, fn func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		hold, ok := l.locks.Context(name)
		if !ok {
			return driver.Invalid("Name", driver.Quote(name), "the name of the task's job, and the job must have this Locker")
		}
		ctx, stop := namedlock.Join(hold, ctx)
		defer stop()
		return fn(ctx)
	}
}

// unlocker is the lock of one run.
type unlocker struct{ held *namedlock.Held }

// Unlock ends the run. The lock is released even if ctx has ended: gocron passes the job's
// context, and drops the error. A second Unlock changes nothing, and its error is an
// *[holdfast.InvalidError].
func (u *unlocker) Unlock(ctx context.Context) error { return u.held.Unlock(ctx) }
