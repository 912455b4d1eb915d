package holdfast

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/bridge"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/settings"
)

// Do waits for the lock, runs fn on the caller's goroutine while it is held, and releases it
// after fn has returned or panicked. If fn ends the goroutine with [runtime.Goexit], an EventError
// reports that, because Do then does not return.
//
// fn's context descends from ctx. If the lock is lost, it ends with a cause that matches
// [ErrLost], and fn must stop at once. [TokenFromContext] returns the fencing token.
//
// Begin and commit transactions in fn. Do inside a transaction releases the lock before the commit, so
// the next holder reads what was there before.
//
// Do returns fn's error. If the lock was lost before fn returned, the result matches ErrLost too,
// even if fn returned nil. If ctx ends while Do waits, the error matches both ctx's error and what
// kept the lock, such as [ErrHeld]. Do does not return the error of a failed release: it is
// reported to the observers, and cleanup goes on in the background until the lease expires.
func (c *Client) Do(ctx context.Context, name string, fn func(ctx context.Context) error, opts ...Option) error {
	return c.do(ctx, name, (*engine.Client).WaitAcquire, fn, opts)
}

// TryDo is like Do, but makes one attempt and does not wait: if another holds the lock, fn is
// not called and the error is a *[HeldError]. See [Client.TryLock].
func (c *Client) TryDo(ctx context.Context, name string, fn func(ctx context.Context) error, opts ...Option) error {
	return c.do(ctx, name, (*engine.Client).TryOnce, fn, opts)
}

// Lock waits until it has the lock. ctx bounds only the waiting; the hold lasts until Release
// or a loss. If ctx ends first, the error matches both ctx's error and the reason for which the
// lock was not granted: [ErrHeld] with the holder's record, or the backend's failure. [ErrDenied]
// and [ErrDamaged] are returned at once, unless the backend has named a holder before: then Lock
// goes on waiting.
//
// Lock and Do with the context of a hold of the same name would deadlock. They return an error
// that matches ErrHeld at once, also for a context that [context.WithoutCancel] derived from it,
// because the hold may wait for their caller. A goroutine that should wait until the hold has
// ended uses another context.
//
// The waiters of one Client queue first-in-first-out for each name, and only the first asks the
// backend. Between processes there is an order only where the backend has a [driver.Queue]. Where it
// wakes waiters without one, those of other processes go first after a release.
func (c *Client) Lock(ctx context.Context, name string, opts ...Option) (*Hold, error) {
	return c.lock(ctx, name, (*engine.Client).WaitAcquire, opts)
}

// TryLock makes one attempt and does not wait. The errors are:
//
//   - a *[HeldError] if another holds the lock. The Client remembers that holder, so repeated
//     calls of TryLock also take over a stuck lock.
//   - an *[InvalidError] if an argument is not allowed.
//   - an error that matches [ErrClosed] if the Client is shut down.
//   - an error that matches [ErrDenied] or [ErrDamaged]: nothing was changed, and a person must act.
//   - any other error if the outcome is unknown. If the lock was taken, it is released in the
//     background.
func (c *Client) TryLock(ctx context.Context, name string, opts ...Option) (*Hold, error) {
	return c.lock(ctx, name, (*engine.Client).TryOnce, opts)
}

// acquire is WaitAcquire or TryOnce of [engine.Client].
type acquire func(
	c *engine.Client, ctx, parent context.Context, name string, s settings.Settings, emit engine.Emit, managed bool,
) (*engine.Hold, error)

// do acquires a lock for fn.
func (c *Client) do(ctx context.Context, name string, by acquire, fn func(ctx context.Context) error, opts []Option) error {
	if fn == nil {
		return driver.Invalid("fn", "nil", "a function")
	}
	s, err := c.settings(ctx, name, opts)
	if err != nil {
		return err
	}
	h, err := by(c.core, ctx, ctx, name, s, c.core.EmitTo(s.Observers), true)
	if err != nil {
		return err
	}
	return h.Run(ctx, name, fn)
}

// lock acquires a lock for a hold that ctx does not end.
func (c *Client) lock(ctx context.Context, name string, by acquire, opts []Option) (*Hold, error) {
	s, err := c.settings(ctx, name, opts)
	if err != nil {
		return nil, err
	}
	h, err := by(c.core, ctx, context.WithoutCancel(ctx), name, s, c.core.EmitTo(s.Observers), false)
	if err != nil {
		return nil, err
	}
	return publicHold(h), nil
}

// Hold is a lock that this process holds. The lease is renewed in the background until Release or
// a loss. All methods are safe for concurrent use.
type Hold struct{ core *engine.Hold }

// publicHold returns the Hold of a program: always the same, so that programs can compare them.
func publicHold(h *engine.Hold) *Hold {
	made, _ := h.Handle(func() any { return &Hold{h} }).(*Hold)
	return made
}

// As for Client: the other packages of the module reach the field by package bridge.
func init() {
	bridge.Hold = func(hold any) *engine.Hold {
		if h, _ := hold.(*Hold); h != nil {
			return h.core
		}
		return nil
	}
	bridge.PublicHold = func(h *engine.Hold) any { return publicHold(h) }
}

// HoldFromContext returns the innermost hold whose context ctx descends from. The context of a
// hold is the one that the function of Do or a runner gets, or [Hold.Context]. HoldFromContext
// reports false if there is none, or if that is a hold of several names; see [MultiHoldFromContext].
// Do and runners release their holds themselves.
func HoldFromContext(ctx context.Context) (*Hold, bool) {
	h, ok := engine.HoldFrom(ctx)
	if !ok {
		return nil, false
	}
	return publicHold(h), true
}

