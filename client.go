package holdfast

import (
	"context"
	"errors"
	"iter"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/settings"
)

// Client takes and keeps locks on one [Locker]. It holds what a process shares: the renewals,
// the queues of waiters, the cleanups. A process normally has one Client for each backend. All
// methods are safe for concurrent use.
type Client engine.Client

// New makes a Client around a Locker and takes it over: [Client.Shutdown] closes it. An option
// that the backend does not allow is an *[InvalidError].
func New(locker Locker, opts ...ClientOption) (*Client, error) {
	if locker == nil {
		return nil, driver.Invalid("locker", "nil", "a Locker")
	}
	var cfg engine.Config
	for _, o := range opts {
		if o == nil {
			return nil, settings.ErrNilOption
		}
		o.applyClient(&cfg)
	}
	c, err := engine.New(locker, cfg)
	return (*Client)(c), err
}

// Open makes a Client for the backend that a URL names, such as "file:/var/lib/locks" or
// "mongodb://db1,db2/app?replicaSet=rs0". The URL's driver must be imported, as with
// database/sql. ctx bounds only the opening.
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

func (c *Client) engine() *engine.Client { return (*engine.Client)(c) }

// Locker returns the driver, for what a backend offers beyond this package; see
// [driver.Capabilities].
func (c *Client) Locker() Locker { return c.engine().Locker() }

// Inspect reads a lock's record. A failure is returned at once, and each call ends within the
// time of [WithRequestTimeout].
func (c *Client) Inspect(ctx context.Context, name string) (Record, error) {
	return c.engine().Inspect(ctx, name)
}

// List yields the records whose names begin with prefix, in the byte order of the names. The
// sequence may be ranged over once; ctx bounds all of it. A record that cannot be read is
// yielded with the error and only its Name, and does not end the sequence. An error with a zero
// Record ends it. The error matches [errors.ErrUnsupported] if the backend cannot list.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[Record, error] {
	return c.engine().List(ctx, prefix)
}

// Break makes the backend refuse the present holder's renewals from now on. The lock becomes
// free when its lease expires, so that two holders never overlap. Breaking a free lock is no
// error. The error matches [errors.ErrUnsupported] if the backend cannot do it.
//
// [driver.Breaker] also has a BreakNow, which frees the lock at once and voids promise 1.
func (c *Client) Break(ctx context.Context, name string) error {
	return c.engine().Break(ctx, name)
}

// Observe yields the record of a lock now, and again whenever another has become its holder,
// or it was released or broken. It does not campaign for the lock. A failed read is yielded as
// an error, and repeated after a backoff. The sequence ends with ctx or the Client's Shutdown.
//
// It reads the record when the backend's Watcher reports a change, when the holder's lease
// expires, at growing intervals while the lock is free, and at the interval of
// [WithPollInterval]. A holder that comes and goes between two
// reads is not seen.
func (c *Client) Observe(ctx context.Context, name string, opts ...Option) iter.Seq2[Record, error] {
	s, err := c.settings(name, opts)
	if err != nil {
		return func(yield func(Record, error) bool) { yield(Record{}, err) }
	}
	return c.engine().Observe(ctx, name, s)
}

// Shutdown releases everything. Waiting calls return [ErrClosed]. The context of every hold
// ends with that cause. Holds of Lock, TryLock and LeaseManagers are released at once; holds of
// Do, runners and Partitions are renewed until their functions have returned, and then
// released. Each cleanup ends with one more answered release; a request that lands even later
// keeps its lock taken for one TTL. Shutdown then closes the Locker.
//
// If ctx ends first, or had ended before the call, Shutdown stops waiting: renewals stop, locks
// that could not be released expire, and the Locker is closed without waiting for the backend.
// Shutdown then returns within a tenth of a second, and the error names what is left. Further
// calls wait for the first one and return its result.
//
// Functions that Shutdown waits for must not wait for it: the functions of Do, runners and
// Partitions, observers, hooks and health checks. They may begin it on another goroutine. A
// function that passes its own context is detected: Shutdown returns an *[InvalidError] and
// does nothing.
func (c *Client) Shutdown(ctx context.Context) error { return c.engine().Shutdown(ctx) }
