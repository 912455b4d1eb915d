package driver

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// Locker is what a storage backend implements. Programs use it through a client
// (holdfast.Client). An implementation that passes the suite in package lockertest is as
// good as the project's own drivers.
//
// # Calls
//
// All methods are safe for concurrent use. Each method
//
//   - checks its arguments, names and TTLs included, before it does I/O;
//   - returns soon after its context ends, whatever the backend does;
//   - applies a time limit of its own if the context has none.
//
// # Errors
//
// A method that fails with a known outcome returns an error that matches exactly one of
// [ErrHeld], [ErrLost], [ErrConflict], [ErrInvalid] and [ErrClosed]. Every other error,
// a context's error included, means that the outcome is unknown: the backend may have
// done what was asked, or may still do it. For this reason no error wraps the cause of a
// context's end ([context.Cause]), which may be the loss of another lock.
//
// Errors name the operation, the lock and the backend (see [OpError]), and never a
// credential or a lease ID.
type Locker interface {
	// TryAcquire makes one attempt to take req.Name for req.TTL. It does not wait for
	// the holder. The backend's clock alone judges expiry.
	//
	// The lock is granted in each of these cases:
	//
	//   - The name has no record, or the lock was released, or its lease expired.
	//   - The call is a repeat: req.ID itself holds the lock, and its lease has not
	//     expired. The repeat returns the same token, extends the lease as Renew does,
	//     and leaves the data alone. This makes retrying after a lost answer safe.
	//   - req.Replace is set and still equals the record's Revision, although the lease
	//     has not expired.
	//
	// The token of a new grant is greater than that of every earlier grant of the name.
	// There is one exception: if the lease of an ID has ended and nobody held the lock
	// since, the same ID may get the same token again. A Client uses an ID again only to
	// repeat a request.
	//
	// A backend with a [Queue] refuses a request whose turn has not come, although the lock is
	// free. In all other cases, too, the error is a *[HeldError]. Its Record has what the backend knows
	// at no extra cost. A repeat by a holder whose lease was broken is refused in this way
	// too.
	TryAcquire(ctx context.Context, req Request) (Lease, error)

	// Renew extends the lease to at least l.TTL from now on the backend's clock. If the
	// backend fixes the length of a lease at the grant, Renew extends it to that length
	// from now. Renew never shortens a lease. It also renews a lease that has expired, if
	// nobody has taken the lock since.
	//
	// ErrLost means that the lease is certainly not l's any more: it was released or
	// broken, another has taken the lock, or the record is gone.
	Renew(ctx context.Context, l Lease) error

	// Release frees the lock if l still holds it, so that the next TryAcquire succeeds
	// at once. The record's token and data survive. If l does not hold the lock (any
	// more), Release returns nil and changes nothing: it never touches another's lease.
	// Only l.Name and l.ID matter, and l.Contended for the way in which waiters are woken.
	//
	// A release can be sent twice and take effect late, even after Release has returned. So the
	// caller does not use the ID for another request.
	Release(ctx context.Context, l Lease) error

	// Inspect returns what the backend knows of a name. A name without a record is Free.
	// What the backend does not report stays unknown, as [Record] describes.
	Inspect(ctx context.Context, name string) (Record, error)

	// Limits and Capabilities are constant for a Locker, and do no I/O.
	Limits() Limits
	Capabilities() Capabilities

	// Close frees what the Locker itself made: goroutines, connections. It does not
	// release leases. After Close, every method with an error result returns ErrClosed.
	// Closing again does nothing.
	//
	// ctx bounds only the orderly part of closing. Once ctx has ended, even before the
	// call, Close frees everything at once without waiting for the backend. An error says
	// what could not be freed.
	Close(ctx context.Context) error
}

// Request asks for a lock. [Request.Validate] has the rules. Formatting and encoding
// leave out the ID and the data.
type Request struct {
	// Name of the lock: valid UTF-8 of 1 to Limits.MaxName bytes. Names are compared
	// byte for byte, whatever characters they have.
	Name string
	// ID proves ownership. It is a fresh random UUID for every acquisition: two requests
	// of one process with different IDs exclude each other.
	ID LeaseID `json:"-"`
	// Owner is for people to read and proves nothing.
	Owner string
	// TTL is how long the lease lasts on the backend's clock unless it is renewed.
	TTL time.Duration
	// Data replaces the data stored with the lock. nil keeps the stored data.
	Data []byte `json:"-"`
	// Replace is normally zero. Otherwise it is a Revision from Record.Revision, and the
	// request takes the lock over from that very holder and renewal, although the lease
	// has not expired. A waiter sets it after it has seen the Revision unchanged for the
	// holder's whole TTL. The backend's clock must have stepped back then, and without
	// Replace the lock would be stuck.
	Replace Revision `json:"-"`
	// QueueFor, if not zero, says that the caller waits for the lock. If the request is refused
	// by a backend with a [Queue], the caller has a position in the queue for so long, or until
	// its next request refreshes it. Other backends ignore it.
	QueueFor time.Duration
}

// Lease is a granted request. It is a plain value: any Locker of the same backend can
// renew and release it, also in another process. Its ID is a secret that formatting and
// encoding leave out; see [LeaseID].
type Lease struct {
	Name  string
	ID    LeaseID `json:"-"`
	Owner string
	// Token is the fencing token. It is greater than every earlier token of the name.
	Token uint64
	TTL   time.Duration
	// Contended says that others seem to wait for the lock. Release may then choose a way that
	// wakes them sooner and costs another call. Nothing else depends on it.
	Contended bool
}

// String formats the lease without its ID.
func (l Lease) String() string {
	return fmt.Sprintf("lease of %q by %q, token %d, TTL %s", l.Name, l.Owner, l.Token, FormatDuration(l.TTL))
}

// GoString keeps the ID out of %#v.
func (l Lease) GoString() string { return "driver.Lease(" + l.String() + ")" }

// LogValue keeps the ID out of structured logs.
func (l Lease) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", l.Name), slog.String("owner", l.Owner),
		slog.Uint64("token", l.Token), slog.Duration("ttl", l.TTL))
}

// String formats the request without its ID and data.
func (r Request) String() string {
	return fmt.Sprintf("request for %q by %q, TTL %s", r.Name, r.Owner, FormatDuration(r.TTL))
}

// GoString keeps the ID and the data out of %#v.
func (r Request) GoString() string { return "driver.Request(" + r.String() + ")" }

// LogValue keeps the ID and the data out of structured logs.
func (r Request) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", r.Name), slog.String("owner", r.Owner),
		slog.Duration("ttl", r.TTL))
}

// Limits are what a backend accepts. Fields may be added; the zero value of a new field
// will mean that there is no such limit.
type Limits struct {
	// MinTTL and MaxTTL bound a TTL, which must be a whole multiple of TTLStep.
	MinTTL, MaxTTL, TTLStep time.Duration
	// TTLNote, if not empty, ends the error about a TTL that is out of range. It says why
	// the range is what it is, and where another range applies.
	TTLNote string
	// MaxName, MaxOwner and MaxData are in bytes.
	MaxName, MaxOwner, MaxData int
	// Poll is the default interval at which a waiter asks the backend when nothing wakes
	// it. It is short if a call is free, and long if each call is billed.
	Poll time.Duration
}
