package holdfast

import (
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/cause"
)

// Locker takes, renews and releases the locks of one storage backend. Every driver implements it, so a program swaps
// its backend by changing the URL that it gives to [Open]:
//
//   - MongoDB: a lock is one document, whose _id is the lock's name. An upsert takes it, renewals move its expiry on,
//     and the server's clock judges that expiry. A TTL index removes documents that nobody uses any more. All writes
//     have majority write concern, so that a fail-over cannot make two holders.
//   - Azure Blob Storage: a lock is a blob, and holding it is a lease on the blob, which the service ends by itself
//     unless it is renewed.
//   - PostgreSQL: a lock is a row. A folder: it is a file.
//
// A Locker makes single attempts. A [Client] on top of it waits, renews, retries and cleans up, and [LeaderAwareRunner]
// elects a leader; programs use these. The methods and the rules that they keep, which are for authors of drivers, are
// those of [driver.Locker]; package lockertest tests a Locker against them.
type Locker = driver.Locker

// The contract between programs and backends is package driver. Most programs do not import it:
// the types that they use have names here too.
type (
	// Lease is one granted lease; see [driver.Lease].
	Lease = driver.Lease
	// Record is what a backend knows about a lock at one moment; see [driver.Record].
	Record = driver.Record
	// HeldError says who holds a lock; it matches [ErrHeld].
	HeldError = driver.HeldError
	// InvalidError names the argument that is not allowed, its value, and what is allowed.
	InvalidError = driver.InvalidError
	// BreakTarget says whose lease [Client.Break] and [Client.BreakNow] break; see [BreakToken], [BreakUnknown] and [BreakAnybody].
	BreakTarget = driver.BreakTarget
	// OpError names the operation, the lock and the backend of a failure; see [driver.OpError].
	OpError = driver.OpError
	// Info is what a backend declares about itself; see [driver.Info].
	Info = driver.Info
	// Capabilities are what a backend can do beyond [Locker]; see [driver.Capabilities].
	Capabilities = driver.Capabilities
)

// BreakToken is the holder with a token: the one that somebody has seen. A later holder is left alone.
func BreakToken(token uint64) BreakTarget { return driver.BreakToken(token) }

// BreakUnknown is the holder whose token the backend does not know: somebody took the lease with another program, or
// acquired the lock a moment ago. A holder with a token is left alone.
func BreakUnknown() BreakTarget { return driver.BreakUnknown() }

// BreakAnybody is whoever holds the lock when the backend gets the request.
func BreakAnybody() BreakTarget { return driver.BreakAnybody() }

// Errors, for errors.Is.
var (
	// ErrHeld: another holds the lock. errors.As gives a *[HeldError].
	ErrHeld = driver.ErrHeld
	// ErrLost: the lease ended before it was released, or no longer counts as held.
	ErrLost = driver.ErrLost
	// ErrClosed: the Locker was closed, or the Client was shut down.
	ErrClosed = driver.ErrClosed
	// ErrDenied: the backend refuses the request until a person changes something: a missing
	// right, a wrong credential, a read-only folder, a full disk.
	ErrDenied = driver.ErrDenied
	// ErrDamaged: the lock's record cannot be used until a person repairs or deletes it.
	ErrDamaged = driver.ErrDamaged
	// ErrInvalid: an argument is not allowed. errors.As gives an *[InvalidError].
	ErrInvalid = driver.ErrInvalid
	// ErrConflict: the data of a lock were written meanwhile; see [Hold.WriteData].
	ErrConflict = driver.ErrConflict
	// ErrReleased is the cause of a hold's context after its release.
	ErrReleased = cause.ErrReleased
	// ErrSteppedDown is the cause of a task's context when leadership was given up: by
	// StepDown, after a failed health check, or because the task sent no heartbeat in time.
	ErrSteppedDown = cause.ErrSteppedDown
)
