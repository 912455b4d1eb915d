package driver

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/holdfast-go/holdfast/driver/text"
)

// Locker is what a storage backend implements. Programs use a [Client] on top
// of it; drivers for MongoDB, Azure Blob Storage, files and memory live under
// drivers/, and any other implementation that passes the suite in package lockertest is as good.
//
// All methods are safe for concurrent use. They check their arguments, TTLs and
// names included, before they do I/O. Each returns soon after its context
// ends, whatever the backend does, and applies a time limit of its own when the
// context has none.
//
// Errors: a method returns an error that matches exactly one of [ErrHeld],
// [ErrLost], [ErrConflict], [ErrInvalid] and [ErrClosed] when it knows the outcome. Every other
// error, a context's included, means that the outcome is unknown: the backend
// may have done it, or may still do it. So the cause of a context's end, which may
// be the loss of another lock, is not wrapped. Errors name the operation, the lock and
// the backend (see [OpError]), never a credential or a lease ID.
type Locker interface {
	// TryAcquire makes one attempt to take req.Name for req.TTL and does not
	// wait for its holder. It judges expiry by the backend's clock alone.
	//
	// The lock is granted if the name has no record, was released, or expired.
	// The token is greater than that of every earlier grant of the name.
	//
	// If the unexpired holder is req.ID itself, the call is a repeat: it
	// succeeds with the same token, extends the lease as Renew does, and leaves
	// the data alone. That makes retrying after a lost answer safe. Once that lease
	// has ended, and nobody held the lock since, the same ID may get the same token
	// again; a Client never uses an ID again. A holder whose lease was broken is
	// refused like any other.
	//
	// If another holds it, the error is a *[HeldError] whose Record tells what
	// the backend knows at no extra cost. If req.Replace is set and the record's
	// Revision still equals it, the lock is granted although it has not expired.
	TryAcquire(ctx context.Context, req Request) (Lease, error)

	// Renew extends the lease to at least l.TTL from now on the backend's clock (a
	// backend whose leases have one length: to that); it never shortens it. A lease
	// that expired but was taken by nobody may be renewed. ErrLost says that the
	// lease is definitely not l's any more: it was released, taken by another,
	// broken, or its record is gone.
	Renew(ctx context.Context, l Lease) error

	// Release frees the lock if l still holds it, so that the next TryAcquire
	// succeeds at once. It returns nil also when l does not hold it (any more),
	// and then changes nothing: another's lease is never touched. The record's
	// token and data survive. Only l.Name and l.ID matter.
	Release(ctx context.Context, l Lease) error

	// Inspect tells what is known of a name. A name without a record is Free.
	// What the backend does not tell stays unknown, as [Record] describes.
	Inspect(ctx context.Context, name string) (Record, error)

	// Limits and Capabilities are constant for a Locker, and do no I/O.
	Limits() Limits
	Capabilities() Capabilities

	// Close frees what the Locker itself made: goroutines, connections. It does
	// not release leases. Afterwards every method with an error result returns
	// ErrClosed. Closing again does nothing.
	//
	// ctx bounds only the orderly part of closing. Once ctx has ended, even before the call,
	// Close frees everything at once without waiting for the backend. An error says what
	// could not be freed.
	Close(ctx context.Context) error
}

// Request asks for a lock. [Request.Validate] has the rules. Formatting and encoding leave
// the ID and the data out.
type Request struct {
	// Name of the lock: valid UTF-8, 1 to Limits.MaxName bytes. Every such string
	// is a name of its own, whatever characters it holds.
	Name string
	// ID proves ownership: a fresh random UUID for every acquisition. Two
	// requests of one process with different IDs exclude each other.
	ID LeaseID `json:"-"`
	// Owner is for people to read and proves nothing.
	Owner string
	// TTL is how long the lease lasts on the backend's clock unless renewed.
	TTL time.Duration
	// Data replaces the data stored with the lock. nil keeps what is there.
	Data []byte `json:"-"`
	// Replace is normally zero. It asks to take over from the very holder and
	// renewal it was read from (Record.Revision) although that lease has not
	// expired. It is for a waiter that saw that Revision unchanged for the
	// holder's whole TTL: then the backend's clock must have stepped back, or the
	// lock would be stuck.
	Replace Revision `json:"-"`
}

// Lease is a granted request: a plain value that any Locker of the same backend
// can renew and release, also in another process. Its ID is a capability: formatting
// and encoding a Lease leave the ID out, see [LeaseID].
type Lease struct {
	Name  string
	ID    LeaseID `json:"-"`
	Owner string
	// Token is the fencing token: greater than every earlier one for the name.
	Token uint64
	TTL   time.Duration
}

