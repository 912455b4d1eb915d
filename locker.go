package holdfast

import "github.com/holdfast-go/holdfast/driver"

// The contract between programs and backends lives in package driver, which programs seldom
// need to import: its types that they meet have their names here too.
type (
	// Locker is what a storage backend implements; see [driver.Locker].
	Locker = driver.Locker
	// Lease is one granted lease, as the backend knows it; see [driver.Lease].
	Lease = driver.Lease
	// LeaseID proves that its bearer holds a lease, and is never printed; see [driver.LeaseID].
	LeaseID = driver.LeaseID
	// Record is what a backend knows of a name at one moment; see [driver.Record].
	Record = driver.Record
	// State says whether a lock is held: [StateFree], [StateHeld] or [StateUnknown].
	State = driver.State
	// HeldError says who holds a lock; it matches [ErrHeld].
	HeldError = driver.HeldError
	// InvalidError names the argument that is not allowed, and what is; it matches [ErrInvalid].
	InvalidError = driver.InvalidError
)

// The states of a lock. The zero value says that the backend did not report it.
const (
	StateUnknown = driver.StateUnknown
	StateFree    = driver.StateFree
	StateHeld    = driver.StateHeld
)

// Errors of locks, for errors.Is.
var (
	// ErrHeld: another holds the lock. errors.As gives a *[HeldError].
	ErrHeld = driver.ErrHeld
	// ErrLost: the lease ended before it was released, or no longer counts as held.
	ErrLost = driver.ErrLost
	// ErrConflict: the data that a write would replace were written meanwhile.
	ErrConflict = driver.ErrConflict
	// ErrInvalid: an argument is not allowed. errors.As gives an *[InvalidError].
	ErrInvalid = driver.ErrInvalid
	// ErrClosed: the Locker was closed or the Client shut down.
	ErrClosed = driver.ErrClosed
)

// NewLeaseID makes the ID of a text that [LeaseID.Reveal] returned in another process.
func NewLeaseID(text string) LeaseID { return driver.NewLeaseID(text) }
