package holdfast

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/settings"
)

// DoAll is like [Client.Do] for several names: it waits until it has all the locks, runs fn while they are held, and
// releases them together after fn has returned or panicked. See [Client.LockAll].
//
// fn's context descends from ctx and ends with the first loss. [MultiHoldFromContext] returns the hold with the
// fencing token of each name.
func (c *Client) DoAll(ctx context.Context, names []string, fn func(ctx context.Context) error, opts ...Option) error {
	if fn == nil {
		return driver.Invalid("fn", "nil", "a function")
	}
	names, s, err := c.multiSettings(ctx, names, opts)
	if err != nil {
		return err
	}
	m, err := c.core.WaitAcquireAll(ctx, ctx, names, s, true)
	if err != nil {
		return err
	}
	return m.Run(ctx, fn)
}

// LockAll waits until it has the locks of all names, or none. ctx bounds only the waiting; the hold lasts until Release
// or the loss of one of the locks.
//
// Callers may give the names in any order and repeat some: they do not deadlock with one another, unless one of them holds
// other locks meanwhile; so take all names in one call. The locks are acquired one after another, in the order of their
// names. A caller that already has some of them and waits for the next one keeps what it has only for a limited time: one
// second (three poll intervals where nothing wakes waiters), or a quarter of the time since its call if that is longer, at
// most the TTL. Then it releases them, and waits for that lock alone. So a lock that others need is not held for long in
// vain. Each time that the TTL was too short, the next limit is twice as long, so that no caller starves. There is no order
// among such callers. Each lock that is acquired or released meanwhile is an event.
//
// The errors are those of [Client.Lock]. The error is an *[InvalidError] if there is no name, if there are more than 100
// different ones, or with [WithSlots]. A lock that is lost before all are acquired is no error: LockAll begins again.
// [WithData] stores the same data with each lock.
func (c *Client) LockAll(ctx context.Context, names []string, opts ...Option) (*MultiHold, error) {
	return c.lockAll(ctx, names, (*engine.Client).WaitAcquireAll, opts)
}

// TryLockAll makes one attempt for each name, one after another, and does not wait. If one of the locks is held, those
// acquired before are released, and the error is a *[HeldError] for that lock. The other errors are those of
// [Client.TryLock] and [Client.LockAll].
func (c *Client) TryLockAll(ctx context.Context, names []string, opts ...Option) (*MultiHold, error) {
	return c.lockAll(ctx, names, (*engine.Client).TryAcquireAll, opts)
}

// lockAll acquires locks by WaitAcquireAll or TryAcquireAll of [engine.Client], for a hold that ctx does not end.
func (c *Client) lockAll(
	ctx context.Context, names []string,
	by func(c *engine.Client, ctx, parent context.Context, names []string, s settings.Settings, managed bool) (*engine.MultiHold, error),
	opts []Option,
) (*MultiHold, error) {
	names, s, err := c.multiSettings(ctx, names, opts)
	if err != nil {
		return nil, err
	}
	m, err := by(c.core, ctx, context.WithoutCancel(ctx), names, s, false)
	if err != nil {
		return nil, err
	}
	return publicMultiHold(m), nil
}

func (c *Client) multiSettings(ctx context.Context, names []string, opts []Option) ([]string, settings.Settings, error) {
	if err := cause.Check(ctx); err != nil {
		return nil, settings.Settings{}, err
	}
	cfg, err := c.config(opts)
	if err != nil {
		return nil, settings.Settings{}, err
	}
	return c.core.MultiSettings(names, cfg)
}

// MultiHold is one hold over the locks of several names. Each lock has a lease, a renewal and a fencing token of its own.
// All methods are safe for concurrent use.
type MultiHold struct{ core *engine.MultiHold }

// publicMultiHold returns the MultiHold of a program: always the same, so that programs can compare them.
func publicMultiHold(m *engine.MultiHold) *MultiHold {
	made, _ := m.Handle(func() any { return &MultiHold{m} }).(*MultiHold)
	return made
}

// MultiHoldFromContext returns the innermost hold of several names whose context ctx descends from. The context is the
// one that the function of DoAll gets, or [MultiHold.Context]. MultiHoldFromContext reports false if there is none.
func MultiHoldFromContext(ctx context.Context) (*MultiHold, bool) {
	m, ok := engine.MultiHoldFrom(ctx)
	if !ok {
		return nil, false
	}
	return publicMultiHold(m), true
}

// Context ends when the first of the locks is lost, before another can be granted that lock, or when the hold is
// released. Its cause says why, and names the lost lock; see [Hold.Context]. [HoldFromContext] and [TokenFromContext]
// report false for it: use [MultiHold.Hold] or [MultiHold.Token] with the name that is meant.
func (m *MultiHold) Context() context.Context { return m.core.Context() }

// Err returns nil while all locks are held, and afterwards why they are not. It reads the clock itself, like [Hold.Err].
func (m *MultiHold) Err() error { return m.core.Err() }

// Names returns the names in order, each once.
func (m *MultiHold) Names() []string { return m.core.Names() }

// Hold returns the hold of one of the names, for guards and for its data; nil if the name is not among them. Its
// context ends with the first loss of any of the names. Its Release returns an *[InvalidError]: the locks are released
// together.
func (m *MultiHold) Hold(name string) *Hold {
	h := m.core.Hold(name)
	if h == nil {
		return nil
	}
	return publicHold(h)
}

// Token returns the fencing token of one of the names, and 0 if the name is not among them. Tokens of different names
// must not be compared.
func (m *MultiHold) Token(name string) uint64 {
	h := m.core.Hold(name)
	if h == nil {
		return 0
	}
	return h.Token()
}

// Tokens returns the fencing token of each name.
func (m *MultiHold) Tokens() map[string]uint64 { return m.core.Tokens() }

// LostIn returns the time until the first of the locks is lost unless it is renewed; see [Hold.LostIn].
func (m *MultiHold) LostIn() time.Duration { return m.core.LostIn() }

// ExpiresIn returns the time until another may be granted one of the locks, unless it is renewed or released before; see
// [Hold.ExpiresIn].
func (m *MultiHold) ExpiresIn() time.Duration { return m.core.ExpiresIn() }

// String lists the names.
func (m *MultiHold) String() string { return m.core.String() }

// GoString lists the names for %#v.
func (m *MultiHold) GoString() string { return m.core.GoString() }

// Release ends the context and releases all locks, in one request where the backend can. After a loss, too, it releases
// those that are left. The rest is as for [Hold.Release]: the error names the locks that may stay taken until their
// leases expire. A hold of DoAll is released when its function has returned; its Release returns an *[InvalidError].
func (m *MultiHold) Release(ctx context.Context) error {
	if m.core.OwnedByFunction() {
		return errOwnedByFunction
	}
	return m.core.Release(ctx)
}
