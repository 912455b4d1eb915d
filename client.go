package holdfast

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/text"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/internal/scheduler"
	"github.com/holdfast-go/holdfast/internal/worker"
)

// Client takes and keeps locks on one Locker. It holds what one process shares:
// the renewal engine, the queues of waiters, the clean-ups. A process normally has
// one Client for each backend. All methods are safe for concurrent use.
type Client struct {
	locker       Locker
	limits       driver.Limits
	capabilities driver.Capabilities
	defaults     lockConfig
	now          func() time.Duration
	logger       *slog.Logger
	keeper       *keeper
	lookout      *lookout // nil where the backend does not read in batches
	queues       queues
	sightings    sightings
	wakes        wakes
	sinks        []*sink

	cleanings *scheduler.Scheduler
	cleaners  worker.Group // at work on cleanings

	work       worker.Group // acquiring, and every hold until it is released
	background worker.Group // clean-ups, releases by Shutdown, runners' own goroutines
	observing  worker.Group // sinks at work

	closing context.Context // ends, with cause errShutdown, when Shutdown begins
	close   context.CancelCauseFunc
	base    context.Context // ends when Shutdown gives up or is done; background calls descend from it
	end     context.CancelFunc

	mu           sync.Mutex
	holds        map[*Hold]struct{}
	participants map[participant]struct{}
	names        atomic.Int64 // that they manage

	shutting    atomic.Bool
	releases    chan struct{} // has a value for each release that a Shutdown has under way
	down        chan struct{} // closed when Shutdown is done
	shutdownErr error         // readable once down is closed
}

// New makes a Client around a Locker and takes it over: Shutdown closes it. An
// option that the backend does not allow is an *[InvalidError].
func New(locker Locker, opts ...ClientOption) (*Client, error) {
	if locker == nil {
		return nil, driver.Invalid("locker", "nil", "a Locker")
	}
	cfg := clientConfig{logger: slog.Default(), elapsed: clock.Elapsed}
	for _, o := range opts {
		if o == nil {
			return nil, errNilOption
		}
		o.applyClient(&cfg)
	}
	if cfg.logger == nil || cfg.elapsed == nil || hasNil(cfg.observers) {
		return nil, errNilOption
	}
	if cfg.lock.owner == nil {
		owner := defaultOwner()
		cfg.lock.owner = &owner
	}
	c := &Client{
		locker: locker, limits: locker.Limits(), capabilities: locker.Capabilities(), defaults: cfg.lock,
		now: cfg.elapsed, logger: cfg.logger, keeper: newKeeper(locker, cfg.elapsed, cfg.logger),
		sightings: sightings{now: cfg.elapsed}, holds: map[*Hold]struct{}{}, participants: map[participant]struct{}{}, down: make(chan struct{}), releases: make(chan struct{}, releasesAtOnce),
	}
	s, err := cfg.lock.settle(c.limits)
	if err != nil {
		return nil, err
	}
	c.cleanings = scheduler.New(c.now, cleaningsAtOnce, 0, &c.cleaners)
	c.closing, c.close = context.WithCancelCause(context.Background())
	c.lookout = newLookout(c.closing, c.capabilities.BatchInspector, c.now, s.tryTimeout)
	c.base, c.end = context.WithCancel(context.Background())
	for _, observe := range append([]func(Event){logTo(cfg.logger)}, cfg.observers...) {
		c.sinks = append(c.sinks, c.newSink(observe))
	}
	return c, nil
}

// Open makes a Client for the backend that a URL names, such as
// "file:/var/lib/locks" or "mongodb://db1,db2/app?replicaSet=rs0". The URL's
// driver must be imported, as with database/sql. ctx bounds only the opening.
func Open(ctx context.Context, url string, opts ...ClientOption) (*Client, error) {
	locker, err := driver.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	c, err := New(locker, opts...)
	if err != nil {
		return nil, errors.Join(err, locker.Close(ctx))
	}
	return c, nil
}

// Locker returns the driver, for helpers that a backend offers beyond this package.
func (c *Client) Locker() Locker { return c.locker }

