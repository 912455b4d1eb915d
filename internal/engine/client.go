package engine

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/internal/batchread"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/internal/dispatch"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/renewal"
	"github.com/holdfast-go/holdfast/internal/settings"
	"github.com/holdfast-go/holdfast/internal/sightings"
	"github.com/holdfast-go/holdfast/internal/worker"
)

// Client has what all locks of one holdfast.Client share.
type Client struct {
	locker         driver.Locker  // the driver, or what measures its calls
	original       driver.Locker  // the driver
	hook           telemetry.Hook // or nil
	info           driver.Info
	capabilities   driver.Capabilities
	defaults       settings.Config      // the options given to New
	requestTimeout time.Duration        // by default
	now            func() time.Duration // elapsed time
	sightings      *sightings.Memory
	queuedNames    atomic.Int64 // that acquisitions wait for in the backend's queue

	renewer  *renewal.Renewer
	queues   queues
	lanes    [2]lane // by Mode
	wakeups  wakeups
	notices  event.Repeats // of callers that wait
	releases *releases
	cleanups *dispatch.Schedule[*cleanup]
	cleaners worker.Group // the running cleanups

	work       worker.Group // calls that acquire, and every hold until it is released
	background worker.Group // cleanups, releases by Shutdown
	checks     worker.Group // calls of runners' health checks
	runners    worker.Group // their other goroutines
	observers  observers    // the running ones, and what reports events to them

	closing    context.Context // ends, with cause.ErrShutdown, when Shutdown begins
	endClosing context.CancelCauseFunc
	base       context.Context // ends when Shutdown gives up or is done; background calls descend from it
	endBase    context.CancelFunc

	mu           sync.Mutex
	holds        map[*Hold]struct{} // not released yet
	participants map[Participant]struct{}

	shutdownBegun atomic.Bool
	shutdownDone  chan struct{} // closed when Shutdown is done
	shutdownErr   error         // readable once shutdownDone is closed
}

// Participant is a product that Shutdown stops and waits for.
type Participant interface {
	// Stop begins to release what the participant holds. The contexts of its holds end with cause.
	Stop(cause error)
	// Finish waits for the participant's goroutines, after all holds were released or given up.
	Finish(ctx context.Context) error
}

// Config is what New needs besides the Locker.
type Config struct {
	Lock    settings.Config // its observers are notified of every event of the Client
	Logger  *slog.Logger    // nil: slog.Default
	Elapsed func() time.Duration
	Hook    telemetry.Hook // or nil

	NilLogger, NilElapsed, NilHook bool // an option set them to nil
}

// New makes a Client for a backend.
func New(locker driver.Locker, cfg Config) (*Client, error) {
	if cfg.NilLogger || cfg.NilElapsed || cfg.NilHook {
		return nil, settings.ErrNilOption
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Elapsed == nil {
		cfg.Elapsed = clock.Elapsed
	}
	if cfg.Lock.Owner == nil {
		owner := defaultOwner()
		cfg.Lock.Owner = &owner
	}
	info := locker.Info()
	s, err := cfg.Lock.Resolve(info.Limits)
	if err == nil {
		err = s.CheckMode(info)
	}
	if err != nil {
		return nil, err
	}
	original := locker
	cfg.Hook = guardHook(cfg.Hook, cfg.Logger, cfg.Elapsed)
	locker = measureCalls(original, cfg.Hook, cfg.Elapsed)
	all := append([]*event.Observer{event.NewObserver(logTo(cfg.Logger))}, cfg.Lock.Observers...)
	cfg.Lock.Observers = nil
	c := &Client{
		locker: locker, original: original, hook: cfg.Hook, info: info, capabilities: locker.Capabilities(),
		defaults: cfg.Lock, requestTimeout: s.RequestTimeout, now: cfg.Elapsed, sightings: sightings.New(cfg.Elapsed),
		renewer:   renewal.New(locker, cfg.Elapsed, cfg.Logger, cfg.Hook != nil),
		observers: observers{all: all, logger: cfg.Logger, hook: cfg.Hook},
		holds:     map[*Hold]struct{}{}, participants: map[Participant]struct{}{},
		shutdownDone: make(chan struct{}),
	}
	if c.capabilities.Waker != nil {
		c.capabilities.Waker = checkedWaker{c.capabilities.Waker, &c.observers}
	}
	c.cleanups = newCleanups(c)
	c.closing, c.endClosing = context.WithCancelCause(context.Background())
	c.base, c.endBase = context.WithCancel(context.Background())
	c.releases = newReleases(c.base, locker)
	for i := range c.lanes {
		c.lanes[i].begin(c.closing, c.base, driver.NewWaiterID(), c.capabilities, c.now, s.RequestTimeout)
	}
	return c, nil
}

// Settings resolves and checks the options of one lock.
func (c *Client) Settings(name string, cfg settings.Config) (settings.Settings, error) {
	s, err := cfg.Resolve(c.info.Limits)
	if err != nil {
		return s, err
	}
	if err := s.CheckMode(c.info); err != nil {
		return s, err
	}
	return s, ValidateSlots(name, s.Slots, c.info.Limits)
}

// EmitTo returns a function that reports events to the Client's observers, and to these.
func (c *Client) EmitTo(observers []*event.Observer) Emit { return c.observers.emitTo(observers) }

// Inspect reads a lock's record once.
func (c *Client) Inspect(ctx context.Context, name string) (driver.Record, error) {
	if err := cause.Check(ctx); err != nil {
		return driver.Record{}, err
	}
	if err := driver.ValidateName(name, c.info.Limits); err != nil {
		return driver.Record{}, err
	}
	record, err := c.inspect(ctx, name, c.requestTimeout)
	if err == nil {
		record.Name = name // a driver may leave it out
	}
	return record, err
}

func (c *Client) inspect(ctx context.Context, name string, limit time.Duration) (driver.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return c.locker.Inspect(ctx, name)
}

// HolderOf returns the record of the first slot that is held, and if none is, that of the first
// slot.
func (c *Client) HolderOf(ctx context.Context, name string, s settings.Settings) (first driver.Record, err error) {
	if err := cause.Check(ctx); err != nil {
		return driver.Record{}, err
	}
	names := make([]string, s.Slots)
	for slot := range names {
		names[slot] = slotName(name, slot)
	}
	inspect := func(slot int) (driver.Record, error) { return c.Inspect(ctx, names[slot]) }
	if inspector := c.capabilities.BatchInspector; inspector != nil && s.Slots > 1 {
		limited, cancel := context.WithTimeout(ctx, s.RequestTimeout)
		defer cancel()
		records, errs := batchread.Inspect(limited, inspector, c.lanes[driver.Exclusive].waiter, names)
		inspect = func(slot int) (driver.Record, error) { return records[slot], errs[slot] }
	}
	for slot := range names {
		r, err := inspect(slot)
		if err != nil || r.State == driver.StateHeld {
			return r, err
		}
		if slot == 0 {
			first = r
		}
	}
	return first, nil
}

// List yields the records whose names begin with prefix.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	if err := cause.Check(ctx); err != nil {
		return func(yield func(driver.Record, error) bool) { yield(driver.Record{}, err) }
	}
	if c.capabilities.Lister == nil {
		return func(yield func(driver.Record, error) bool) {
			yield(driver.Record{}, driver.Errorf("list: this backend cannot list its locks: %w", errors.ErrUnsupported))
		}
	}
	return c.capabilities.Lister.List(ctx, prefix)
}

