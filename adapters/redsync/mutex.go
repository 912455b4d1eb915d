package redsync

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/internal/namedlock"
	"github.com/holdfast-go/holdfast/driver"
)

// Mutex is a lock that ends at its expiry unless it is extended. All methods are safe for
// concurrent use. A Mutex that is locked is not locked again: Lock waits, as for another's.
type Mutex struct {
	client *holdfast.Client
	opts   []holdfast.Option
	name   string
	expiry time.Duration
	tries  int
	delay  DelayFunc

	invalid error // of the options

	mu    sync.Mutex     // never held across I/O
	hold  *holdfast.Hold // the last one; nil before the first
	until time.Time
	timer *time.Timer // releases the hold at its expiry
}

// Name returns the name of the lock.
func (m *Mutex) Name() string { return m.name }

// Until returns when the lock ends unless it is extended; zero before the first lock.
func (m *Mutex) Until() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.until
}

// Lock is LockContext without a context.
func (m *Mutex) Lock() error { return m.LockContext(context.Background()) }

// TryLock is TryLockContext without a context.
func (m *Mutex) TryLock() error { return m.TryLockContext(context.Background()) }

// LockContext tries to take the lock, and then waits for it for as long as the tries and delays
// come to, also while the backend cannot be reached. If another still holds it, the error is an
// *[ErrTaken]; if ctx has ended, the error matches [ErrFailed] and ctx's error. As in redsync, a
// nil ctx is context.Background.
func (m *Mutex) LockContext(ctx context.Context) error {
	if ctx == nil {
		ctx = context.Background()
	}
	err := m.TryLockContext(ctx)
	if err == nil || m.tries < 2 || ctx.Err() != nil || isFinal(err) {
		return err
	}
	waiting := &patience{Context: ctx, done: make(chan struct{})}
	over, counted := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(counted)
		defer close(waiting.done)
		m.countTries(ctx, over)
	}()
	defer func() {
		close(over)
		<-counted
	}()
	return m.lock(ctx, func(opts []holdfast.Option) (*holdfast.Hold, error) {
		return m.client.Lock(waiting, m.name, opts...)
	})
}

// isFinal reports whether no further try mends an error. As in redsync, LockContext goes on after other errors.
func isFinal(err error) bool {
	return driver.Lasting(err) || errors.Is(err, driver.ErrInvalid) || errors.Is(err, holdfast.ErrClosed)
}

// minDelay is the least time that a try counts for. So tries without a delay between them come to
// a time, and counting them keeps no processor busy.
const minDelay = time.Millisecond

// countTries returns when the delays between the tries are over, when ctx has ended, or when over
// is closed. As in redsync, a delay is asked for when it begins: the sum of all of them may be
// longer than a time.Duration, and asking for two billion at once takes seconds.
func (m *Mutex) countTries(ctx context.Context, over <-chan struct{}) {
	for n := 1; n < m.tries; n++ {
		timer := time.NewTimer(max(m.delay(n), minDelay))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		case <-over:
			timer.Stop()
			return
		}
	}
}

// patience is the caller's context, which ends also when the tries are over. That is a time limit,
// although nobody knows before when it ends.
type patience struct {
	context.Context
	done chan struct{}
}

func (p *patience) Done() <-chan struct{} { return p.done }

func (p *patience) Err() error {
	select {
	case <-p.done:
		return cmp.Or(p.Context.Err(), context.DeadlineExceeded)
	default:
		return nil
	}
}

// TryLockContext makes one attempt. If another holds the lock, the error is an *[ErrTaken].
func (m *Mutex) TryLockContext(ctx context.Context) error {
	if ctx == nil {
		ctx = context.Background()
	}
	return m.lock(ctx, func(opts []holdfast.Option) (*holdfast.Hold, error) {
		return m.client.TryLock(ctx, m.name, opts...)
	})
}

