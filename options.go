package holdfast

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/election"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/settings"
)

// Option configures how a lock is taken and kept. Given to [New] or [Open] it is the default
// for all locks of the Client. Given to a method of the Client, to a runner, or to the
// constructors of packages leases and partitions, it applies there.
type Option func(*settings.Config)

func (o Option) apply(c *settings.Config) {
	if o == nil {
		c.NilOption = true
		return
	}
	o(c)
}

func (o Option) applyClient(c *engine.Config)   { o.apply(&c.Lock) }
func (o Option) applyRunner(c *election.Config) { o.apply(&c.Lock) }

// ApplyLeases makes an Option one of package leases.
func (o Option) ApplyLeases(c *settings.Leases) { o.apply(&c.Lock) }

// ApplyPartitions makes an Option one of package partitions.
func (o Option) ApplyPartitions(c *settings.Partitions) { o.apply(&c.Lock) }

// ClientOption configures a Client: every [Option], [WithLogger] and [WithElapsed].
type ClientOption interface{ applyClient(*engine.Config) }

type clientOption func(*engine.Config)

func (o clientOption) applyClient(c *engine.Config) { o(c) }

// RunnerOption configures a [LeaderAwareRunner]: every [Option] and the options that return a
// RunnerOption.
type RunnerOption interface{ applyRunner(*election.Config) }

type runnerOption func(*election.Config)

func (o runnerOption) applyRunner(c *election.Config) { o(c) }

// WithTTL sets how long a lease lasts on the backend's clock unless it is renewed. The default
// is 30 s, or the backend's limit if that is nearer. A dead holder keeps others waiting for up
// to one TTL. A TTL shorter than the backend's own fail-over loses every lease in it.
func WithTTL(d time.Duration) Option {
	return func(c *settings.Config) { c.TTL = settings.Given(d) }
}

// WithGrace sets how long before the lease can expire the hold's context ends if it was not
// renewed. The work needs this time to stop, and clock skew between the backend's servers may
// use up part of it. The default is TTL/6.
func WithGrace(d time.Duration) Option {
	return func(c *settings.Config) { c.Grace = settings.Given(d) }
}

// WithRenewEvery sets the time between renewals. The default is TTL/3.
func WithRenewEvery(d time.Duration) Option {
	return func(c *settings.Config) { c.RenewEvery = settings.Given(d) }
}

// WithRequestTimeout bounds each single backend call. It must be shorter than the grace. The
// default is 60 % of the grace, at most 10 s.
func WithRequestTimeout(d time.Duration) Option {
	return func(c *settings.Config) { c.RequestTimeout = settings.Given(d) }
}

// WithPollInterval sets how often a waiter asks the backend when nothing else wakes it. Each
// wait is jittered by a fifth. The default is the backend's Limits.Poll, or 5 s; while the
// backend's Watcher works, 15 s. Where the backend reads in batches, the records of all locks
// that the Client waits for are read together, and a waiter asks only when it may get its lock.
func WithPollInterval(d time.Duration) Option {
	return func(c *settings.Config) { c.Poll = settings.Given(d) }
}

// WithOwner sets the name that others see as the holder. The default is host/pid. It proves
// nothing and need not be unique.
func WithOwner(owner string) Option {
	return func(c *settings.Config) { c.Owner = &owner }
}

// WithData stores data with the lock when it is taken. Without it the previous holder's data
// stay.
func WithData(data []byte) Option {
	data = slices.Clone(data) // the caller may change its own
	return func(c *settings.Config) { c.Data = data }
}

// WithOverrunHook calls fn when a hold has ended, its work still runs, and another may now be
// granted the lock: the function given to Do or the runner has not returned, or Release was not
// called. fn is called once for a hold, on a goroutine of its own. A program that cannot
// tolerate an overrun may exit in fn.
func WithOverrunHook(fn func(Event)) Option {
	return func(c *settings.Config) { c.Overrun = notify(fn) }
}

// WithSlots lets up to n holders have the lock at once, each in a slot of its own: a semaphore,
// or n leaders of a pool. n is from 1, the default, to 1,000.
//
// Each slot is a lock with a record, a lease and a rising fencing token of its own. The first
// is the name itself; the others are NAME#2, NAME#3, … up to NAME#n. [Hold.Slot] returns the
// slot, [Hold.Name] and events name its record. Tokens of different slots do not compare: what
// the lock protects must compare the tokens of each slot separately. Names of other locks must
// not end in "#2" and the like.
//
// All callers of a name should give the same n. n can be raised at any time. While some give 5
// and others 3, up to 5 hold the lock, and those with 3 get the first three slots only. Waiters
// of one Client share one queue for the name, whatever their n. While this Client holds all the
// slots that the first waiter may take, the waiters behind it wait too, even if their larger n
// would leave them a slot.
//
// Waiting costs little where the backend reads in batches and wakes waiters (MongoDB). On others
// (Azure Blob Storage) a waiter asks for each slot at the poll interval. TryLock tries each slot
// once at most; if all are held, the error has one of the holders.
//
// Do and Lock with the context of holds of all n slots would deadlock, and fail at once.
// LeaseManager and Partitions have one holder for each name and ignore WithSlots.
func WithSlots(n int) Option {
	return func(c *settings.Config) { c.Slots = &n }
}