// Break makes the backend refuse the present holder's renewals.
func (c *Client) Break(ctx context.Context, name string, target driver.BreakTarget) error {
	return c.breakLease(ctx, driver.Breaker.Break, name, target)
}

// BreakNow frees the lock at once.
func (c *Client) BreakNow(ctx context.Context, name string, target driver.BreakTarget) error {
	return c.breakLease(ctx, driver.Breaker.BreakNow, name, target)
}

// breakLease calls one of the two methods of the driver.
func (c *Client) breakLease(ctx context.Context, method func(driver.Breaker, context.Context, string, driver.BreakTarget) error,
	name string, target driver.BreakTarget) error {
	if err := cause.Check(ctx); err != nil {
		return err
	}
	if err := driver.ValidateBreak(name, target, c.info.Limits); err != nil {
		return err
	}
	if c.capabilities.Breaker == nil {
		return driver.Errorf("break %q: this backend cannot break leases: %w", name, errors.ErrUnsupported)
	}
	ctx, cancel := context.WithTimeout(ctx, c.requestTimeout)
	defer cancel()
	return method(c.capabilities.Breaker, ctx, name, target)
}

// The rest is what products need of a Client. Its fields are not exported, since holdfast.Client
// has the same fields.

// Locker returns the driver.
func (c *Client) Locker() driver.Locker { return c.original }

// Info returns what the backend declares.
func (c *Client) Info() driver.Info { return c.info }

// Watches reports whether the backend's Waker also wakes those that have no position in a queue.
func (c *Client) Watches() bool { return c.capabilities.Waker != nil && !c.info.WakesOnlyQueue }

// Capabilities returns the backend's capabilities.
func (c *Client) Capabilities() driver.Capabilities { return c.capabilities }

// Defaults returns the options given to New.
func (c *Client) Defaults() settings.Config { return c.defaults }

// Now reads the elapsed-time clock.
func (c *Client) Now() time.Duration { return c.now() }

// Sightings returns what the Client remembers of holders.
func (c *Client) Sightings() *sightings.Memory { return c.sightings }

// Work returns the group of the calls that acquire, and of every hold until it is released.
// Shutdown waits for it first.
func (c *Client) Work() *worker.Group { return &c.work }

// Checks returns the group of the calls of health checks. Shutdown waits for it after Work.
func (c *Client) Checks() *worker.Group { return &c.checks }

// Runners returns the group of the goroutines of runners that end with their holds. Shutdown waits for it after Checks.
func (c *Client) Runners() *worker.Group { return &c.runners }

// Closing returns a context that ends, with cause.ErrShutdown, when Shutdown begins.
func (c *Client) Closing() context.Context { return c.closing }

// Base returns a context that ends when Shutdown gives up or is done. Calls in the background
// descend from it.
func (c *Client) Base() context.Context { return c.base }

// AddNames changes the number of names that LeaseManagers manage: for each, an observer may fall a
// few more events behind.
func (c *Client) AddNames(n int) { c.observers.names.Add(int64(n)) }

// HoldsOf returns the holds of a lock, or of a slot's record, that the Client has now, in the order of their tokens: several if it
// reads. Like ClockMoved and RenewNow it is for package holdfasttest.
func (c *Client) HoldsOf(name string) []*Hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*Hold
	for h := range c.holds {
		if h.Name() == name && h.Err() == nil {
			all = append(all, h)
		}
	}
	slices.SortFunc(all, func(a, b *Hold) int { return cmp.Compare(a.Token(), b.Token()) })
	return all
}

// ClockMoved makes the Client notice at once that its clock has moved by more than the time that
// its timers measured, as after a suspend. Otherwise it notices within a second.
func (c *Client) ClockMoved() { c.renewer.ClockMoved() }
