// Package engine waits for locks, acquires them, keeps them renewed, releases them, and cleans up
// after requests in doubt. Its exported names are for the packages of this module; the public API
// is in package holdfast and in the packages leases and partitions.
package engine

import (
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
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/renewal"
	"github.com/holdfast-go/holdfast/internal/scheduler"
	"github.com/holdfast-go/holdfast/internal/settings"
	"github.com/holdfast-go/holdfast/internal/sightings"
	"github.com/holdfast-go/holdfast/internal/worker"
)

// Client has what all locks of one holdfast.Client share.
type Client struct {
	locker         driver.Locker  // the driver, or what measures its calls
	original       driver.Locker  // the driver
	hook           telemetry.Hook // or nil
	limits         driver.Limits
	capabilities   driver.Capabilities
	defaults       settings.Config      // the options given to New
	requestTimeout time.Duration        // by default
	now            func() time.Duration // elapsed time
	reader         *batchread.Reader    // nil where the backend does not read in batches
	sightings      *sightings.Memory
	managedNames   atomic.Int64 // of all LeaseManagers
	queuedNames    atomic.Int64 // that acquisitions wait for in the backend's queue

	logger    *slog.Logger
	renewer   *renewal.Renewer
	queues    queues
	wakeups   wakeups
	observers []*event.Observer
	cleanups  *scheduler.Scheduler
	cleaners  worker.Group // the running cleanups

	work       worker.Group // calls that acquire, and every hold until it is released
	background worker.Group // cleanups, releases by Shutdown, runners' own goroutines
	observing  worker.Group // the running observers

	closing    context.Context // ends, with cause.ErrShutdown, when Shutdown begins
	endClosing context.CancelCauseFunc
	base       context.Context // ends when Shutdown gives up or is done; background calls descend from it
	endBase    context.CancelFunc

	mu           sync.Mutex
	holds        map[*Hold]struct{} // not released yet
	participants map[Participant]struct{}

	shutdownBegun atomic.Bool
	releasing     chan struct{} // has a value for each release under way during Shutdown
	shutdownDone  chan struct{} // closed when Shutdown is done
	shutdownErr   error         // readable once shutdownDone is closed
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
	limits := locker.Limits()
	s, err := cfg.Lock.Resolve(limits)
	if err != nil {
		return nil, err
	}
	original := locker
	locker = measureCalls(original, cfg.Hook, cfg.Elapsed)
	observers := append([]*event.Observer{event.NewObserver(logTo(cfg.Logger))}, cfg.Lock.Observers...)
	cfg.Lock.Observers = nil
	c := &Client{
		locker: locker, original: original, hook: cfg.Hook, limits: limits, capabilities: locker.Capabilities(),
		defaults: cfg.Lock, requestTimeout: s.RequestTimeout, now: cfg.Elapsed, sightings: sightings.New(cfg.Elapsed),
		logger: cfg.Logger, renewer: renewal.New(locker, cfg.Elapsed, cfg.Logger, cfg.Hook != nil),
		holds: map[*Hold]struct{}{}, participants: map[Participant]struct{}{},
		releasing: make(chan struct{}, releaseLimit), shutdownDone: make(chan struct{}),
	}
	c.cleanups = scheduler.New(c.now, cleanupLimit, 0, &c.cleaners)
	c.closing, c.endClosing = context.WithCancelCause(context.Background())
	c.base, c.endBase = context.WithCancel(context.Background())
	c.reader = batchread.New(c.closing, c.capabilities.BatchInspector, c.now, s.RequestTimeout)
	c.observers = observers
	return c, nil
}

// Settings resolves and checks the options of one lock.
func (c *Client) Settings(name string, cfg settings.Config) (settings.Settings, error) {
	s, err := cfg.Resolve(c.limits)
	if err != nil {
		return s, err
	}
	return s, ValidateSlots(name, s.Slots, c.limits)
}

// Emit reports an event.
type Emit = func(event.Event)

// observerBacklog is how many events may wait for one slow observer. For each name of a
// LeaseManager, eventsPerName more may wait, since thousands of names can be acquired or lost at
// once.
const (
	observerBacklog = 1024
	eventsPerName   = 4
)

// EmitTo returns a function that reports events to the Client's observers, and to these.
func (c *Client) EmitTo(observers []*event.Observer) Emit {
	all := slices.Concat(c.observers, observers)
	return func(e event.Event) {
		limit := observerBacklog + eventsPerName*int(c.managedNames.Load())
		for _, o := range all {
			if !o.Emit(e, limit, c.observing.Go, c.logger) && c.hook != nil {
				c.hook.Dropped()
			}
		}
	}
}

// Inspect reads a lock's record once.
func (c *Client) Inspect(ctx context.Context, name string) (driver.Record, error) {
	if err := driver.ValidateName(name, c.limits); err != nil {
		return driver.Record{}, err
	}
	return c.inspect(ctx, name, c.requestTimeout)
}

func (c *Client) inspect(ctx context.Context, name string, limit time.Duration) (driver.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return c.locker.Inspect(ctx, name)
}

// List yields the records whose names begin with prefix.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	if c.capabilities.Lister == nil {
		return func(yield func(driver.Record, error) bool) {
			yield(driver.Record{}, driver.Errorf("holdfast: list: this backend cannot list its locks: %w", errors.ErrUnsupported))
		}
	}
	return c.capabilities.Lister.List(ctx, prefix)
}

// Break makes the backend refuse the present holder's renewals.
func (c *Client) Break(ctx context.Context, name string, token uint64) error {
	if err := driver.ValidateName(name, c.limits); err != nil {
		return err
	}
	if c.capabilities.Breaker == nil {
		return driver.Errorf("holdfast: break %q: this backend cannot break leases: %w", name, errors.ErrUnsupported)
	}
	ctx, cancel := context.WithTimeout(ctx, c.requestTimeout)
	defer cancel()
	return c.capabilities.Breaker.Break(ctx, name, token)
}

// The rest is what products need of a Client. Its fields are not exported, since holdfast.Client
// has the same fields.

// Locker returns the driver.
func (c *Client) Locker() driver.Locker { return c.original }

// Limits returns the backend's limits.
func (c *Client) Limits() driver.Limits { return c.limits }

// Capabilities returns the backend's capabilities.
func (c *Client) Capabilities() driver.Capabilities { return c.capabilities }

// Defaults returns the options given to New.
func (c *Client) Defaults() settings.Config { return c.defaults }

// Now reads the elapsed-time clock.
func (c *Client) Now() time.Duration { return c.now() }

// Reader returns what reads records in batches; nil where the backend does not.
func (c *Client) Reader() *batchread.Reader { return c.reader }

// Sightings returns what the Client remembers of holders.
func (c *Client) Sightings() *sightings.Memory { return c.sightings }

// Work returns the group of the calls that acquire, and of every hold until it is released.
// Shutdown waits for it first.
func (c *Client) Work() *worker.Group { return &c.work }

// Background returns the group of cleanups and of the goroutines of runners. Shutdown waits for it
// after Work.
func (c *Client) Background() *worker.Group { return &c.background }

// Closing returns a context that ends, with cause.ErrShutdown, when Shutdown begins.
func (c *Client) Closing() context.Context { return c.closing }

// Base returns a context that ends when Shutdown gives up or is done. Calls in the background
// descend from it.
func (c *Client) Base() context.Context { return c.base }

// AddNames changes the number of names that LeaseManagers manage: for each, an observer may fall a
// few more events behind.
func (c *Client) AddNames(n int) { c.managedNames.Add(int64(n)) }
