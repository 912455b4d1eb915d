package mongo

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
)

// Release implements [driver.Locker] with one command if nobody waits for the lock. If somebody waits,
// or the lease is not found, releaseToWaiters goes on.
func (l *Locker) Release(ctx context.Context, lease driver.Lease) error {
	return l.do(ctx, leaseOp("release", lease, false), func(ctx context.Context) error {
		if lease.ID.IsZero() {
			return nil // it was never granted
		}
		if !lease.Contended {
			// Promise 6: the filter has the lease ID. No match is no error.
			matched, err := l.updateOne(ctx, heldBy(lease, nobodyWaits), l.releaseOf(lease))
			if matched || err != nil {
				return err
			}
		}
		return l.releaseToWaiters(ctx, lease)
	})
}

// released reports, by a read with the concern of coll, whether a lease has certainly no lock any
// more, not even an expired one. If the lock is free, or readers have it, and this call has woken nobody, the
// answer of an earlier release was lost, and with it the waiters to wake: they are woken now.
func (l *Locker) released(ctx context.Context, coll *mongo.Collection, lease driver.Lease, woken bool) (bool, error) {
	raw, r, err := readRecord(ctx, coll, lease.Name, projectionWoken(lease))
	switch {
	case err != nil:
		return false, err
	case r != nil && r.has(lease):
		return false, nil
	case r != nil && (r.leaseID == "" || r.version == sharedVersion) && !woken:
		l.wakeWaiters(ctx, hintsTo(lease.Name, raw))
	}
	return true, nil
}

// releaseToWaiters releases the lock and wakes the first waiters before the release is certain, so
// that they need not wait for a majority that their own request waits for, too. It takes three
// commands or four: the release, which only the primary acknowledges and which returns the first
// waiters; a hint for each; and a read that shows what a majority has of the time of the release or
// later.
//
// The release is certain when the read has shown that the lease does not hold the lock. The read
// waits until the majority-committed data of a member include the time of the release. The grant is
// committed and older, so they include it, too, and do not show a time before it. What a majority has,
// every later primary has, so it does not matter which member answers. If the primary dies before a
// majority has the release, the next one never saw it: the read shows the lease, and the release is
// sent again. If no answer comes, the outcome is unknown, and the caller releases again by the same
// ID. Without this the lock would be held until the lease expires, although its holder has reported
// that it released it.
//
// If the release does not find the lease, its time proves nothing: it may come from a deposed primary
// that has not even seen the grant. Then the read is linearizable, which such a primary cannot answer.
// After every release that would cost more: a linearizable read writes to the oplog, while the
// waiter's request is under way.
//
// The waiter loses nothing if the release is rolled back. Its request is written behind the release
// in the oplog of the same primary, so a majority that acknowledges the grant has the release, too.
// If the release is rolled back, so is the grant, and the waiter was never told that it holds the
// lock. A hint that comes from a release that was rolled back leads to one refusal.
func (l *Locker) releaseToWaiters(ctx context.Context, lease driver.Lease) error {
	// The session gives the read the time of the release. The hints are not a part of it.
	session, err := l.majority.Database().Client().StartSession(options.Session().SetCausalConsistency(true))
	if err != nil {
		return err
	}
	defer session.EndSession(ctx)
	ordered := mongo.NewSessionContext(ctx, session)
	const tries = 3
	for range tries {
		found, woken, err := l.releaseOnPrimary(ordered, lease)
		if err != nil {
			return err
		}
		left := l.leaveHints(ctx, woken)
		// Promise 10: a release that a fail-over has undone is sent again.
		var released bool
		if found {
			released, err = l.released(ordered, l.majority, lease, len(woken) > 0)
		} else {
			released, err = l.released(ctx, l.linearizable, lease, false)
		}
		if released && err == nil {
			l.wakeWaiters(ctx, left) // a fail-over has kept the hints from being left; now there is a primary again
		}
		if err != nil {
			return &afterWriteError{err}
		}
		if released {
			return nil
		}
	}
	return errInconsistent
}

// releaseOf is the update that releases a lease.
func (l *Locker) releaseOf(lease driver.Lease) any {
	if lease.Mode == driver.Shared {
		return endReaders(isLease(lease.ID), brokenOr(endNumber(driver.EndReleased)), l.config.history)
	}
	return releaseUpdate
}

