package holdfast

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/internal/election"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/settings"
)

// Option configures how a lock is acquired and renewed. An Option of [New] or [Open] is the default
// for all locks of the Client. An Option of a Client's method, a runner, or a constructor of package
// leases or partitions applies only there.
type Option interface {
	ClientOption
	RunnerOption
	// LeasesOption and PartitionsOption do nothing. They make an Option one of these packages, too.
	LeasesOption()
	PartitionsOption()
}

// option is every Option.
type option func(*settings.Config)

func (o option) applyClient(c *engine.Config)   { o(&c.Lock) }
func (o option) applyRunner(c *election.Config) { o(&c.Lock) }
func (o option) LeasesOption()                  {}
func (o option) PartitionsOption()              {}

// ClientOption configures a Client: every [Option], [WithLogger], [WithElapsed] and [WithHook].
type ClientOption interface{ applyClient(*engine.Config) }

type clientOption func(*engine.Config)

func (o clientOption) applyClient(c *engine.Config) { o(c) }

// RunnerOption configures a [LeaderAwareRunner]: every [Option] and the options that return a
// RunnerOption.
type RunnerOption interface{ applyRunner(*election.Config) }

type runnerOption func(*election.Config)

func (o runnerOption) applyRunner(c *election.Config) { o(c) }

// WithTTL sets how long a lease lasts on the backend's clock unless it is renewed. The default
// is 30 s, or the backend's nearest limit if it does not allow 30 s. A dead holder keeps others
// waiting for up to one TTL. If the TTL is shorter than the backend's own fail-over, all leases are
// lost in each fail-over.
func WithTTL(d time.Duration) Option {
	return option(func(c *settings.Config) { c.TTL = settings.Given(d) })
}

// WithGrace sets the time between the loss of a lease that was not renewed, when the hold's context
// ends, and its expiry. The work needs this time to stop, and clock skew between the backend's
// servers may use up part of it. The default is TTL/6.
func WithGrace(d time.Duration) Option {
	return option(func(c *settings.Config) { c.Grace = settings.Given(d) })
}

// WithRenewEvery sets the time between renewals. The default is TTL/3.
func WithRenewEvery(d time.Duration) Option {
	return option(func(c *settings.Config) { c.RenewEvery = settings.Given(d) })
}

// WithRequestTimeout bounds each single backend call. It must be shorter than the grace. The
// default is 60 % of the grace, at most 10 s.
func WithRequestTimeout(d time.Duration) Option {
	return option(func(c *settings.Config) { c.RequestTimeout = settings.Given(d) })
}

// WithPollInterval sets how often a waiter asks the backend if nothing else wakes it. Each wait is
// jittered by a fifth. By default the interval adapts to how the lock has behaved: it is an eighth
// of the time for which the waiter has seen the present holder, between half the backend's
// Limits.Poll (or 5 s if it has none) and three times that; it is 20 s while the backend wakes the
// waiter. Where the backend reads in
// batches, the records of all locks that the Client waits for are read together, and a waiter asks
// only when its lock may be free. After a request that failed, a waiter backs off, for at most this interval if it is set.
func WithPollInterval(d time.Duration) Option {
	return option(func(c *settings.Config) { c.Poll = settings.Given(d) })
}

// WithOwner sets the name that others see as the holder. The default is host/pid. The name proves
// nothing and need not be unique.
func WithOwner(owner string) Option {
	return option(func(c *settings.Config) { c.Owner = &owner })
}

// WithData stores data with the lock when it is acquired. Without this option the previous
// holder's data stay.
func WithData(data []byte) Option {
	data = slices.Clone(data) // the caller may change its slice later
	return option(func(c *settings.Config) { c.Data = data })
}

// WithOverrunHook calls fn when a hold has ended without a release, its work still runs, and
// another may now be granted the lock. The work still runs if the function of Do or the runner
// has not returned, or Release was not called. After a pause of the process that outlasts the lease, the work first has 100 ms
// to stop, or the grace if that is shorter. fn is called at most once for each hold, on a goroutine of its own. A program that
// cannot tolerate an overrun may exit in fn.
func WithOverrunHook(fn func(Event)) Option {
	return option(func(c *settings.Config) { c.Overrun = notify(fn) })
}

// WithSlots lets up to n holders have the lock at once, each in a slot of its own: a semaphore,
// or n leaders of a pool. n is from 1, the default, to 1,000.
//
// Each slot is a lock with a record, a lease and a rising fencing token of its own. The record of
// the first slot has the name itself; the others are NAME#2, NAME#3, … up to NAME#n. [Hold.Slot]
// returns the slot; [Hold.Name] and events have the name of its record. Do not compare tokens of
// different slots: the resource that the lock protects must check the tokens of each slot
// separately. "#2" or a higher number at the end of a lock's name is therefore refused, with an *[InvalidError].
//
// All callers of a name should use the same n. n can be raised at any time. While some use 5 and
// others 3, up to 5 hold the lock, and those with 3 get only the first three slots. Waiters of one
// Client share one queue for the name, whatever their n. While this Client holds all the slots
// that the first waiter may take, the waiters behind it wait too, even if their larger n allows
// another slot.
//
// Waiting costs little where the backend reads in batches (MongoDB): a waiter reads all slots in one call at the
// poll interval. With Azure Blob Storage it asks for each slot at that interval. TryLock makes at
// most one attempt for each slot; if all are held, the error has one of the holders.
//
// Do and Lock with the context of holds of all n slots would deadlock, and fail at once.
// LeaseManager and Partitions have one holder for each name and ignore WithSlots. Adapters refuse it.
func WithSlots(n int) Option {
	return option(func(c *settings.Config) { c.Slots = &n })
}

