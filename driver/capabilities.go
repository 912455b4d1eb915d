package driver

import (
	"context"
	"iter"
	"time"
)

// Capabilities are what a backend can do beyond [Locker]. A nil field, or 0, means that it
// cannot.
//
// It is a struct of interfaces, not a set of type assertions on the Locker, so that a
// wrapper can wrap a capability or take it away. A wrapper should make a new struct and set
// the fields that it supports. If it changed a copy instead, capabilities that are added
// later would bypass it.
type Capabilities struct {
	Watcher        Watcher
	Queue          Queue
	HandOverer     HandOverer
	BatchRenewer   BatchRenewer
	BatchInspector BatchInspector
	Lister         Lister
	Breaker        Breaker
	DataStore      DataStore
	// History is how many past holders of a lock the backend keeps with it, by requests that are sent
	// anyway, and Inspect returns; see [Record.History]. 0 means none.
	History int
	Checker Checker
}

// Watcher wakes waiters, so that they need not poll.
type Watcher interface {
	// Watch starts watching a name. It returns at once, without I/O.
	//
	// wake is called
	//
	//   - when the watch has come into effect, and again when it does so after a gap;
	//   - whenever the name may have become free by a release or a removal.
	//
	// Expiry need not call wake, and calls without a reason are allowed. If watching turns
	// out to be impossible, wake is never called. Callers therefore poll as well.
	//
	// Any goroutine may call wake, several of them at a time, and so may Watch itself
	// before it returns. The caller of Watch must hold no mutex that wake takes. wake must
	// return at once and must not call the Locker, but it may call stop.
	//
	// stop ends the watch and may be called more than once. It does not wait: a call of
	// wake that is under way may end after stop has returned.
	Watch(name string, wake func()) (stop func())
}

// Queue orders the waiters of several processes and wakes the one whose turn it is. A request
// with [Request.QueueFor] that is refused has a position in the queue of its name from then on:
// behind the waiters that are there already. All waiters of one Locker share one position for
// each name, so a process should send the requests of one waiter at a time.
//
// A free lock is reserved for the waiters in their order. Position n may take it [Turn](n) after
// it became free, by the backend's clock: the first at once, the second a moment later. A request
// without a position comes behind all of them, and after [MaxTurn] at the latest anybody may take
// the lock. With an empty queue nothing is reserved. HandOver and Replace pass the queue.
//
// A grant removes the waiter from the queue. It also removes the first two waiters if they came
// before the granted one: they were woken and did not come. A position that is not refreshed by
// another request ends after QueueFor. So a waiter that died in the queue costs the others one
// turn, not more.
//
// The order is a service and no promise. It is lost with the record, for a waiter that is slower
// than a turn, and if the backend's clock steps. None of that affects who may hold the lock.
type Queue interface {
	// Wait has wake called when a request of this Locker may soon be granted. It returns at
	// once, without I/O. wake is called
	//
	//   - when waking has come into effect, and again when it does so after a gap. turn is
	//     [NothingMissed] if it was in effect before the last refused request was sent, and
	//     otherwise [MaybeMissed];
	//   - when the lock was released and the Locker has one of the first positions. turn is how
	//     long to wait before the request, and zero for the first position. Only a request
	//     shows whether the lock is free: a read may still return the record of before.
	//
	// Expiry need not call wake, and calls without a reason are allowed. Calls can be lost.
	// Callers therefore send requests at the time that the last refusal suggests, and refresh
	// their position now and then. The rules for wake and stop are those of
	// [Watcher.Watch]. After the last stop for a name the Locker gives up its position, in the
	// background and if the backend answers.
	Wait(name string, wake func(turn time.Duration)) (stop func())
}

// HandOverer hands a lock over in one step. A handoff costs half the calls of a release
// and an acquire, and wakes no other waiter. A client hands over among its own
// waiters, for a short time, and only if a Watcher or a Queue wakes the other waiters afterwards.
type HandOverer interface {
	// HandOver does what TryAcquire does, except that a lock held by from counts as free,
	// broken or not. The handoff ends the lease of from: a later Renew of it is refused
	// with ErrLost. Only from.Name, which must be req.Name, and from.ID matter.
	//
	// In all else HandOver is TryAcquire:
	//
	//   - If from does not hold the lock (any more), the lock is granted if it is free, and
	//     refused with a *[HeldError] if another holds it.
	//   - If req.ID holds the lock, the call is a repeat, also if from is that very lease.
	//
	// After an unknown outcome either of the two may hold the lock, or neither. Release of
	// from, followed by TryAcquire with req, resolves that.
	HandOver(ctx context.Context, from Lease, req Request) (Lease, error)
}

// BatchRenewer renews many leases for the price of a few calls.
type BatchRenewer interface {
	// RenewBatch renews each lease as Renew does. It returns one result for each lease, in
	// order. Every error has the meaning that it has for Renew.
	RenewBatch(ctx context.Context, leases []Lease) []error
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
	InspectBatch(ctx context.Context, names []string) ([]Record, []error)
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
// affect the next holder.
//
// token is that of the holder to break, so that nobody breaks a later holder than the one they
// have seen: if another holds the lock, nothing happens and the error is a *[HeldError]. 0 breaks
// whoever holds it.
type Breaker interface {
	// Break makes the backend refuse the holder's renewals from now on. The lock becomes
	// free when the holder's lease runs out, so two holders never overlap.
	Break(ctx context.Context, name string, token uint64) error
	// BreakNow frees the lock at once. The holder is not notified before its next renewal.
	// Until then it and the next holder may both be at work.
	BreakNow(ctx context.Context, name string, token uint64) error
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
	// data were written again, changes nothing.
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
