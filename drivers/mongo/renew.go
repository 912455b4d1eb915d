package mongo

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
)

// Renew implements [driver.Locker] with one command, and a second one before it reports that
// the lease is lost.
func (l *Locker) Renew(ctx context.Context, lease driver.Lease) (driver.Lease, error) {
	return lease, l.renew(ctx, lease)
}

func (l *Locker) renew(ctx context.Context, lease driver.Lease) error {
	return l.do(ctx, leaseOp("renew", lease, true), func(ctx context.Context) error {
		// Promise 4: only a definite answer that the record is not this lease's is a loss.
		filter, change := renewal(lease)
		matched, err := l.updateHeld(ctx, lease, filter, change, func(r *record) bool { return !r.refuses(lease) })
		if err == nil && !matched {
			return driver.ErrLost
		}
		return err
	})
}

// renewal is the update of one lease.
func renewal(lease driver.Lease) (filter bson.D, change list) {
	ttl := lease.TTL.Milliseconds()
	if lease.Mode == driver.Shared {
		filter = readBy(lease.Name, field(readerID, docOf("$eq", lease.ID.Reveal())), readerUnbroken)
		return filter, setFields(renewedReaders(isLease(lease.ID), ttl)...)
	}
	return heldBy(lease, unbroken), setFields(renewalFields(ttl)...)
}

// RenewBatch implements [driver.BatchRenewer] with one updateMany for every 500 leases of the
// same TTL. The server does not retry updateMany, so after an error the outcome of every lease
// of its command is unknown.
//
// The commands of a large batch run one after another, so later leases are renewed later. That
// shortens no lease: the server counts from the moment of each command, and the caller counts
// from before the call.
func (l *Locker) RenewBatch(ctx context.Context, leases []driver.Lease) ([]driver.Lease, []error) {
	// Promise 4: only Renew's definite answer is a loss.
	return leases, l.inBatches(ctx, leases, batchCall{"renew", batchChunks(leases, true), l.renew, l.renewChunk})
}

// renewChunk renews the leases of a chunk and returns those that do not seem to hold their
// locks.
func (l *Locker) renewChunk(ctx context.Context, chunk []int, leases []driver.Lease) (lost []int, err error) {
	if leases[chunk[0]].Mode == driver.Shared {
		return l.renewReaders(ctx, chunk, leases)
	}
	names, ids, _ := namesAndIDs(chunk, leases)
	// Two lists also match one lease's name with another's ID. That cannot happen, since every
	// acquisition has its own ID (see [driver.Request]). Comparing pairs takes the server
	// twice as long.
	filter := validRecord(docOf("$in", names), field(fieldLeaseID, docOf("$in", ids)), unbroken)
	res, err := l.majority.UpdateMany(ctx, filter, setFields(renewalFields(leases[chunk[0]].TTL.Milliseconds())...))
	if err != nil {
		return nil, err
	}
	if res.MatchedCount == int64(len(chunk)) {
		return nil, nil
	}
	holders, err := l.holders(ctx, names)
	if err != nil {
		return nil, err
	}
	held := 0
	for _, i := range chunk {
		if holders[leases[i].Name] == leases[i].ID.Reveal() {
			held++
		} else {
			lost = append(lost, i)
		}
	}
	// Leases can end between the two commands, but not begin.
	if int64(held) > res.MatchedCount {
		return nil, fmt.Errorf("%d leases were renewed, but %d are held: %w", res.MatchedCount, held, errInconsistent)
	}
	return lost, nil
}

// holders returns the lease IDs that may be renewed, by name. It reads the primary's latest
// data, which include the update that was acknowledged before, even on a new primary. Read
// concern "majority" is not enough: a new primary learns the majority's state late.
func (l *Locker) holders(ctx context.Context, names list) (map[string]string, error) {
	found, err := l.latest(ctx, validRecord(docOf("$in", names), field(fieldLeaseID, docOf("$type", "string")), unbroken),
		doc{field(fieldLeaseID, 1)})
	if err != nil {
		return nil, err
	}
	holders := make(map[string]string, len(found))
	for _, document := range found {
		name, _ := document.Lookup(fieldName).StringValueOK()
		holders[name], _ = document.Lookup(fieldLeaseID).StringValueOK()
	}
	return holders, nil
}
