package mongo

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
)

// renewReaders is renewChunk for shared leases, of which one document may have several. The command counts documents, so a
// read always follows that shows which of the leases it renewed. A lease that the read finds, unbroken, was there
// when the command came: leases can end between the two, but not begin.
func (l *Locker) renewReaders(ctx context.Context, chunk []int, leases []driver.Lease) (lost []int, err error) {
	names, ids, _ := namesAndIDs(chunk, leases)
	filter := readBy(docOf("$in", names), field(readerID, docOf("$in", ids)), readerUnbroken)
	renewed := and(expr("$in", refOne+"."+readerID, literal(ids)), not(refOne+"."+readerBroken))
	ttl := leases[chunk[0]].TTL.Milliseconds()
	res, err := l.majority.UpdateMany(ctx, filter, setFields(renewedReaders(renewed, ttl)...))
	if err != nil {
		return nil, err
	}
	found, err := l.readersAmong(ctx, names, ids, nil)
	if err != nil {
		return nil, err
	}
	documents := int64(0) // with a lease that could be renewed: the update matches none in which all of them are broken
	for _, one := range found {
		if slices.Contains(slices.Collect(maps.Values(one.renewable)), true) {
			documents++
		}
	}
	if documents > res.MatchedCount {
		return nil, fmt.Errorf("the readers of %d locks were renewed, but %d have some: %w", res.MatchedCount, documents, errInconsistent)
	}
	for _, i := range chunk {
		if !found[leases[i].Name].renewable[leases[i].ID.Reveal()] {
			lost = append(lost, i)
		}
	}
	return lost, nil
}

// releaseReaders is releaseChunk for shared leases.
func (l *Locker) releaseReaders(ctx context.Context, chunk []int, leases []driver.Lease) (doubtful []int, err error) {
	names, ids, pairs := namesAndIDs(chunk, leases)
	// Promise 6: each name is matched together with the ID of its own lease.
	ours := expr("$in", list{ref(fieldName), refOne + "." + readerID}, literal(pairs))
	filter := readBy(docOf("$in", names), field(readerID, docOf("$in", ids)))
	res, err := l.majority.UpdateMany(ctx, filter, endReaders(ours, brokenOr(endNumber(driver.EndReleased)), l.config.history))
	if err != nil {
		return nil, err
	}
	if res.MatchedCount == 0 {
		return chunk, nil // a deposed primary answers so, too
	}
	found, err := l.readersAmong(ctx, names, ids, append(append(doc{}, wokenFields...), sharedFields...))
	if err != nil {
		return nil, &afterWriteError{err}
	}
	var woken []hint
	for name, after := range found {
		woken = append(woken, hintsTo(name, after.document)...)
	}
	for _, i := range chunk {
		if _, held := found[leases[i].Name].renewable[leases[i].ID.Reveal()]; held {
			doubtful = append(doubtful, i)
		}
	}
	l.wakeWaiters(ctx, woken)
	return doubtful, nil
}

// readersFound are those of one lock whom a read has found.
type readersFound struct {
	renewable map[string]bool // by the ID of a lease that has the lock: whether it is unbroken
	document  bson.Raw
}

// readersAmong reads, by name, which of the leases have their locks, and further fields. It reads the primary's latest
// data, as holders does.
func (l *Locker) readersAmong(ctx context.Context, names, ids list, more doc) (map[string]readersFound, error) {
	ours := mapped(filter(sharedReaders, expr("$in", refOne+"."+readerID, literal(ids))), doc{
		field(readerID, refOne+"."+readerID), field(readerBroken, refOne+"."+readerBroken),
	})
	projection := append(doc{field(fieldVersion, 1), field(fieldNow, serverNow), field(fieldReader, ours)}, more...)
	documents, err := l.latest(ctx, sharedRecord(docOf("$in", names)), projection)
	if err != nil {
		return nil, err
	}
	found := make(map[string]readersFound, len(documents))
	for _, document := range documents {
		name, _ := document.Lookup(fieldName).StringValueOK()
		one := readersFound{map[string]bool{}, document}
		array, _ := document.Lookup(fieldReader).ArrayOK()
		values, _ := array.Values()
		for _, v := range values {
			r, _ := v.DocumentOK()
			id, _ := r.Lookup(readerID).StringValueOK()
			broken, _ := r.Lookup(readerBroken).BooleanOK()
			one.renewable[id] = !broken
		}
		found[name] = one
	}
	return found, nil
}
