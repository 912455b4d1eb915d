package mongo

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
)

// errInconsistent: a write did not match the record, but a linearizable read then found it,
// several times.
var errInconsistent = errors.New("a write did not match the record, although a read then found it")

// updateHeld updates the lease's document if the filter matches it, and reports definitely
// whether it did. A write that matches nothing is not definite: a primary that was deposed
// without knowing it matches nothing, an acquire may arrive a moment later, and the document
// may be damaged. So a linearizable read follows, which only a primary that a majority
// acknowledges can answer. While it finds the lease's own document in a state that should have
// matched, the update is tried again.
func (l *Locker) updateHeld(
	ctx context.Context, lease driver.Lease, filter bson.D, change any, shouldMatch func(*record) bool,
) (bool, error) {
	if lease.ID.IsZero() {
		return false, nil // a lease without an ID was never granted
	}
	return l.update(ctx, lease.Name, filter, change, about(lease), func(r *record) bool { return r.has(lease) && shouldMatch(r) })
}

// update is updateHeld for a document of which shouldMatch says all by a projection.
func (l *Locker) update(
	ctx context.Context, name string, filter bson.D, change any, projection bson.Raw, shouldMatch func(*record) bool,
) (bool, error) {
	const tries = 3
	for range tries {
		matched, err := l.updateOne(ctx, filter, change)
		if matched || err != nil {
			return matched, err
		}
		// Promise 4: a linearizable read cannot come from a deposed primary.
		_, r, err := readRecord(ctx, l.linearizable, name, projection)
		if err != nil {
			return false, err
		}
		if r == nil || !shouldMatch(r) {
			return false, nil
		}
	}
	return false, errInconsistent
}

// updateOne updates the one document that the filter matches.
func (l *Locker) updateOne(ctx context.Context, filter bson.D, change any) (matched bool, err error) {
	res, err := l.majority.UpdateOne(ctx, filter, change)
	if err != nil {
		return false, err // also if it was applied and only the majority's acknowledgement is missing
	}
	return res.MatchedCount > 0, nil
}
