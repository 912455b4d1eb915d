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
// [ErrHeld], [ErrLost], [ErrConflict], [ErrInvalid], [ErrClosed], [ErrDenied] and
// [ErrDamaged]. The last two are also lasting: a Client returns them to a caller whose first
// request meets them, instead of retrying. Every other error, a context's error included, means that the outcome is unknown: the backend
// may have done what was asked, or may still do it. For this reason no error wraps the cause of a
// context's end ([context.Cause]), which may be the loss of another lock.
//
// A driver that knows that a request never left the process says so by [OpError].NotSent. It concludes that from what it
// has not done, such as to get a connection, or from a list of errors that mean nothing else. A driver that is wrong here
// leaves a lock held, since nobody releases it. So it leaves the outcome unknown where it is not certain: also if an earlier attempt
// of the same call, one of the client library's included, may have been sent.
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
	//
	// After an error that also matches [ErrIDReleased] the caller does not send the ID in another
	// request: a release of it can still arrive, and would free the lock that the request was granted.
	// If the outcome of an earlier request with the ID is unknown, the caller releases the ID, as it
	// does when it gives up.
	TryAcquire(ctx context.Context, req Request) (Lease, error)

	// Renew extends the lease to at least l.TTL from now on the backend's clock. If the
	// backend fixes the length of a lease at the grant, Renew extends it to that length
	// from now. Renew never shortens a lease. It also renews a lease that has expired, if
	// nobody has taken the lock since. A Shared lease that has expired ends for good when the last
	// other holder's ends by a release or by BreakNow.
	//
	// Without an error it returns l with the State for the next request. l.State may be older than
	// what the backend has, or empty; see [LeaseState].
	//
	// ErrLost means that the lease is certainly not l's any more: it was released or
	// broken, another has taken the lock, or the record is gone.
	Renew(ctx context.Context, l Lease) (Lease, error)

	// Release frees the lock if l still holds it, so that the next TryAcquire succeeds
	// at once. The record's token and data survive. If l does not hold the lock (any
	// more), Release returns nil and changes nothing: it never touches another's lease.
	// Only l.Name, l.ID and l.Mode matter. l.State may save a call, and l.Contended chooses the way in which
	// waiters are woken.
	//
	// A release can be sent twice and take effect late, even after Release has returned. So the
	// caller does not use the ID for another request.
	Release(ctx context.Context, l Lease) error

	// Inspect returns what the backend knows of a name. A name without a record is Free.
	// What the backend does not report stays unknown, as [Record] describes.
	Inspect(ctx context.Context, name string) (Record, error)

	// Info and Capabilities are constant for a Locker, and do no I/O.
	Info() Info
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
	// Mode is Exclusive, the zero value, or another of Info.Modes. A Shared request is also granted while others hold the
	// lock Shared, fewer than [MaxHolders]. It has an owner of at most [MaxSharedOwner] bytes and no Data, since
	// those belong to all. An ID that holds the lock in one mode is refused in the other.
	//
	// With a [Queue], a Shared request is refused while an Exclusive one has a position before it. So an arriving
	// reader does not overtake a waiting writer, and readers that follow one another in the queue have one turn.
	Mode Mode
	// Waiter is who asks, as the backend's queues know it, or empty. A waiter that has a position is granted a
	// free lock in its turn, also if it does not wait any more.
	Waiter WaiterID
	// QueueFor, if not zero, says that the Waiter, which is not empty then, waits for the lock. It may be set for a
	// backend without a Queue. If the request is refused by a backend with a [Queue], the waiter has a position
	// in the queue for so long, or until its next request refreshes it. Other backends ignore it.
	QueueFor time.Duration
}

// Lease is a granted request. It is a plain value: any Locker of the same backend can
// renew and release it, also in another process. Its ID is a secret that formatting and
// encoding leave out; see [LeaseID]. They leave out its State, too.
type Lease struct {
	Name  string
	ID    LeaseID `json:"-"`
	Owner string
	// Token is the fencing token. It is greater than every earlier token of the name.
	Token uint64
	TTL   time.Duration
	// Mode is that of the request.
	Mode Mode
	// Contended says that others seem to wait for the lock. Release may then choose a way that
	// wakes them sooner and costs another call. Nothing else depends on it.
	Contended bool
	// State is what the driver wants to know again with the next request for this lease.
	State LeaseState `json:"-"`
}

// LeaseState is what a driver knows of a lease beyond its fields, such as the version of the record that it
// has written. Many drivers need none. A caller passes the State of the lease's latest answer on with its
// next request. It does not read, compare, keep or print the State.
//
// A State promises nothing. The record may have been written since, by this lease or by others: after a
// request whose answer was lost, by a waiter, by WriteData, or by Break. The State is empty if another process
// uses the lease. So a driver uses it only where the backend itself refuses a write that is based on an old
// one. When that happens, or the State is not of this lease, the driver reads the record and decides by
// name and ID, as with an empty State. An old or empty State alone is no reason for an error.
//
// A LeaseState prints nothing of its content, which may be a secret.
type LeaseState struct{ content *string } // behind a pointer, so that printing by reflection shows an address

// NewLeaseState makes a LeaseState of any text. The empty text makes the zero value.
func NewLeaseState(content string) LeaseState {
	if content == "" {
		return LeaseState{}
	}
	return LeaseState{&content}
}

// Content returns the text that NewLeaseState was given. It is for drivers.
func (s LeaseState) Content() string {
	if s.content == nil {
		return ""
	}
	return *s.content
}

// IsZero reports whether the state is empty.
func (s LeaseState) IsZero() bool { return s.content == nil }

// String hides the content.
func (s LeaseState) String() string {
	if s.IsZero() {
		return "no lease state"
	}
	return "lease state"
}

// GoString hides the content.
func (s LeaseState) GoString() string { return "driver.LeaseState(" + s.String() + ")" }

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
