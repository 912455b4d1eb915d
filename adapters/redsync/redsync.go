// Package redsync has the shape of github.com/go-redsync/redsync/v4, on a Holdfast backend
// instead of Redis. A program that uses redsync changes the import and the call of [New]:
//
//	rs := redsync.New(client) // was redsync.New(pool)
//	mutex := rs.NewMutex("report", redsync.WithExpiry(time.Minute))
//	if err := mutex.LockContext(ctx); err != nil { … }
//	defer mutex.UnlockContext(ctx)
//
// A new program does better with [holdfast.Client.Do], whose locks need no extending.
//
// # What is as in redsync
//
// A lock ends at its expiry unless it is extended, and the next may then have it, whether or not
// the work is done. It ends, too, when the program crashes. LockContext gives up after the number
// of tries and delays of the options. The methods return the same kinds of results, and the
// errors have the same names.
//
// # What differs
//
//   - The waiting wakes up when the lock is released, where the backend can do that, instead of
//     polling.
//   - [Mutex.Context] ends before another can have the lock: at the expiry, or when the backend
//     cannot be reached for so long that the lease is lost. [Mutex.Token] is a fencing token.
//   - Extending and validity need no request: the lease is renewed in the background until the
//     expiry.
//   - After a crash the lock is free when its lease expires. The TTL of the lease is the expiry,
//     moved into the range of the backend: 15 s to 60 s on Azure Blob Storage. An option
//     WithTTL given to New sets another.
//   - The program cannot hand the lock over by its value: there are no Value, WithValue and
//     WithGenValueFunc. The options about Redis servers are absent: WithDriftFactor,
//     WithTimeoutFactor, WithFailFast, WithShufflePools, WithSetNXOnExtend.
//   - Errors wrap their causes, so compare them with errors.Is and errors.As.
package redsync

import (
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Redsync makes mutexes.
type Redsync struct {
	client *holdfast.Client
	opts   []holdfast.Option
}

// New makes a Redsync. The options apply to all its mutexes.
func New(client *holdfast.Client, opts ...holdfast.Option) *Redsync {
	return &Redsync{client, opts}
}

// NewMutex makes a mutex for the lock of this name. Wrong options and names are errors of its
// methods.
func (r *Redsync) NewMutex(name string, options ...Option) *Mutex {
	m := &Mutex{client: r.client, opts: r.opts, name: name, expiry: 8 * time.Second, tries: 32, delay: defaultDelay}
	for _, o := range options {
		if o == nil {
			o = OptionFunc(nil)
		}
		o.Apply(m)
	}
	return m
}

// Option configures a mutex.
type Option interface{ Apply(*Mutex) }

// OptionFunc is a function as an Option.
type OptionFunc func(*Mutex)

// Apply calls the function. Without one the methods of the mutex return an error.
func (f OptionFunc) Apply(m *Mutex) {
	if f == nil {
		m.invalid = driver.Invalid("option", "nil", "an Option")
		return
	}
	f(m)
}

// DelayFunc returns the delay before a try.
type DelayFunc func(tries int) time.Duration

func defaultDelay(int) time.Duration { return 50*time.Millisecond + rand.N(200*time.Millisecond) }

// WithExpiry sets when a lock ends unless it is extended. The default is 8 s.
func WithExpiry(expiry time.Duration) Option { return OptionFunc(func(m *Mutex) { m.expiry = expiry }) }

// WithTries sets how often LockContext tries. The default is 32. What counts is the sum of the
// delays between the tries: LockContext waits for so long. A delay of less than 1 ms counts as
// 1 ms.
func WithTries(tries int) Option { return OptionFunc(func(m *Mutex) { m.tries = tries }) }

// WithRetryDelay sets the delay between tries. The default is random, from 50 ms to 250 ms.
func WithRetryDelay(delay time.Duration) Option {
	return WithRetryDelayFunc(func(int) time.Duration { return delay })
}

// WithRetryDelayFunc sets a function that returns the delays between tries. LockContext calls it
// when the delay begins, on another goroutine.
func WithRetryDelayFunc(delay DelayFunc) Option {
	return OptionFunc(func(m *Mutex) { m.delay = delay })
}

// Errors with the names that they have in redsync.
var (
	// ErrFailed: the lock was not acquired.
	ErrFailed = driver.Errorf("redsync: failed to acquire the lock")
	// ErrExtendFailed: the lock was not extended, because it is not held any more.
	ErrExtendFailed = driver.Errorf("redsync: failed to extend the lock")
	// ErrLockAlreadyExpired: the lock to unlock is not held any more.
	ErrLockAlreadyExpired = driver.Errorf("redsync: failed to unlock, the lock had expired")
)

// ErrTaken is the error of a lock that another holds. It matches [ErrFailed] and
// [holdfast.ErrHeld], and as a *[holdfast.HeldError] it says who holds the lock.
type ErrTaken struct { //nolint:errname // the name that it has in redsync
	Nodes []int // always one: 0
	err   error
}

// Error says who holds the lock.
func (e *ErrTaken) Error() string { return e.err.Error() }

// Unwrap returns ErrFailed and the cause.
func (e *ErrTaken) Unwrap() []error { return []error{ErrFailed, e.err} }
