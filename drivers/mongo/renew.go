package mongo

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast"
)

// errMoved says that a write did not find what an exact read then found: the
// record changed hands between servers. Asking again tells.
var errMoved = errors.New("the record was not where the write looked, but is there now")

// Renew implements [holdfast.Locker] with one command, and a second one before
// it says that the lease is lost.
func (l *Locker) Renew(ctx context.Context, lease holdfast.Lease) error {
	return l.do(ctx, leaseOp("renew", lease, true), func(ctx context.Context) error {
		matched, err := l.update(ctx, heldBy(lease, unbroken), set(extension(lease.TTL)...))
		if matched || err != nil {
			return err
		}
		return l.confirmLoss(ctx, lease)
	})
}

// Release implements [holdfast.Locker] with one command, and a second one if
// the lease was not found.
func (l *Locker) Release(ctx context.Context, lease holdfast.Lease) error {
	return l.do(ctx, leaseOp("release", lease, false), func(ctx context.Context) error {
		matched, err := l.update(ctx, heldBy(lease), set(liberation()...))
		if matched || err != nil {
			return err
		}
		r, err := read(ctx, l.exact, lease.Name, facts)
		if err == nil && r != nil && r.kid == lease.ID {
			return errMoved
		}
		return err
	})
}

// confirmLoss returns ErrLost if the lease really does not hold the lock. A
// primary that was deposed without knowing it yet would match nothing either, so
// the read is one that only a primary acknowledged by a majority can answer.
func (l *Locker) confirmLoss(ctx context.Context, lease holdfast.Lease) error {
	r, err := read(ctx, l.exact, lease.Name, facts)
	switch {
	case err != nil:
		return err
	case r != nil && r.kid == lease.ID && !r.broken:
		return errMoved
	default:
		return holdfast.ErrLost
	}
}

// update changes the one document that the filter matches.
func (l *Locker) update(ctx context.Context, filter bson.D, change any) (matched bool, err error) {
	res, err := l.writes.UpdateOne(ctx, filter, change)
	if err != nil {
		return false, err // also if it was applied and only its majority is in doubt
	}
	return res.MatchedCount > 0, nil
}

func leaseOp(verb string, l holdfast.Lease, renewal bool) op {
	invalid := holdfast.ValidateName(l.Name, limits)
	if invalid == nil && renewal {
		invalid = holdfast.ValidateTTL(l.TTL, limits)
	}
	return op{verb: verb, name: l.Name, ids: []string{l.ID}, invalid: invalid}
}