// String formats the lease without its ID.
func (l Lease) String() string {
	return fmt.Sprintf("lease of %q by %q, token %d, TTL %s", l.Name, l.Owner, l.Token, text.Duration(l.TTL))
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
	return fmt.Sprintf("request for %q by %q, TTL %s", r.Name, r.Owner, text.Duration(r.TTL))
}

// GoString keeps the ID and the data out of %#v.
func (r Request) GoString() string { return "driver.Request(" + r.String() + ")" }

// LogValue keeps the ID and the data out of structured logs.
func (r Request) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", r.Name), slog.String("owner", r.Owner),
		slog.Duration("ttl", r.TTL))
}

// State says whether a lock is held.
type State uint8

// The states of a lock. The zero value says that the backend did not tell.
const (
	StateUnknown State = iota
	StateFree
	StateHeld
)

// String returns "free", "held" or "unknown".
func (s State) String() string {
	switch s {
	case StateFree:
		return "free"
	case StateHeld:
		return "held"
	default:
		return "unknown"
	}
}

// Record is what a backend knows of a name at one moment. The zero value of
// each field means unknown (or none), so that a fact nobody told is never
// mistaken for one.
type Record struct {
	Name  string `json:"name"`
	State State  `json:"-"`
	// Owner of the present holder; of a free lock, the last one's if known.
	Owner string `json:"owner,omitempty"`
	// Token of the last grant; 0 if unknown or never granted.
	Token uint64 `json:"token,omitempty"`
	// TTL of the present holder's lease: the MaxTTL that it was granted or renewed
	// for, so that a Revision unchanged for this long means that the lease is over.
	TTL time.Duration `json:"-"`
	// Remaining time of a held lock on the backend's clock when it answered. It
	// means something only if RemainingKnown.
	Remaining      time.Duration `json:"-"`
	RemainingKnown bool          `json:"-"`
	// AcquiredAt and RenewedAt are readings of the backend's clock.
	AcquiredAt time.Time `json:"acquiredAt,omitzero"`
	RenewedAt  time.Time `json:"renewedAt,omitzero"`
	// Broken says that the holder may not renew any more (see [Breaker]).
	Broken bool `json:"broken,omitempty"`
	// Data stored with the lock. A HeldError's record may lack it.
	Data []byte `json:"data,omitempty"`
	// Revision changes with every grant and renewal; zero where the backend
	// cannot compare it.
	Revision Revision `json:"-"`
}

// Revision marks one holder and one renewal of it, for [Request.Replace]. It is
// compared with == and prints nothing of its content, which may be a secret.
type Revision struct{ mark hidden }

// NewRevision is for drivers: mark is whatever they need to compare.
func NewRevision(mark string) Revision { return Revision{hide(mark)} }

// Mark is for drivers: what NewRevision was given.
func (r Revision) Mark() string { return r.mark.reveal() }

// IsZero reports whether there is no revision.
func (r Revision) IsZero() bool { return r == Revision{} }

// String hides the content.
func (r Revision) String() string {
	if r.IsZero() {
		return "no revision"
	}
	return "revision"
}

// GoString hides the content.
func (r Revision) GoString() string { return "driver.Revision(" + r.String() + ")" }

// Limits of a backend. New fields may come; their zero value will mean "none".
type Limits struct {
	// MinTTL and MaxTTL bound a TTL; it must be a whole multiple of TTLStep.
	MinTTL, MaxTTL, TTLStep time.Duration
	// TTLNote, if not empty, ends the error about a TTL that is out of range: why
	// there is this range, and where there is another.
	TTLNote string
	// MaxName, MaxOwner and MaxData are in bytes.
	MaxName, MaxOwner, MaxData int
	// Poll is how often a waiter that nothing wakes should ask, if the user does
	// not say: short where asking is free, long where each call is billed.
	Poll time.Duration
}

// Capabilities are what a backend can do beyond Locker; nil means that it cannot.
// It is a struct of interfaces, not type assertions on the Locker, so that a
// wrapper can wrap each one or take it away. A wrapper makes a new struct and sets what it
// passes on: new capabilities come, and in a changed copy they would go around it.
type Capabilities struct {
	Watcher        Watcher
	HandOverer     HandOverer
	BatchRenewer   BatchRenewer
	BatchInspector BatchInspector
	Lister         Lister
	Breaker        Breaker
	DataStore      DataStore
}

