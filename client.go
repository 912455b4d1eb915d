package holdfast

import (
	"context"
	"errors"
	"iter"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/bridge"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/settings"
)

// Client acquires locks on one [Locker] and renews them. All locks of a Client share its queues of
// waiters, its renewals and its cleanups, so a process normally has one Client for each backend.
// All methods are safe for concurrent use.
type Client struct{ core *engine.Client }

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
	if err != nil {
		return nil, err
	}
	return &Client{c}, nil
}

// Open makes a Client for the backend of a URL, such as "file:/var/lib/locks" or
// "mongodb://db1,db2/app?replicaSet=rs0". The program must import the URL's driver, as with
// database/sql. ctx bounds only the call itself.
func Open(ctx context.Context, url string, opts ...ClientOption) (*Client, error) {
	if err := cause.Check(ctx); err != nil {
		return nil, err
	}
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

// Locker returns the Client's Locker, for what the backend can do beyond this package; see
// [driver.Capabilities].
func (c *Client) Locker() Locker { return c.core.Locker() }

// Info returns what the backend declares: its limits, what it promises, and what it does not.
func (c *Client) Info() Info { return c.core.Info() }

// Capabilities returns what the backend can do beyond this package: wake waiters, renew and read in batches, store data.
func (c *Client) Capabilities() Capabilities { return c.core.Capabilities() }

// Inspect reads a lock's record. It does not retry a failure, and ends within the time of
// [WithRequestTimeout].
func (c *Client) Inspect(ctx context.Context, name string) (Record, error) {
	return c.core.Inspect(ctx, name)
}

// List yields the records whose names begin with prefix, in the byte order of the names. The
// sequence can be ranged over once, and ctx bounds all of it. For a record that cannot be read it
// yields an error and a Record that has only the Name, and continues. An error with a zero Record
// ends the sequence. The error matches [errors.ErrUnsupported] if the backend cannot list.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[Record, error] {
	return c.core.List(ctx, prefix)
}

// Break makes the backend refuse the present holder's renewals from now on. The lock becomes
// free when its lease expires, so that two holders never overlap. Breaking a free lock is no
// error. target is the holder to break, [BreakToken] of its token: if another holds the lock, nothing
// happens and the error is a *[HeldError]. [BreakUnknown] is the holder whose token the backend does not know.
// [BreakAnybody] breaks whoever holds the lock. The zero target is an error. The error matches
// [errors.ErrUnsupported] if the backend cannot break locks. A lock whose lease never ends
// ([Record].Endless) becomes free at once.
func (c *Client) Break(ctx context.Context, name string, target BreakTarget) error {
	return c.core.Break(ctx, name, target)
}

// BreakNow frees the lock at once, which voids promise 1: the holder is not notified before its next renewal, and until
// then it and the next holder may both be at work. It is for a holder that has certainly stopped, and whose lease is long.
// target and the errors are those of [Client.Break].
func (c *Client) BreakNow(ctx context.Context, name string, target BreakTarget) error {
	return c.core.BreakNow(ctx, name, target)
}

// Observe yields the record of a lock now, and again each time the holder has changed or the lock
// was released or broken. It does not campaign for the lock. If a read fails, Observe yields the
// error and reads again after a backoff. The sequence ends when ctx ends or the Client is shut
// down.
//
// Observe reads the record when the backend's Waker reports a change, when the holder's lease
// expires, at growing intervals while the lock is free, and at the interval of
// [WithPollInterval]. It does not see a holder that comes and goes between two reads.
func (c *Client) Observe(ctx context.Context, name string, opts ...Option) iter.Seq2[Record, error] {
	s, err := c.settings(ctx, name, opts)
	if err != nil {
		return func(yield func(Record, error) bool) { yield(Record{}, err) }
	}
	return c.core.Observe(ctx, name, s)
}

// Shutdown releases all locks and closes the Locker:
//
//   - Calls that wait return [ErrClosed].
//   - The context of every hold ends with the cause ErrClosed.
//   - Holds of Lock and TryLock are released at once, and those of a LeaseManager without a function.
//     Other holds are renewed until their functions have returned, and then released.
//   - Each cleanup of a request in doubt ends with one more answered release. A request that
//     reaches the backend even later keeps its lock taken for one TTL.
//
// If ctx ends first, or had ended before the call, Shutdown stops waiting: renewals stop, locks
// that could not be released expire, and the Locker is closed without waiting for the backend.
// Shutdown then returns within a tenth of a second, and its error names what is left, if anything.
// Further calls wait for the first one and return its result.
//
// Shutdown waits for the functions of Do, runners, LeaseManagers and Partitions, for observers, hooks
// and health checks. These must not wait for Shutdown, but may call it on another goroutine. If one of them
// passes its own context, Shutdown returns an *[InvalidError] and does nothing. For one call of an observer
// or an overrun hook Shutdown waits for at most 5 s. For a call of a [telemetry.Hook] it waits for about 5 s
// in which nothing else moves. Then it returns an error that says so, also if ctx has no end, and also to
// such a function that calls it itself.
func (c *Client) Shutdown(ctx context.Context) error { return c.core.Shutdown(ctx) }

// settings applies options over the client's defaults and checks them, and the context.
func (c *Client) settings(ctx context.Context, name string, opts []Option) (settings.Settings, error) {
	if err := cause.Check(ctx); err != nil {
		return settings.Settings{}, err
	}
	cfg, err := c.config(opts)
	if err != nil {
		return settings.Settings{}, err
	}
	return c.core.Settings(name, cfg)
}

// config applies options over the client's defaults.
func (c *Client) config(opts []Option) (settings.Config, error) {
	cfg := c.core.Defaults()
	for _, o := range opts {
		apply, _ := o.(option)
		if apply == nil {
			return cfg, settings.ErrNilOption
		}
		apply(&cfg)
	}
	return cfg, nil
}

// The other packages of the module reach the fields of the public types by package bridge.
func init() {
	bridge.Client = func(client any) *engine.Client {
		if c, _ := client.(*Client); c != nil {
			return c.core
		}
		return nil
	}
	bridge.Apply = func(given any, to *settings.Config) bool {
		o, ok := given.(option)
		if ok {
			o(to)
		}
		return ok
	}
}
