package holdfast

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/settings"
)

// Do waits for the lock, runs fn on the caller's goroutine while it is held, and releases it
// after fn has returned or panicked.
//
// fn's context descends from ctx. It ends, with a cause that matches [ErrLost], if the lock is
// lost: fn must then stop at once. [TokenFromContext] returns the fencing token. Do returns
// fn's error; if the lock was lost before fn returned, the result matches ErrLost too, even if
// fn returned nil. If ctx ends while waiting, the error matches both ctx's error and what kept
// the lock, such as [ErrHeld]. A failed release is no error of Do: it is reported to the
// observers and cleaned up in the background, and the lease expires in any case.
func (c *Client) Do(ctx context.Context, name string, fn func(ctx context.Context) error, opts ...Option) error {
	if fn == nil {
		return driver.Invalid("fn", "nil", "a function")
	}
	s, err := c.settings(name, opts)
	if err != nil {
		return err
	}
	h, err := c.engine().WaitAcquire(ctx, ctx, name, s, c.engine().EmitTo(s.Observers), true)
	if err != nil {
		return err
	}
	return c.run(ctx, h, fn)
}

// TryDo is like Do, but makes one attempt and does not wait: if another holds the lock, fn is
// not called and the error is a *[HeldError]. See [Client.TryLock].
func (c *Client) TryDo(ctx context.Context, name string, fn func(ctx context.Context) error, opts ...Option) error {
	if fn == nil {
		return driver.Invalid("fn", "nil", "a function")
	}
	s, err := c.settings(name, opts)
	if err != nil {
		return err
	}
	h, err := c.engine().TryOnce(ctx, ctx, name, s, c.engine().EmitTo(s.Observers), true)
	if err != nil {
		return err
	}
	return c.run(ctx, h, fn)
}

// run runs fn while the lock is held, and releases it.
func (c *Client) run(ctx context.Context, h *engine.Hold, fn func(ctx context.Context) error) error {
	// Promise 7: the release comes after fn has returned or panicked.
	defer h.Finish(ctx)
	if err := h.Err(); err != nil { // granted and canceled at once: do not begin
		if ctx.Err() != nil {
			return c.engine().WaitEnded(ctx, h.Name(), nil)
		}
		return driver.Errorf("holdfast: lock %q: %w", h.Name(), err)
	}
	return h.Verdict(fn(h.Context()))
}

// Lock waits until it has the lock. ctx bounds only the waiting; the hold lasts until Release
// or a loss. If ctx ends first, the error matches both ctx's error and what kept the lock:
// [ErrHeld] with the holder's record, or the backend's failure.
//
// Lock and Do with the context of a hold of the same name would deadlock: they return an error
// that matches ErrHeld at once. The same holds for a context that [context.WithoutCancel] made
// of it, since it is unknown whether the hold waits for its caller. A goroutine that waits for
// the hold's end uses another context.
//
// The waiters of one Client queue first-in-first-out for each name, and only the first asks the
// backend. Where the backend can hand over ([driver.HandOverer]) and wakes waiters, a release
// hands the lock over to the next waiter of this Client in one request, unless that asks for a
// shorter TTL. It does so for up to 50 ms; then waiters of other processes go first. There is
// no order between processes.
func (c *Client) Lock(ctx context.Context, name string, opts ...Option) (*Hold, error) {
	s, err := c.settings(name, opts)
	if err != nil {
		return nil, err
	}
	h, err := c.engine().WaitAcquire(ctx, context.WithoutCancel(ctx), name, s, c.engine().EmitTo(s.Observers), false)
	return (*Hold)(h), err
}

// TryLock makes one attempt and does not wait. If another holds the lock, the error is a
// *[HeldError]. The Client remembers the holder that refused each attempt, so repeated calls of
// TryLock also take over a stuck lock. Any other error that is neither an *[InvalidError] nor
// matches ErrClosed means that the outcome is unknown; should the lock have been taken, it is
// freed in the background.
func (c *Client) TryLock(ctx context.Context, name string, opts ...Option) (*Hold, error) {
	s, err := c.settings(name, opts)
	if err != nil {
		return nil, err
	}
	h, err := c.engine().TryOnce(ctx, context.WithoutCancel(ctx), name, s, c.engine().EmitTo(s.Observers), false)
	return (*Hold)(h), err
}

// settings applies options over the client's defaults and checks them.
func (c *Client) settings(name string, opts []Option) (settings.Settings, error) {
	cfg := c.engine().Defaults()
	for _, o := range opts {
		o.apply(&cfg)
	}
	return c.engine().Settings(name, cfg)
}

// Hold is a lock that this process holds. It is renewed in the background until Release or a
// loss. All methods are safe for concurrent use.
type Hold engine.Hold

func (h *Hold) engine() *engine.Hold { return (*engine.Hold)(h) }