// Watcher wakes waiters, so that they need not poll.
type Watcher interface {
	// Watch begins to watch a name and returns at once, without I/O. wake is called
	// when the watch has come into effect (again, after a gap) and whenever the name
	// may have become free by a release or a removal; expiry need not wake anybody,
	// and false alarms are allowed. If watching turns out to be impossible, wake is
	// never called, so callers poll as well.
	//
	// wake is called by any goroutine, by several at a time, and also by Watch itself
	// before it returns: hold no mutex then that wake takes. It must return at once and
	// must not call the Locker, but it may call stop.
	//
	// stop ends the watch and may be called more than once. It does not wait: a call of
	// wake that is under way may end after it.
	Watch(name string, wake func()) (stop func())
}

// HandOverer passes a lock on in one step: half the calls of a release and an acquire, and
// nobody else is woken. A Client does so among its own waiters, for a short time, where there
// is a Watcher to wake the others in the end.
type HandOverer interface {
	// HandOver does what TryAcquire does, except that a lock which from holds counts as
	// free, broken or not: from is over then, and a later Renew of it is refused with
	// ErrLost. Only from.Name, which must be req.Name, and from.ID matter.
	//
	// In all else it is TryAcquire: if from does not hold the lock (any more), the lock is
	// granted if it is free, and refused with a *[HeldError] if another has it; if req.ID
	// holds it, the call is a repeat, also if from is that very lease. An outcome that is
	// unknown leaves it open which of the two, if any, holds the lock: Release of from, and
	// then TryAcquire with req, settle it.
	HandOver(ctx context.Context, from Lease, req Request) (Lease, error)
}

// BatchRenewer renews many leases for the price of a few calls.
type BatchRenewer interface {
	// RenewBatch renews each lease as Renew does and returns one result for
	// each, in order; every error has the meaning it has for Renew.
	RenewBatch(ctx context.Context, leases []Lease) []error
}

// BatchInspector reads many records for the price of a few calls. Callers that wait for
// many names, or distribute them, use it to check them in one call.
type BatchInspector interface {
	// InspectBatch tells of each name what Inspect does, without the data, and returns a
	// record and an error for each, in order; names may occur twice. Of a held lock what
	// would cost a call of its own may stay unknown, but not that it is held. A name that
	// is not valid, or whose record is damaged, is no error of the others. The answers
	// may be as old as the backend's own reading of them, not older than the call.
	InspectBatch(ctx context.Context, names []string) ([]Record, []error)
}

// Lister finds the records that exist.
type Lister interface {
	// List yields the records whose names begin with prefix, in the byte order
	// of the names. The sequence may be ranged over once.
	//
	// A record that cannot be read does not end the sequence. It is yielded in its place,
	// with the error and only its Name. If the record does not tell its name, Name is what
	// the backend calls the record. The caller should skip and report it. An error with a
	// zero Record ends the sequence, which is then incomplete. The conformance suite cannot
	// damage a record, so a driver tests this itself: it damages one record between sound ones,
	// and expects all of their names, with an error at that one.
	List(ctx context.Context, prefix string) iter.Seq2[Record, error]
}

// Breaker takes a lock from its holder. Breaking a free lock is no error. Both methods affect
// only the holder at the time of the call: a request that arrives late does not affect the
// next holder.
type Breaker interface {
	// Break has the holder's renewals refused from now on; the lock becomes free
	// when its lease runs out, so two holders never overlap.
	Break(ctx context.Context, name string) error
	// BreakNow frees the lock at once. The holder is not told before its next
	// renewal: until then it and the next holder may both be at work.
	BreakNow(ctx context.Context, name string) error
}

// DataStore reads and writes the bytes stored with a lock.
type DataStore interface {
	// ReadData returns the data of any lock, held or not, and their revision; nil if it
	// has none.
	ReadData(ctx context.Context, name string) ([]byte, DataRevision, error)
	// WriteData replaces the data if l still holds the lock and the data still have the
	// revision at. It returns ErrLost if l does not hold the lock, else [ErrConflict] if
	// the data have another revision; both times it writes nothing. Comparing and writing
	// are one step for the backend: a write that arrives late, after the data were written
	// again, changes nothing.
	WriteData(ctx context.Context, l Lease, data []byte, at DataRevision) error
}

// DataRevision marks one state of a lock's data. A new holder's data have the revision
// {Token: its token} whether it brought them or found them, so the first write needs no
// read. A record from before there were revisions counts as one without a write.
type DataRevision struct {
	Token  uint64 // of the last grant; 0 if there was none
	Writes uint64 // by [DataStore.WriteData] since that grant
}

// Next is the revision after one more write.
func (r DataRevision) Next() DataRevision { return DataRevision{r.Token, r.Writes + 1} }
