// Package cronlock makes jobs of github.com/robfig/cron/v3, and of other schedulers that call a
// func(), run once in a cluster, however many instances have the same schedule. It needs no
// dependency: cron's Job is a type parameter.
//
//	jobs, err := cronlock.New(client, time.Minute)
//	report, err := jobs.Func("report", func(ctx context.Context) { … })
//	_, err = c.AddFunc("0 3 * * *", report)
//
// A job that exists already can be wrapped: see [Wrapper]. It does not see a loss of its lock,
// since it has no context. [Jobs.Func] is better.
//
// # The minimum hold
//
// Clocks of machines differ. If a job is over, and its lock released, before a machine whose
// clock is late begins, that machine runs the job again. So each lock is kept for a minimum time,
// counted from when it was taken. Choose it longer than the clocks differ, and shorter than the
// period of the job: a minute suits a job that runs every hour. Jobs with short periods can have
// Jobs of their own, which cost nothing until they run. With "@every 1m" the period counts from
// each machine's start. A minimum hold of 50 s makes the machines run that job about once a
// minute, together.
//
// # What the lock guarantees
//
// At most one machine runs a job at a time, and none begins it within the minimum hold of a run.
// The lock is renewed while the job runs, and released after it has returned or panicked. The
// Client's Shutdown ends the contexts of running jobs, waits for them, and ends the minimum hold
// of those that have returned: another machine may then run the job in the same period. A machine
// that crashes keeps its locks for one TTL. A run that was skipped, because the lock was held or
// the backend failed, is not made up for.
package cronlock

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/internal/namedlock"
	"github.com/holdfast-go/holdfast/driver"
)

// Jobs makes jobs that run under a lock. All methods are safe for concurrent use.
type Jobs struct{ locks *namedlock.Set }

// New makes Jobs that keep each lock for at least minHold, which must be positive; the package
// documentation says how to choose it. It starts nothing, and the Client's Shutdown ends all that
// the jobs do with their locks.
func New(client *holdfast.Client, minHold time.Duration, opts ...holdfast.Option) (*Jobs, error) {
	if err := namedlock.CheckMinHold(minHold); err != nil {
		return nil, err
	}
	locks, err := namedlock.New(client, minHold, opts...)
	if err != nil {
		return nil, err
	}
	return &Jobs{locks}, nil
}

// Func makes a function for cron.AddFunc. It runs fn if it gets the lock of this name at once, on
// the caller's goroutine; a panic of fn reaches the caller. If the lock is held, it does nothing.
// If the backend fails, it does nothing either, and the Client reports the failure to its
// observers and its log.
//
// fn's context ends if the lock is lost, before another machine can run the job, and on the
// Client's Shutdown. [holdfast.TokenFromContext] finds the fencing token in it. The error of Func
// is an *[holdfast.InvalidError] if the backend does not allow the name.
func (j *Jobs) Func(name string, fn func(ctx context.Context)) (func(), error) {
	if fn == nil {
		return nil, driver.Invalid("fn", "nil", "a function")
	}
	if err := j.locks.CheckName(name); err != nil {
		return nil, err
	}
	return func() { j.run(name, fn) }, nil
}

func (j *Jobs) run(name string, fn func(ctx context.Context)) {
	ctx := context.Background()
	held, err := j.locks.TryLock(ctx, name)
	if err != nil {
		j.locks.ReportRefusal(name, err) // cron takes no error
		return
	}
	defer func() { _ = held.Unlock(ctx) }() // a loss and a failure are reported
	fn(held.Context())
}

// Job is what cron's interface Job asks for.
type Job interface{ Run() }

// Wrapper makes a wrapper for cron.NewChain and cron.WithChain: it runs the wrapped job as
// [Jobs.Func] runs its function. J is cron's interface Job. One wrapper has one lock, so a chain
// that is used for several jobs has them exclude each other.
//
//	wrapper, err := cronlock.Wrapper[cron.Job](jobs, "report")
//	_, err = c.AddJob("0 3 * * *", cron.NewChain(wrapper).Then(job))
func Wrapper[J Job](jobs *Jobs, name string) (func(J) J, error) {
	if jobs == nil {
		return nil, driver.Invalid("jobs", "nil", "Jobs")
	}
	if _, ok := any(job(nil)).(J); !ok {
		return nil, driver.Invalid("J", fmt.Sprintf("%T", (*J)(nil))[1:], "an interface with the method Run() alone")
	}
	if err := jobs.locks.CheckName(name); err != nil {
		return nil, err
	}
	return func(inner J) J {
		outer, _ := any(job(func() { jobs.run(name, func(context.Context) { inner.Run() }) })).(J) // checked above
		return outer
	}, nil
}

// job is a function as a Job.
type job func()

// Run calls the function.
func (f job) Run() { f() }