// HoldFromContext returns the innermost hold whose context ctx descends from: the context that
// the function of Do or a runner gets, or [Hold.Context]. It reports false if there is none. Do
// and runners release their holds themselves.
func HoldFromContext(ctx context.Context) (*Hold, bool) {
	h, ok := engine.HoldFrom(ctx)
	return (*Hold)(h), ok
}

// TokenFromContext returns the fencing token of the innermost hold whose context ctx descends
// from, as [HoldFromContext]. It reports false if there is none. It returns the token whether or
// not the hold is still live: the storage that compares tokens decides.
func TokenFromContext(ctx context.Context) (uint64, bool) {
	h, ok := engine.HoldFrom(ctx)
	if !ok {
		return 0, false
	}
	return h.Token(), true
}

// Context ends when the hold does, before another can be granted the lock. Its cause says why:
// [ErrLost], [ErrReleased] or [ErrClosed] (Shutdown). The context of Lock and TryLock carries
// the values, but not the deadline or cancellation, of the context that they were called with;
// that of Do descends from its caller's.
func (h *Hold) Context() context.Context { return h.engine().Context() }

// Lease returns the plain value, for functions that need the lease's ID.
func (h *Hold) Lease() Lease { return h.engine().Lease() }

// Name returns the lock's name; with [WithSlots], the name of the slot's record.
func (h *Hold) Name() string { return h.engine().Name() }

// Slot returns which slot is held, counted from 0. It is 0 without WithSlots.
func (h *Hold) Slot() int { return h.engine().Slot() }

// Token returns the fencing token, which is greater than that of every earlier holder. Give it
// to whatever the lock protects, which then refuses a holder that was paused for too long.
func (h *Hold) Token() uint64 { return h.engine().Token() }

// Err is nil while the lock is held, and afterwards says why it is not. It reads the clock
// itself, without I/O or allocation. So it is right even in the instant after the process was
// paused, before any context could end.
func (h *Hold) Err() error { return h.engine().Err() }

// LostIn returns the time until the hold is lost unless it is renewed. It is not positive if
// the hold was not renewed in time. It goes by the clock alone; Err says whether the hold has
// ended for another reason.
func (h *Hold) LostIn() time.Duration { return h.engine().LostIn() }

// ExpiresIn returns the time until another may be granted the lock, unless it is renewed or
// released before: LostIn and the grace, less 0.1 % of the TTL. Work that outlives the hold must
// have stopped by then.
func (h *Hold) ExpiresIn() time.Duration { return h.engine().ExpiresIn() }

// String describes the lease, without its ID.
func (h *Hold) String() string { return h.engine().String() }

// Release ends the hold's context and releases the lock. Call it when the work is over, also
// after a loss. It may be called again, and by several goroutines: all wait for the one
// release.
//
// At least one request is sent, with a time limit of its own, even if ctx has ended. Failures
// are retried until ctx ends or the lease has expired anyway. The error then says that the lock
// may stay taken until it expires, and a last cleanup goes on in the background. Releasing a
// lost lock is no error.
func (h *Hold) Release(ctx context.Context) error { return h.engine().Release(ctx) }

// Data returns the data stored with the lock; nil if there is none. The error matches [ErrLost]
// if the lock was no longer held when the answer came, and [errors.ErrUnsupported] if the
// backend stores no data. The call ends within the time of [WithRequestTimeout].
func (h *Hold) Data(ctx context.Context) ([]byte, error) { return h.engine().ReadData(ctx) }

// WriteData replaces the data stored with the lock. The backend itself refuses it for a lock
// that is no longer held. Errors are as for Data; data that is too large is an *[InvalidError].
// After any other error the outcome is unknown: the data may have been written, or may still be
// while the lock is held, but not after a later write that succeeded.
//
// A write is refused if an earlier one, whose outcome was unknown, arrived late. It is then
// repeated, up to six times in all: that takes up to 11 backend calls, and about 1.5 s between
// them. Other calls of WriteData and UpdateData of this hold wait meanwhile. If every attempt is
// refused, or ctx ends between two of them, nothing is written and the error matches
// [driver.ErrConflict].
func (h *Hold) WriteData(ctx context.Context, data []byte) error {
	return h.engine().WriteData(ctx, data)
}

// UpdateData reads the data stored with the lock, and writes what update returns; old is nil if
// there is none. If update returns an error, nothing is written and the error is returned as it
// is. Calls of UpdateData and WriteData of one hold take turns, so that none of their changes is
// lost. update must not call them for the same hold.
//
// The write is refused if the data changed after they were read: an earlier write, whose
// outcome was unknown, arrived late. The data are then read again, and update is called again,
// as WriteData describes, with up to 12 backend calls. The errors are those of WriteData.
func (h *Hold) UpdateData(ctx context.Context, update func(old []byte) ([]byte, error)) error {
	return h.engine().UpdateData(ctx, update)
}
