package mongo

import (
	"context"

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

func leaseOp(verb string, l driver.Lease, renewal bool) op {
	invalid := driver.ValidateName(l.Name, limits)
	if renewal {
		invalid = driver.ValidateRenew(l, limits)
	}
	return op{verb: verb, name: l.Name, ids: []string{l.ID.Reveal()}, invalid: invalid}
}
