package mongo

import (
	"math"

	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// The names in documents and in replies; see "The documents" in doc.go.

// The fields of a lock's document, and the version of this layout.
const (
	fieldName       = "_id"
	fieldVersion    = "v"
	fieldLeaseID    = "kid"
	fieldOwner      = "owner"
	fieldRenewedAt  = "ts"
	fieldExpiresAt  = "expiresAt"
	fieldAcquiredAt = "acquiredAt"
	fieldToken      = "token"
	fieldTTL        = "ttl"
	fieldData       = "data"
	fieldBroken     = "broken"
	fieldWrites     = "writes"     // how often the present holder wrote the data
	fieldChanges    = "changes"    // see withChangeCount
	fieldReleasedAt = "releasedAt" // these three say how the last tenure ended; see history.go
	fieldBrokenAt   = "brokenAt"
	fieldFreedAt    = "freedAt"
	fieldHistory    = "history"

	fieldNow = "now" // in replies: the server's clock

	schemaVersion = 1
)

// The queue of a lock, and of its waiters.
const (
	fieldQueue    = "queue"
	fieldReserve  = "reserve"
	fieldWaiter   = "w"
	fieldUntil    = "until"
	fieldPolls    = "polls"    // true for a waiter that no hint wakes, else missing
	fieldShared   = "s"        // true for a waiter that asks for the lock as a reader, else missing
	fieldWoken    = "woken"    // in replies: the waiters that a release wakes
	fieldWaiters  = "waiters"  // in replies: the length of the queue
	fieldPosition = "position" // in replies: this Locker's position, counted from 1
	fieldTurn     = "turn"     // in replies to a reader: the number of its turn, counted from 1
	fieldFull     = "full"     // in replies: whether no further reader may join those that hold the lock
	fieldLine     = "line"     // in replies: the whole queue, if readers are in it

	emptied = -1 // the reservation of a queue that has no waiter that hints wake, because the holder was the last
)

// The readers of a lock, and the version of a document that has them.
const (
	sharedVersion = 2
	sharedHolder  = lockstate.Shared

	fieldReaders  = "readers"
	fieldRenewals = "renewals" // rises with each renewal by a reader, from 0 at the latest grant: with its token, this is the revision

	readerID       = "k" // the ID of the lease
	readerOwner    = pastOwner
	readerToken    = pastToken
	readerAcquired = pastAcquired
	readerExpires  = pastExpires
	readerTTL      = "l"
	readerRenewed  = "s"
	readerBroken   = "b" // true, else missing

	fieldReader  = "reader"  // in replies: the reader whom the request is about
	fieldDamaged = "damaged" // in replies: true if the readers are; else missing
)

// A past lease in the history.
const (
	pastOwner    = "o"
	pastToken    = "t"
	pastAcquired = "a"
	pastExpires  = "e"
	pastReleased = "r"
	pastBroken   = "b"
	pastFreed    = "f"
	pastHeld     = "k" // whether there was a holder at the next grant
	pastTaken    = "n" // when the next grant took the lock from a holder, which could be unexpired
	pastTakenBy  = "w" // takenByHandOver or takenByReplace

	// Of a reader, which is added when it has ended, the history has its end instead of the fields from pastExpires on.
	pastUntil = "u"
	pastEnd   = "x" // the number of a driver.End

	takenByHandOver = "h" // written by older versions
	takenByReplace  = "r"
)

// lastToken cannot be exceeded, so a record that has it is damaged.
const lastToken = int64(math.MaxInt64)

// The variables of an acquire, and the expressions that refer to them.
const (
	varID, refID             = "id", "$$id"
	varOwner, refOwner       = "owner", "$$owner"
	varTTL, refTTL           = "ttl", "$$ttl"
	varData, refData         = "data", "$$data"
	varReplaced, refReplaced = "replaced", "$$replaced"
	varMe, refMe             = "me", "$$me"
	varQueueFor, refQueueFor = "queueFor", "$$queueFor"
	varPolls, refPolls       = "polls", "$$polls" // true or missing
	varKeep, refKeep         = "keep", "$$keep"
)

// recordFields are the fields that a record can have.
var recordFields = []string{fieldName, fieldVersion, fieldLeaseID, fieldOwner, fieldRenewedAt, fieldExpiresAt, fieldAcquiredAt, fieldToken,
	fieldTTL, fieldData, fieldBroken, fieldWrites, fieldChanges, fieldReleasedAt, fieldBrokenAt, fieldFreedAt, fieldHistory, fieldQueue,
	fieldReserve, fieldReaders, fieldRenewals}
