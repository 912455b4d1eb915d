package gocronlock

import (
	"context"
	"sync"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/internal/namedlock"
	"github.com/holdfast-go/holdfast/driver"
)

// Elector is a gocron Elector, for WithDistributedElector: the instance that leads runs all jobs
// of its scheduler. It campaigns in the background until Close or the Client's Shutdown. All
// methods are safe for concurrent use.
//
// Jobs that are made with [Elector.Task] see a loss of leadership, and leadership is released
// only after they have returned. Of other jobs the Elector knows nothing: stop the scheduler
// before Close and Shutdown, and let them watch [Elector.IsLeader].
type Elector struct {
	name    string
	runner  *holdfast.LeaderAwareRunner
	decided func()        // closes known
	known   chan struct{} // closed when the first attempt is over
	done    chan struct{} // closed when the campaign is over

	mu      sync.Mutex
	leading *leadership // nil while another leads
}

// leadership is one time of leading.
type leadership struct {
	ctx  context.Context
	jobs sync.WaitGroup
}

// NewElector makes an Elector and begins to campaign. The options are those of a
// [holdfast.LeaderAwareRunner]; WithStallTimeout does not fit, since nothing sends heartbeats
// between jobs.
func NewElector(client *holdfast.Client, name string, opts ...holdfast.RunnerOption) (*Elector, error) {
	runner, err := holdfast.NewLeaderAwareRunner(client, name, opts...)
	if err != nil {
		return nil, err
	}
	var locks []holdfast.Option
	for _, o := range opts {
		if o, ok := o.(holdfast.Option); ok {
			locks = append(locks, o)
		}
	}
	if err := namedlock.CheckOptions(client, locks); err != nil { // each leader of a pool would run all jobs
		return nil, err
	}
	e := &Elector{name: name, runner: runner, known: make(chan struct{}), done: make(chan struct{})}
	e.decided = sync.OnceFunc(func() { close(e.known) })
	go e.campaign()
	return e, nil
}

// campaign ends with Close or the Client's Shutdown. Failures are reported to the observers.
func (e *Elector) campaign() {
	defer close(e.done)
	// The first attempt does not wait, so that IsLeader soon has an answer.
	_, _ = e.runner.RunTaskOnLeader(context.Background(), e.lead)
	e.decided()
	_ = e.runner.Run(context.Background(), e.lead)
}

// lead is the runner's task. It returns when leadership has ended and its jobs have returned.
func (e *Elector) lead(ctx context.Context) error {
	l := &leadership{ctx: ctx}
	e.set(l)
	e.decided()
	<-ctx.Done()
	e.set(nil)
	l.jobs.Wait() // Promise 7: the runner releases the lock only after this function has returned.
	return context.Cause(ctx)
}

func (e *Elector) set(l *leadership) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leading = l
}

// IsLeader returns nil if this instance leads now. It does no I/O, but waits for the result of
// the first attempt. Otherwise the error matches [holdfast.ErrHeld]. gocron calls it before each
// run.
func (e *Elector) IsLeader(ctx context.Context) error {
	select {
	case <-e.known:
	case <-ctx.Done():
		return driver.Errorf("elector %q: %w", e.name, ctx.Err())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leading == nil || !e.runner.IsLeader() {
		return e.notLeader()
	}
	return nil
}

func (e *Elector) notLeader() error {
	return driver.Errorf("elector %q: this instance does not lead: %w", e.name, holdfast.ErrHeld)
}

// Task makes a task of a job. fn runs under gocron's context for the job, which ends also when
// leadership does, with its cause. If leadership was lost between gocron's question and the run,
// fn does not run and the error matches [holdfast.ErrHeld].
func (e *Elector) Task(fn func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		e.mu.Lock()
		l := e.leading
		leads := l != nil && l.ctx.Err() == nil
		if leads {
			l.jobs.Add(1)
		}
		e.mu.Unlock()
		if !leads {
			return e.notLeader()
		}
		defer l.jobs.Done()
		ctx, stop := namedlock.Join(l.ctx, ctx)
		defer stop()
		return fn(ctx)
	}
}

// Close gives leadership up and ends the campaign. The contexts of running jobs end, and the lock
// is released when they have returned. Close waits for that. If ctx ends before, the lease is no
// longer renewed, so that it expires although a job still runs, and the error says so.
func (e *Elector) Close(ctx context.Context) error {
	err := e.runner.Close(ctx)
	select {
	case <-e.done:
	case <-ctx.Done():
	}
	return err
}
