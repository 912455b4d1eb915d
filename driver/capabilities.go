package driver

import (
	"context"
	"iter"
)

// Capabilities are what a backend can do beyond [Locker]. A nil field means that it cannot.
//
// It is a struct of interfaces, not a set of type assertions on the Locker, so that a
// wrapper can wrap a capability or take it away. A wrapper should be made with [Intercept],
// which knows all of them. If it changed a copy of the struct instead, capabilities that are
// added later would bypass it.
type Capabilities struct {
	Waker          Waker
	Queue          Queue // only with a Waker
	BatchRenewer   BatchRenewer
	BatchReleaser  BatchReleaser
	BatchInspector BatchInspector
	Lister         Lister
	Breaker        Breaker
	DataStore      DataStore
	Checker        Checker
}

// BatchRenewer renews many leases for the price of a few calls.
type BatchRenewer interface {
	// RenewBatch renews each lease as Renew does. It returns one lease and one error for each lease,
	// in order. Every result has the meaning that it has for Renew. It may return the slice that it
	// was given, and does not change that.
	RenewBatch(ctx context.Context, leases []Lease) ([]Lease, []error)
}

// BatchReleaser releases many leases for the price of a few calls.
type BatchReleaser interface {
	// ReleaseBatch releases each lease as Release does, and wakes the waiters of each lock. It
	// returns one result for each lease, in order. Every error has the meaning that it has for
	// Release. Like a release, a batch can take effect late, even after ReleaseBatch has returned.
	ReleaseBatch(ctx context.Context, leases []Lease) []error
}

// BatchInspector reads many records for the price of a few calls. Callers that wait for
// many names, or distribute them, use it to check them in one call.
type BatchInspector interface {
	// InspectBatch returns for each name what Inspect does, but without the data and the history. It
	// returns one record and one error for each name, in order. Names may occur twice.
	//
	//   - Facts about a held lock that would cost a call of their own may stay unknown, but
	//     not the fact that it is held.
	//   - A name that is not valid, or whose record is damaged, causes no error for the
	//     others.
	//   - A record may be as old as the backend's own reading of it, but not older than the
	//     call.
	//   - Its Position is that of waiter, which may be empty.
	InspectBatch(ctx context.Context, waiter WaiterID, names []string) ([]Record, []error)
}

// Lister finds the records that exist.
type Lister interface {
	// List yields the records whose names begin with prefix, in the byte order of the
	// names. The sequence can be ranged over once.
	//
	// A record that cannot be read does not end the sequence. List yields an error in its
	// place, with a Record that has only its Name. If the record does not contain its name,
	// Name is what the backend calls the record. The caller should skip and report it. An
	// error with a zero Record ends the sequence, which is incomplete then.
	//
	// The conformance suite cannot damage a record, so a driver tests this itself. The test
	// damages one record between valid ones and expects all of their names, with an error at
	// the damaged one.
	List(ctx context.Context, prefix string) iter.Seq2[Record, error]
}

// Breaker takes a lock from its holder. Breaking a free lock is no error. Both methods
// affect only the holder at the time of the call: a request that arrives late does not
// affect the next holder. Of the holders of a [Shared] lock they affect the target alone, or, with BreakAnybody,
// all that hold it at the time of the call.
//
// target names the holder to break, so that nobody breaks a later holder than the one they have seen:
// if another holds the lock, nothing happens and the error is a *[HeldError]. If another's lease was the latest and
// has expired, nothing happens and there is no error. [BreakUnknown] names a holder whose token the backend does not
// know. [BreakAnybody] breaks whoever holds it. The zero target is refused, before I/O.
type Breaker interface {
	// Break makes the backend refuse the holder's renewals from now on. The lock becomes
	// free when the holder's lease runs out, so two holders never overlap. A lease that never ends
	// (Record.Endless) is over at once.
	Break(ctx context.Context, name string, target BreakTarget) error
	// BreakNow frees the lock at once. The holder is not notified before its next renewal.
	// Until then it and the next holder may both be at work.
	BreakNow(ctx context.Context, name string, target BreakTarget) error
}

// DataStore reads and writes the bytes stored with a lock.
type DataStore interface {
	// ReadData returns the data of any lock, held or not, and their revision. The data are
	// nil if there are none.
	ReadData(ctx context.Context, name string) ([]byte, DataRevision, error)
	// WriteData replaces the data if l still holds the lock and the data still have the
	// revision at. Otherwise it writes nothing, and returns ErrLost if l does not hold the
	// lock, or else [ErrConflict].
	//
	// The backend compares and writes in one step. A write that arrives late, after the
	// data were written again, changes nothing. l.State may save a call; it is out of date after the
	// write.
	WriteData(ctx context.Context, l Lease, data []byte, at DataRevision) error
}

// DataRevision stands for one state of a lock's data. The data of a new holder have the
// revision {Token: its token}, whether it brought them or found them, so its first write
// needs no read. A record written before there were revisions counts as one without a
// write.
type DataRevision struct {
	Token  uint64 // of the last grant; 0 if there was none
	Writes uint64 // by [DataStore.WriteData] since that grant
}

// Next is the revision after one more write.
func (r DataRevision) Next() DataRevision { return DataRevision{r.Token, r.Writes + 1} }