// releaseOnPrimary releases the lock, if it finds the lease, and returns the hints for the first waiters. It does not
// wait for a majority.
func (l *Locker) releaseOnPrimary(ctx context.Context, lease driver.Lease) (found bool, woken []hint, err error) {
	// Promise 6: the filter has the lease ID. No match is no error. A release that takes effect twice, or
	// late, finds nothing.
	filter, change, projection := heldBy(lease), l.releaseOf(lease), wokenProjection
	if lease.Mode == driver.Shared {
		projection = sharedWoken
	}
	reply, err := sendOnce(ctx, l.onPrimary, "findAndModify",
		field("query", filter), field("update", change), field("new", true), field("fields", projection))
	if err == nil {
		document, found := reply.Lookup("value").DocumentOK()
		return found, hintsTo(lease.Name, document), nil
	}
	if !worthRepeating(ctx, err) {
		return false, nil, err
	}
	raw, err := l.onPrimary.FindOneAndUpdate(ctx, filter, change,
		options.FindOneAndUpdate().SetReturnDocument(options.After).SetProjection(projection)).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return false, nil, nil
	}
	if err != nil {
		return false, nil, &afterWriteError{err}
	}
	return true, hintsTo(lease.Name, raw), nil
}

// ReleaseBatch implements [driver.BatchReleaser] with two commands for every 500 leases: an
// updateMany that a majority acknowledges, and a read that finds the waiters to wake. The server does
// not retry updateMany, so after an error the outcome of every lease of its command is unknown.
func (l *Locker) ReleaseBatch(ctx context.Context, leases []driver.Lease) []error {
	return l.inBatches(ctx, leases, batchCall{"release", batchChunks(leases, false), l.Release, l.releaseChunk})
}

// releaseChunk releases the leases of a chunk, and wakes the first waiters of each lock. It returns
// the leases that may still hold their locks.
//
// If the command matched any lease, a lease that it did not match and that a read does not find either
// certainly holds no lock. A majority has acknowledged the release of the matched one, so it was made by a
// primary that a majority followed. Such a primary had every grant that was acknowledged before the
// command was sent.
func (l *Locker) releaseChunk(ctx context.Context, chunk []int, leases []driver.Lease) (doubtful []int, err error) {
	if leases[chunk[0]].Mode == driver.Shared {
		return l.releaseReaders(ctx, chunk, leases)
	}
	names, _, pairs := namesAndIDs(chunk, leases)
	// Promise 6: each name is matched together with the ID of its own lease. No match is no error.
	filter := validRecord(docOf("$in", names), field("$expr", expr("$in", list{ref(fieldName), ref(fieldLeaseID)}, literal(pairs))))
	res, err := l.majority.UpdateMany(ctx, filter, releaseUpdate)
	if err != nil {
		return nil, err
	}
	if res.MatchedCount == 0 {
		return chunk, nil // a deposed primary answers so, too
	}
	after, err := l.afterRelease(ctx, names, res.MatchedCount < int64(len(chunk)))
	if err != nil {
		return nil, &afterWriteError{err}
	}
	var woken []hint
	for _, i := range chunk {
		switch r := after[leases[i].Name]; r.holder {
		case leases[i].ID.Reveal():
			doubtful = append(doubtful, i)
		case "", sharedHolder: // other readers can join those that have come meanwhile
			woken = append(woken, r.woken...)
		}
	}
	l.wakeWaiters(ctx, woken)
	return doubtful, nil
}

// afterRelease is what a read finds of a lock after a batch of releases.
type afterRelease struct {
	holder string // the lease ID
	woken  []hint
}

// afterRelease reads, by name, the locks that have waiters, and if holders is set also those that are
// held. It reads the primary's latest data, as holders does.
func (l *Locker) afterRelease(ctx context.Context, names list, holders bool) (map[string]afterRelease, error) {
	conditions := list{docOf(fieldReserve, docOf("$gt", 0))}
	if holders {
		conditions = append(conditions, docOf(fieldLeaseID, docOf("$type", "string")))
	}
	found, err := l.latest(ctx, doc{field(fieldName, docOf("$in", names)), field("$or", conditions)}, sharedWoken)
	if err != nil {
		return nil, err
	}
	after := make(map[string]afterRelease, len(found))
	for _, document := range found {
		name, _ := document.Lookup(fieldName).StringValueOK()
		holder, _ := document.Lookup(fieldLeaseID).StringValueOK()
		after[name] = afterRelease{holder, hintsTo(name, document)}
	}
	return after, nil
}