// Inspect tells what the backend knows of a lock. A failure is returned at once, and
// every call ends within WithTryTimeout's time.
func (c *Client) Inspect(ctx context.Context, name string) (Record, error) {
	if err := driver.ValidateName(name, c.limits); err != nil {
		return Record{}, err
	}
	s, err := c.defaults.settle(c.limits)
	if err != nil {
		return Record{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.tryTimeout)
	defer cancel()
	return c.locker.Inspect(ctx, name)
}

// Shutdown gives everything back: waiting calls return ErrClosed, the context of
// every hold ends with that cause, holds from Lock, TryLock and LeaseManagers are
// released, and those of Do, runners and Partitions too, as soon as their functions have
// returned; until then they are renewed. It ends each clean-up with one more answered release (a
// request that lands even later holds its lock for a TTL), and closes the Locker.
//
// If ctx ends first, or had ended before the call, Shutdown stops waiting: renewals stop,
// what could not be released expires by itself, the Locker is closed without waiting for
// the backend, and Shutdown returns within a tenth of a second. The error names what is
// left. Further calls wait for the first one and return its result.
//
// What Shutdown waits for must not wait for it: functions of Do, runners and Partitions,
// observers, hooks and health checks begin it on another goroutine. One that passes
// its own context is detected: Shutdown returns an *[InvalidError] and does nothing.
func (c *Client) Shutdown(ctx context.Context) error {
	for in := holdingFrom(ctx); in != nil; in = in.outer {
		if in.hold.client == c && in.hold.managed {
			return driver.Invalid("ctx", "of a function of Do, a runner or Partitions, or of a LeaseManager's hold", "another context: this one ends before the shutdown")
		}
	}
	if c.shutting.CompareAndSwap(false, true) {
		c.shutdownErr = c.shutDown(ctx)
		close(c.down)
		return c.shutdownErr
	}
	select {
	case <-c.down:
	case <-ctx.Done():
		if !isClosed(c.down) {
			return fmt.Errorf("holdfast: shutdown: %w", endOf(ctx))
		}
	}
	return c.shutdownErr
}

func (c *Client) shutDown(ctx context.Context) error {
	c.work.Close()
	c.close(errShutdown)
	c.cleanings.RunAllNow()
	participants := c.enlisted()
	for _, p := range participants {
		p.stop(errShutdown)
	}
	for _, h := range c.live() {
		h.shutDown(ctx)
	}
	var err error
	if !c.work.Wait(ctx) {
		err = fmt.Errorf("holdfast: shutdown: %s: %w", c.leftovers(), endOf(ctx))
	}
	c.background.Close()
	if !c.background.Wait(ctx) && err == nil {
		err = fmt.Errorf("holdfast: shutdown: a clean-up is not done, its lock is left to expire: %w", endOf(ctx))
	}
	c.end()
	c.cleanings.RunAllNow()
	c.cleaners.Wait(ctx) // nothing but what was waited for above
	for _, p := range participants {
		err = errors.Join(err, p.finish(ctx))
	}
	err = errors.Join(err, c.lookout.close(ctx), c.keeper.close(ctx))
	if err == nil { // else there may be overruns to tell
		c.observing.Close()
		if !c.observing.Wait(ctx) {
			err = fmt.Errorf("holdfast: shutdown: an observer has not returned: %w", endOf(ctx))
		}
	}
	return errors.Join(err, c.closeLocker(ctx))
}

// closeSlack is how long after the end of its context Close of a Locker may return.
const closeSlack = 100 * time.Millisecond

// closeLocker closes the Locker, also if ctx has ended. A driver whose Close does not
// return then is left behind, and the error says so.
func (c *Client) closeLocker(ctx context.Context) error {
	closed := make(chan error, 1)
	go func() { closed <- c.locker.Close(ctx) }()
	select {
	case err := <-closed:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-closed:
		return err
	case <-time.After(closeSlack):
		return fmt.Errorf("holdfast: shutdown: closing the backend has not returned, its connections may still be open: %w", endOf(ctx))
	}
}

// leftovers says what Shutdown waited for in vain.
func (c *Client) leftovers() string {
	var names []string
	for _, h := range c.live() {
		names = append(names, text.Quote(h.Name()))
	}
	if len(names) == 0 {
		return "a call to the backend has not returned"
	}
	slices.Sort(names)
	return "still held, left to expire: " + strings.Join(names, ", ")
}

// live lists the holds that are not released yet.
func (c *Client) live() []*Hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.holds))
}

func (c *Client) newSink(observe func(Event)) *sink {
	return &sink{observe: observe, workers: &c.observing, logger: c.logger, names: &c.names}
}

// emit tells the client's observers, and then those of one runner.
func (c *Client) emit(more []*sink) func(Event) {
	return func(e Event) {
		for _, s := range c.sinks {
			s.emit(e)
		}
		for _, s := range more {
			s.emit(e)
		}
	}
}

// participant is a product that Shutdown stops, and then waits for.
type participant interface {
	// stop begins to release what the participant holds; cause ends the contexts of the holds.
	stop(cause error)
	// finish waits for its goroutines, when all holds are released or given up.
	finish(ctx context.Context) error
}

// enlist makes Shutdown stop a participant and wait until it is discharged. It reports false if
// Shutdown has begun.
func (c *Client) enlist(p participant) bool {
	if !c.work.Start() {
		return false
	}
	c.mu.Lock()
	c.participants[p] = struct{}{}
	c.mu.Unlock()
	if c.closing.Err() != nil {
		p.stop(errShutdown) // Shutdown may have listed the participants before
	}
	return true
}

// discharge undoes enlist.
func (c *Client) discharge(p participant) {
	c.mu.Lock()
	delete(c.participants, p)
	c.mu.Unlock()
	c.work.Done()
}

// enlisted lists the participants.
func (c *Client) enlisted() []participant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.participants))
}
