package holdfast

import "github.com/holdfast-go/holdfast/driver"

// The contract between programs and backends is package driver. Most programs do not import it:
// the types that they use have names here too.
type (
	// Locker is what a storage backend implements; see [driver.Locker].
	Locker = driver.Locker
	// Lease is one granted lease; see [driver.Lease].
	Lease = driver.Lease
	// Record is what a backend knows about a lock at one moment; see [driver.Record].
	Record = driver.Record
	// HeldError says who holds a lock; it matches [ErrHeld].
	HeldError = driver.HeldError
	// InvalidError names the argument that is not allowed, its value, and what is allowed.
	InvalidError = driver.InvalidError
)
