package holdfast

import (
	"log/slog"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// ClientOption configures a Client; see New and Open.
type ClientOption interface{ applyClient(*clientConfig) }

// RunnerOption configures a LeaderAwareRunner.
type RunnerOption interface{ applyRunner(*runnerConfig) }

// ManagerOption configures a LeaseManager.
type ManagerOption interface{ applyManager(*managerConfig) }

// Option configures how a lock is taken and kept. Given to New or Open it is the
// default for all locks of the Client; given to Do, Lock, TryLock, a runner or
// a LeaseManager it applies there.
type Option interface {
	ClientOption
	RunnerOption
	ManagerOption
	PartitionsOption
	applyLock(*lockConfig)
}

type lockOption func(*lockConfig)

func (o lockOption) applyLock(c *lockConfig)       { o(c) }
func (o lockOption) applyClient(c *clientConfig)   { o(&c.lock) }
func (o lockOption) applyRunner(c *runnerConfig)   { o(&c.lock) }
func (o lockOption) applyManager(c *managerConfig) { o(&c.lock) }

type clientOption func(*clientConfig)

func (o clientOption) applyClient(c *clientConfig) { o(c) }

type runnerOption func(*runnerConfig)

func (o runnerOption) applyRunner(c *runnerConfig) { o(c) }

type clientConfig struct {
	lock      lockConfig
	logger    *slog.Logger
	observers []func(Event)
	elapsed   func() time.Duration
}

// WithTTL sets how long a lease lasts on the backend's clock unless renewed. The
// default is 30 s, or the backend's limit if that is nearer. A dead holder keeps
// others waiting for up to one TTL; a TTL shorter than the backend's own fail-over
// loses every lease in it.
func WithTTL(d time.Duration) Option {
	return lockOption(func(c *lockConfig) { c.ttl = given(d) })
}

// WithGrace sets how long before the lease can expire the hold's context ends if
// it was not renewed: the time its work has to stop, and what clock skew
// between the backend's servers may use up. The default is TTL/6.
func WithGrace(d time.Duration) Option {
	return lockOption(func(c *lockConfig) { c.grace = given(d) })
}

// WithRenewEvery sets the time between renewals. The default is TTL/3.
func WithRenewEvery(d time.Duration) Option {
	return lockOption(func(c *lockConfig) { c.renewEvery = given(d) })
}

// WithTryTimeout bounds each single backend call. It must be shorter than the
// grace. The default is 60 % of it, at most 10 s.
func WithTryTimeout(d time.Duration) Option {
	return lockOption(func(c *lockConfig) { c.tryTimeout = given(d) })
}

// WithPollInterval sets how often a waiter asks when nothing else wakes it; each
// wait is jittered by a fifth. The default is the backend's Limits.Poll, or 5 s;
// while the backend's Watcher is at work, 15 s. Where the backend reads in batches, the
// records of all that the Client waits for are read together, and a waiter asks only
// when it may get the lock.
func WithPollInterval(d time.Duration) Option {
	return lockOption(func(c *lockConfig) { c.poll = given(d) })
}

// WithOwner sets the name that others see as the holder. The default is host/pid.
// It proves nothing and need not be unique.
func WithOwner(owner string) Option {
	return lockOption(func(c *lockConfig) { c.owner = &owner })
}

// WithData stores data with the lock when it is taken. Without it the data of the
// previous holder stays.
func WithData(data []byte) Option {
	data = slices.Clone(data) // the caller may change its own
	return lockOption(func(c *lockConfig) { c.data = data })
}

// WithOverrunHook has fn called, on a goroutine of its own, once for a hold, when a hold has ended
// and its work still runs at the moment another may be granted the lock: the
// function given to Do or the runner has not returned, or Release was not called.
// A program for which that must not be may exit here.
func WithOverrunHook(fn func(Event)) Option {
	return lockOption(func(c *lockConfig) { c.overrun = fn })
}

// WithLogger sets where events are logged; the default is slog.Default. Losses and
// failures are warnings, overruns errors. An election, a step-down, acquiring a lock again
// after its loss, and waiting for half a minute for a hold of this process itself are info;
// what else goes well is debug.
func WithLogger(logger *slog.Logger) ClientOption {
	return clientOption(func(c *clientConfig) { c.logger = logger })
}

// WithElapsed replaces the clock that local deadlines go by. It is for tests: under
// testing/synctest, give a function of the bubble's time, such as
// func() time.Duration { return time.Since(start) }. It must be quick and must not call
// the Client. The default counts elapsed
// time including suspend, where the system has such a clock.
func WithElapsed(now func() time.Duration) ClientOption {
	return clientOption(func(c *clientConfig) { c.elapsed = now })
}

// ObserverOption is what WithObserver returns: an option for a Client, a runner or
// a LeaseManager.
type ObserverOption func(Event)

func (o ObserverOption) applyClient(c *clientConfig)   { c.observers = append(c.observers, o) }
func (o ObserverOption) applyRunner(c *runnerConfig)   { c.observers = append(c.observers, o) }
func (o ObserverOption) applyManager(c *managerConfig) { c.observers = append(c.observers, o) }

// WithObserver has fn told of every event of the Client, or of one runner, LeaseManager
// or Partitions. It is called for one event at a time, in order, off the paths that keep
// leases; one that falls more than 1,024 events behind, and 4 more for each name of the
// Client's LeaseManagers, misses some (see Event.Dropped).
func WithObserver(fn func(Event)) ObserverOption { return fn }

var errNilOption = driver.Invalid("option", "nil", "an option with a value")

func hasNil(fns []func(Event)) bool {
	return slices.ContainsFunc(fns, func(fn func(Event)) bool { return fn == nil })
}
