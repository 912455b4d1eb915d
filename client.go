package holdfast

import (
	"context"
	"errors"
	"iter"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/settings"
)

// Client acquires locks on one [Locker] and renews them. All locks of a Client share its queues of
// waiters, its renewals and its cleanups, so a process normally has one Client for each backend.
// All methods are safe for concurrent use.
type Client engine.Client

// New makes a Client for a Locker, which from then on belongs to the Client: [Client.Shutdown]
// closes it. The error is an *[InvalidError] if the backend does not allow an option.
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

// Open makes a Client for the backend of a URL, such as "file:/var/lib/locks" or
// "mongodb://db1,db2/app?replicaSet=rs0". The program must import the URL's driver, as with
// database/sql. ctx bounds only the call itself.
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

// Locker returns the Client's Locker, for what the backend can do beyond this package; see
// [driver.Capabilities].
func (c *Client) Locker() Locker { return c.engine().Locker() }

// Inspect reads a lock's record. It does not retry a failure, and ends within the time of
// [WithRequestTimeout].
func (c *Client) Inspect(ctx context.Context, name string) (Record, error) {
	return c.engine().Inspect(ctx, name)
}

// List yields the records whose names begin with prefix, in the byte order of the names. The
// sequence can be ranged over once, and ctx bounds all of it. For a record that cannot be read it
// yields an error and a Record that has only the Name, and continues. An error with a zero Record
// ends the sequence. The error matches [errors.ErrUnsupported] if the backend cannot list.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[Record, error] {
	return c.engine().List(ctx, prefix)
}

// Break makes the backend refuse the present holder's renewals from now on. The lock becomes
// free when its lease expires, so that two holders never overlap. Breaking a free lock is no
// error. token is that of the holder to break: if another holds the lock, nothing happens and the
// error is a *[HeldError]. 0 breaks whoever holds it. The error matches [errors.ErrUnsupported] if
// the backend cannot break locks.
//
// [driver.Breaker] also has the method BreakNow, which frees the lock at once and voids promise 1.
func (c *Client) Break(ctx context.Context, name string, token uint64) error {
	return c.engine().Break(ctx, name, token)
}

// Observe yields the record of a lock now, and again each time the holder has changed or the lock
// was released or broken. It does not campaign for the lock. If a read fails, Observe yields the
// error and reads again after a backoff. The sequence ends when ctx ends or the Client is shut
// down.
//
// Observe reads the record when the backend's Watcher reports a change, when the holder's lease
// expires, at growing intervals while the lock is free, and at the interval of
// [WithPollInterval]. It does not see a holder that comes and goes between two reads.
func (c *Client) Observe(ctx context.Context, name string, opts ...Option) iter.Seq2[Record, error] {
	s, err := c.settings(name, opts)
	if err != nil {
		return func(yield func(Record, error) bool) { yield(Record{}, err) }
	}
	return c.engine().Observe(ctx, name, s)
}

// Shutdown releases all locks and closes the Locker:
//
//   - Calls that wait return [ErrClosed].
//   - The context of every hold ends with the cause ErrClosed.
//   - Holds of Lock, TryLock and LeaseManagers are released at once. Holds of Do, runners and
//     Partitions are renewed until their functions have returned, and then released.
//   - Each cleanup of a request in doubt ends with one more answered release. A request that
//     reaches the backend even later keeps its lock taken for one TTL.
//
// If ctx ends first, or had ended before the call, Shutdown stops waiting: renewals stop, locks
// that could not be released expire, and the Locker is closed without waiting for the backend.
// Shutdown then returns within a tenth of a second, and the error names what is left. Further
// calls wait for the first one and return its result.
//
// Shutdown waits for the functions of Do, runners and Partitions, for observers, hooks and health
// checks. These must not wait for Shutdown, but may call it on another goroutine. If one of them
// passes its own context, Shutdown returns an *[InvalidError] and does nothing.
func (c *Client) Shutdown(ctx context.Context) error { return c.engine().Shutdown(ctx) }