// WithObserver calls fn for every event of the Client, or of the one lock, runner, LeaseManager
// or Partitions that it is given to. fn is called for one event at a time, in order, and never
// delays a lease. An observer that falls more than 1,024 events behind, and 4 more for each name
// of the Client's LeaseManagers, misses some; see [Event].Dropped.
func WithObserver(fn func(Event)) Option {
	return func(c *settings.Config) { c.Observers = append(slices.Clip(c.Observers), notify(fn)) }
}

// WithLogger sets where events are logged; the default is [slog.Default]. Losses and failures
// are warnings, overruns errors. These are info: an election, a step-down, acquiring a lock
// again after its loss, and waiting for half a minute for a hold of this process itself. All
// other successes are debug.
func WithLogger(logger *slog.Logger) ClientOption {
	return clientOption(func(c *engine.Config) { c.Logger, c.NilLogger = logger, logger == nil })
}

// WithElapsed replaces the clock that local deadlines go by. It is for tests: under
// testing/synctest, give a function of the bubble's time, such as
// func() time.Duration { return time.Since(start) }. It must be quick and must not call the
// Client. The default counts elapsed time including suspend, where the system has such a clock.
func WithElapsed(now func() time.Duration) ClientOption {
	return clientOption(func(c *engine.Config) { c.Elapsed, c.NilElapsed = now, now == nil })
}

// Backoff is a growing delay between attempts: about Initial at first, doubling up to Max, each
// changed by up to a quarter at random.
type Backoff struct{ Initial, Max time.Duration }

// WithRestart makes a runner's Run continue when its task returns an error while leading: the
// lock is released, so that another instance may succeed, and after the backoff this one
// campaigns again. Without it Run returns the error. The backoff starts afresh after leadership
// that lasted longer than Max.
func WithRestart(b Backoff) RunnerOption {
	return runnerOption(func(c *election.Config) { c.Restart = (*settings.Backoff)(&b) })
}

// WithHealthCheck calls fn before each campaign, and at this interval while this instance leads.
// Each call has that long. If fn fails, panics or takes longer, an EventError says why (with the
// stack of a panic), and leadership is given up as after a stall. This instance campaigns again
// after the cool-down, once fn succeeds. Calls never overlap. fn must respect its context: the
// client's Shutdown waits for it.
func WithHealthCheck(every time.Duration, fn func(ctx context.Context) error) RunnerOption {
	return runnerOption(func(c *election.Config) { c.HealthEvery, c.Health = settings.Given(every), fn })
}

// WithStallTimeout gives leadership up when the task has not called [Heartbeat] for d: a leader
// that hangs would otherwise keep its lease forever. The task's context ends and the lease is no
// longer renewed, so that others take over when it expires even if the task never returns; an
// EventOverrun is then reported. A task that was asked to stop, by a canceled context, StepDown
// or Close, is watched until it returns.
func WithStallTimeout(d time.Duration) RunnerOption {
	return runnerOption(func(c *election.Config) { c.Stall = settings.Given(d) })
}

// WithCoolDown sets how long a runner that stepped down lets others go first, counted from the
// release of the lock. The default is one TTL.
func WithCoolDown(d time.Duration) RunnerOption {
	return runnerOption(func(c *election.Config) { c.CoolDown = settings.Given(d) })
}

// WithMinHold keeps the lock for at least d after it was acquired, even if the task succeeds
// sooner, so that an instance whose clock is late does not run the same job again. Shutdown,
// Close and StepDown do not wait for it. The default is 0.
func WithMinHold(d time.Duration) RunnerOption {
	return runnerOption(func(c *election.Config) { c.MinHold = settings.Given(d) })
}

// WithIdleLimit sets how long RunTaskOnLeader keeps leadership after its last call has ended.
// Then the process has stopped calling, and another may lead. The default is two TTLs.
func WithIdleLimit(d time.Duration) RunnerOption {
	return runnerOption(func(c *election.Config) { c.IdleLimit = settings.Given(d) })
}