func (m *Mutex) lock(ctx context.Context, acquire func([]holdfast.Option) (*holdfast.Hold, error)) error {
	switch {
	case m.invalid != nil:
		return m.invalid
	case m.client == nil:
		return driver.Invalid("client", "nil", "a Client")
	case m.expiry <= 0:
		return driver.Invalid("Expiry", driver.FormatDuration(m.expiry), "more than 0")
	case m.delay == nil:
		return driver.Invalid("RetryDelayFunc", "nil", "a function")
	}
	if err := namedlock.CheckOptions(m.client, m.opts); err != nil {
		return err
	}
	ttl := holdfast.WithTTL(leaseTTL(m.expiry, m.client.Info().Limits))
	hold, err := acquire(append([]holdfast.Option{ttl}, m.opts...))
	switch {
	case err == nil:
		m.begin(hold)
		return nil
	case ctx.Err() != nil:
		return driver.Errorf("%w: %w", ErrFailed, err)
	case errors.Is(err, holdfast.ErrHeld):
		return &ErrTaken{Nodes: []int{0}, err: err}
	}
	return err
}

// leaseTTL moves an expiry into the backend's range.
func leaseTTL(expiry time.Duration, l driver.Limits) time.Duration {
	ttl := max(expiry, l.MinTTL)
	if l.TTLStep > 0 && ttl%l.TTLStep > 0 {
		ttl += l.TTLStep - ttl%l.TTLStep
	}
	if l.MaxTTL > 0 {
		ttl = min(ttl, l.MaxTTL)
	}
	return ttl
}

func (m *Mutex) begin(hold *holdfast.Hold) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hold, m.until = hold, time.Now().Add(m.expiry)
	m.timer = time.AfterFunc(m.expiry, func() { m.expire(hold) })
}

// expire releases a hold at its expiry. The Client's Shutdown waits for the release.
func (m *Mutex) expire(hold *holdfast.Hold) {
	m.mu.Lock()
	due := m.hold != hold || !time.Now().Before(m.until) // not due: extended meanwhile
	m.mu.Unlock()
	if due {
		_ = hold.Release(context.Background()) // a failure is reported to the observers
	}
}

// live returns the hold if the lock is held and has not expired. The caller has m.mu.
func (m *Mutex) live() *holdfast.Hold {
	if m.hold == nil || m.hold.Err() != nil || !time.Now().Before(m.until) {
		return nil
	}
	return m.hold
}

// Unlock is UnlockContext without a context.
func (m *Mutex) Unlock() (bool, error) { return m.UnlockContext(context.Background()) }

// UnlockContext releases the lock, even if ctx has ended. It reports false, with an error that
// matches [ErrLockAlreadyExpired], if the lock was not held any more, and with the cause if the
// release failed: the lock may then stay taken until its lease expires.
func (m *Mutex) UnlockContext(ctx context.Context) (bool, error) {
	m.mu.Lock()
	hold, live := m.hold, m.live() != nil
	m.hold = nil
	if m.timer != nil {
		m.timer.Stop()
	}
	m.mu.Unlock()
	if hold == nil {
		return false, ErrLockAlreadyExpired
	}
	if err := hold.Release(ctx); err != nil {
		return false, err
	}
	if !live {
		return false, ErrLockAlreadyExpired
	}
	return true, nil
}

// Extend is ExtendContext without a context.
func (m *Mutex) Extend() (bool, error) { return m.ExtendContext(context.Background()) }

// ExtendContext moves the expiry: it counts from now. It does no I/O. It reports false, with an
// error that matches [ErrExtendFailed], if the lock is not held any more.
func (m *Mutex) ExtendContext(context.Context) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	hold := m.live()
	if hold == nil {
		return false, ErrExtendFailed
	}
	m.until = time.Now().Add(m.expiry)
	m.timer.Stop()
	m.timer = time.AfterFunc(m.expiry, func() { m.expire(hold) })
	return true, nil
}

// Valid is ValidContext without a context.
func (m *Mutex) Valid() (bool, error) { return m.ValidContext(context.Background()) }

// ValidContext reports whether the lock is held and has not expired. It does no I/O, and the
// error is always nil.
func (m *Mutex) ValidContext(context.Context) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.live() != nil, nil
}

// Context ends when the lock does: at its expiry, by Unlock, or by a loss, with a cause that
// matches [holdfast.ErrLost]. Work under the lock uses it. Before the first lock it has ended.
func (m *Mutex) Context() context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hold == nil {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		return ended
	}
	return m.hold.Context()
}

// Token returns the fencing token of the lock, greater than that of every earlier holder; 0 if
// it is not held, or has expired.
func (m *Mutex) Token() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if hold := m.live(); hold != nil {
		return hold.Token()
	}
	return 0
}