// WithShared lets any number of holders have the lock at once, up to 1,000, as long as all of them ask with WithShared: they
// read what one holder without it, the writer, may change. Each holder has a lease, a token and a loss of its own.
//
// A reader that asks while a writer waits comes after it, where waiters have an order between processes; on the others
// (files) readers that follow one another without a gap keep a writer waiting. A writer's token is greater than those
// of all readers before it, and a reader's greater than those of all writers before it.
//
// There is no way from one mode to the other. A reader releases the lock and asks for it as the writer; what it has read may
// have changed by then. Lock and Do with the context of a hold of the same name fail at once, in either mode: a waiting
// writer would make both wait forever. Only a writer changes the data of the lock.
//
// A backend that does not know shared locks is an *[InvalidError], before any request. So is WithShared together with
// WithSlots or WithData, for several names, and for runners, LeaseManager, Partitions and adapters.
func WithShared() Option {
	return option(func(c *settings.Config) { c.Shared = true })
}

// WithObserver calls fn for events: as an option of a Client for those of all its locks, otherwise
// for those of the one lock, runner, LeaseManager or Partitions. fn is called for one event at a
// time, in order, and never delays a renewal. If fn is slow, up to 1,024 events wait for it, and 4
// more for each name of the Client's LeaseManagers. Further events are dropped; see
// [Event].Dropped. A call that panics, or ends its goroutine with [runtime.Goexit], is logged, and the next
// event follows.
//
// Give each Client an option of its own: the Shutdown of a Client also waits for events that
// another one has given to the same option.
func WithObserver(fn func(Event)) Option {
	observer := event.NewObserver(notify(fn)) // one, whatever the option is given to
	return option(func(c *settings.Config) { c.Observers = append(slices.Clip(c.Observers), observer) })
}

// WithLogger sets the logger for events; the default is [slog.Default]. The levels are:
//
//   - error: an overrun
//   - warn: a loss or a failure
//   - info: an election, a step-down, acquiring a lock again after its loss, and waiting for half a
//     minute for a lock that this process itself holds
//   - debug: everything else
func WithLogger(logger *slog.Logger) ClientOption {
	return clientOption(func(c *engine.Config) { c.Logger, c.NilLogger = logger, logger == nil })
}

// WithElapsed replaces the clock of the local deadlines. It is for tests: under testing/synctest,
// use a function that returns the bubble's time, such as
// func() time.Duration { return time.Since(start) }. now must be fast and must not call the Client.
// The default clock counts elapsed time including suspend, where the system has such a clock.
func WithElapsed(now func() time.Duration) ClientOption {
	return clientOption(func(c *engine.Config) { c.Elapsed, c.NilElapsed = now, now == nil })
}

// Backoff is a growing delay between attempts: about Initial at first, doubling up to Max, each
// changed by up to a quarter at random.
type Backoff struct{ Initial, Max time.Duration }

// WithRestart makes a runner's Run continue when its task returns an error while leading. The lock
// is released, so that another instance may succeed, and after the backoff this instance campaigns
// again. Without this option Run returns the error. After leadership that lasted longer than Max
// the backoff starts with Initial again.
func WithRestart(b Backoff) RunnerOption {
	return runnerOption(func(c *election.Config) { c.Restart = (*settings.Backoff)(&b) })
}

// WithHealthCheck calls fn before each campaign, and at the interval every while this instance
// leads. The time limit of each call is also every. If fn fails, panics, ends its goroutine
// ([runtime.Goexit]) or takes longer, an
// EventError says why (with the stack of a panic), and leadership is given up as after a stall; see
// [WithStallTimeout]. This instance campaigns again after the cool-down, when fn succeeds. Calls
// never overlap. fn must return when its context ends: the client's Shutdown waits for it.
func WithHealthCheck(every time.Duration, fn func(ctx context.Context) error) RunnerOption {
	return runnerOption(func(c *election.Config) { c.HealthEvery, c.Health = settings.Given(every), fn })
}

// WithStallTimeout gives leadership up when the task has not called [Heartbeat] for d. Otherwise a
// leader that hangs would keep its lease forever. The task's context ends and the lease is no
// longer renewed, so others take over when it expires, even if the task never returns. In that case
// an EventOverrun is reported. The watchdog also watches a task that was asked to stop (by a
// canceled context, StepDown or Close) until it returns. On Linux, d starts again after a suspend of the machine.
func WithStallTimeout(d time.Duration) RunnerOption {
	return runnerOption(func(c *election.Config) { c.Stall = settings.Given(d) })
}

// WithCoolDown sets how long a runner that gave leadership up waits before it campaigns again, so
// that others go first. The time counts from the release of the lock. The default is one TTL.
func WithCoolDown(d time.Duration) RunnerOption {
	return runnerOption(func(c *election.Config) { c.CoolDown = settings.Given(d) })
}

// WithMinHold keeps the lock for at least d after it was acquired, even if the task succeeds
// sooner. So an instance whose clock is late does not run the same job again. Shutdown, Close and
// StepDown do not wait for it. The default is 0.
func WithMinHold(d time.Duration) RunnerOption {
	return runnerOption(func(c *election.Config) { c.MinHold = settings.Given(d) })
}

// WithIdleLimit sets how long a runner stays leader after the last call of RunTaskOnLeader has
// ended. If the process does not call again in that time, another may lead. The default is two
// TTLs.
func WithIdleLimit(d time.Duration) RunnerOption {
	return runnerOption(func(c *election.Config) { c.IdleLimit = settings.Given(d) })
}

// WithHook gives a Client a hook for metrics and traces. The module otelholdfast has one for OpenTelemetry. Without a
// hook the Client measures nothing.
func WithHook(hook telemetry.Hook) ClientOption {
	return clientOption(func(c *engine.Config) { c.Hook, c.NilHook = hook, hook == nil })
}
