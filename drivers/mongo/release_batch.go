package mongo

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

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
	names, pairs := make(list, len(chunk)), make(list, len(chunk))
	for n, i := range chunk {
		names[n], pairs[n] = leases[i].Name, list{leases[i].Name, leases[i].ID.Reveal()}
	}
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