// TokenFromContext returns the fencing token of the hold that [HoldFromContext] returns. It
// reports false if there is none. It returns the token even if the hold has ended: the storage
// that compares tokens decides.
func TokenFromContext(ctx context.Context) (uint64, bool) {
	h, ok := engine.HoldFrom(ctx)
	if !ok {
		return 0, false
	}
	return h.Token(), true
}

// Context ends when the hold does, before another can be granted the lock. Its cause says why:
// [ErrLost], [ErrReleased] or [ErrClosed] (Shutdown). For a hold of Lock or TryLock, the context
// has the values of the context that they were called with, but not its deadline or cancellation.
// For a hold of Do, it descends from the caller's context.
func (h *Hold) Context() context.Context { return h.core.Context() }

// Lease returns the lease as a plain value, for functions that need its ID.
func (h *Hold) Lease() Lease { return h.core.Lease() }

// Name returns the lock's name; with [WithSlots], the name of the slot's record.
func (h *Hold) Name() string { return h.core.Name() }

// Slot returns which slot is held, counted from 0. It is 0 without WithSlots.
func (h *Hold) Slot() int { return h.core.Slot() }

// Token returns the fencing token, which is greater than that of every earlier holder. Send it to
// the resource that the lock protects, which can then refuse a holder that was paused for too
// long.
func (h *Hold) Token() uint64 { return h.core.Token() }

// Err returns nil while the lock is held, and afterwards why it is not. It reads the clock itself,
// without I/O or allocation. So the answer is right even just after the process was paused, before
// the context could end.
func (h *Hold) Err() error { return h.core.Err() }

// LostIn returns the time until the hold is lost unless it is renewed. It is zero or negative if
// the hold was not renewed in time. It considers only the clock; Err says whether the hold has
// ended for another reason.
func (h *Hold) LostIn() time.Duration { return h.core.LostIn() }

// ExpiresIn returns the time until another may be granted the lock, unless it is renewed or
// released before: LostIn plus the grace, less 0.1 % of the TTL. Work that continues after the
// hold has ended must have stopped by then.
func (h *Hold) ExpiresIn() time.Duration { return h.core.ExpiresIn() }

// String describes the lease, without its ID.
func (h *Hold) String() string { return h.core.String() }

// GoString describes the lease for %#v, without its ID.
func (h *Hold) GoString() string { return h.core.GoString() }

// Release ends the hold's context and releases the lock. Call it when the work is over, also
// after a loss. Further calls, also by other goroutines, wait for the one release and return its
// result.
//
// At least one request is sent, with a time limit of its own, even if ctx has ended. Failures
// are retried until ctx ends or the lease has expired. The error then says that the lock may stay
// taken until its lease expires, and a last cleanup goes on in the background. Releasing a lost
// lock is no error. A nil ctx counts as [context.Background].
//
// A hold of Do, a runner, Partitions or a LeaseManager's function, which [HoldFromContext] returns, is released after
// its function has returned. Its Release does nothing and returns an *[InvalidError].
func (h *Hold) Release(ctx context.Context) error {
	// Promise 7: the lock is released only after the function has returned.
	if h.core.OwnedByFunction() {
		return errOwnedByFunction
	}
	if h.core.InMultiHold() {
		return driver.Invalid("Release", "of one name of a MultiHold", "left to the release of the MultiHold")
	}
	return h.core.Release(ctx)
}

var errOwnedByFunction = driver.Invalid("Release", "of a hold that runs a function", "left to the end of that function")

// Data returns the data stored with the lock; nil if there is none. The error matches [ErrLost]
// if the lock was no longer held when the answer came, and [errors.ErrUnsupported] if the
// backend stores no data. The call ends within the time of [WithRequestTimeout].
func (h *Hold) Data(ctx context.Context) ([]byte, error) { return h.core.ReadData(ctx) }

// WriteData replaces the data stored with the lock. The backend refuses the write if the lock is
// no longer held. The errors are those of Data, and an *[InvalidError] if the data are too large.
// After any other error the outcome is unknown: the data may have been written, or may be written
// later while the lock is held, but not after a later write that succeeded.
//
// The backend also refuses a write if an earlier one, whose outcome was unknown, arrived late.
// WriteData then repeats the write. It makes up to six attempts, which take up to 11 backend calls
// and about 1.5 s of waiting between them. Other calls of WriteData and UpdateData of this hold
// wait meanwhile. If every attempt is refused, or ctx ends between two of them, nothing is written
// and the error matches [driver.ErrConflict].
func (h *Hold) WriteData(ctx context.Context, data []byte) error {
	return h.core.WriteData(ctx, data)
}

// UpdateData reads the data stored with the lock, and writes what update returns; old is nil if
// there is none. If update returns an error, nothing is written and the error is returned as it
// is. Calls of UpdateData and WriteData of one hold run one after another, so that none of their changes is
// lost. update must not call them for the same hold.
//
// The backend refuses the write if the data changed after they were read, because an earlier write
// whose outcome was unknown arrived late. UpdateData then reads the data and calls update again,
// as WriteData describes, with up to 12 backend calls. The errors are those of WriteData.
func (h *Hold) UpdateData(ctx context.Context, update func(old []byte) ([]byte, error)) error {
	return h.core.UpdateData(ctx, update)
}
