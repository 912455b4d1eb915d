package mongo

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
)

// errMoved says that a write did not find what an exact read then found, again
// and again. Asking once more tells.
var errMoved = errors.New("the record was not where the write looked, but is there now")

// Renew implements [driver.Locker] with one command, and a second one before
// it says that the lease is lost.
func (l *Locker) Renew(ctx context.Context, lease driver.Lease) error {
	return l.do(ctx, leaseOp("renew", lease, true), func(ctx context.Context) error {
		matched, err := l.change(ctx, lease, heldBy(lease, unbroken), set(extension(lease.TTL.Milliseconds())...),
			func(r *record) bool { return !r.broken })
		if err == nil && !matched {
			return driver.ErrLost
		}
		return err
	})
}

// Release implements [driver.Locker] with one command, and a second one if
// the lease was not found.
func (l *Locker) Release(ctx context.Context, lease driver.Lease) error {
	return l.do(ctx, leaseOp("release", lease, false), func(ctx context.Context) error {
		_, err := l.change(ctx, lease, heldBy(lease), liberation,
			func(*record) bool { return true })
		return err
	})
}

// change updates the lease's document if the filter matches it, and says for
// certain whether it did. That nothing matches is no certainty: a primary that
// was deposed without knowing it yet matches nothing either, an acquire may land
// a moment later, and the document may be damaged. So the next look is one that
// only a primary acknowledged by a majority can answer, and while it finds the
// lease's own document, in the state that should have matched, the update is
// tried again.
func (l *Locker) change(ctx context.Context, lease driver.Lease, filter bson.D, change any, shouldMatch func(*record) bool) (bool, error) {
	const tries = 3
	if lease.ID.IsZero() {
		return false, nil // it was never granted
	}
	for range tries {
		matched, err := l.update(ctx, filter, change)
		if matched || err != nil {
			return matched, err
		}
		r, err := read(ctx, l.exact, lease.Name, facts)
		if err != nil {
			return false, err
		}
		if r == nil || r.kid != lease.ID.Reveal() || !shouldMatch(r) {
			return false, nil
		}
	}
	return false, errMoved
}

// update changes the one document that the filter matches.
func (l *Locker) update(ctx context.Context, filter bson.D, change any) (matched bool, err error) {
	res, err := l.writes.UpdateOne(ctx, filter, change)
	if err != nil {
		return false, err // also if it was applied and only its majority is in doubt
	}
	return res.MatchedCount > 0, nil
}

func leaseOp(verb string, l driver.Lease, renewal bool) op {
	invalid := driver.ValidateName(l.Name, limits)
	if invalid == nil && renewal {
		invalid = driver.ValidateTTL(l.TTL, limits)
	}
	return op{verb: verb, name: l.Name, ids: []string{l.ID.Reveal()}, invalid: invalid}
}
