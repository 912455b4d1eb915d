package mongo

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// Renew implements [driver.Locker] with one command, and a second one before it reports that
// the lease is lost.
func (l *Locker) Renew(ctx context.Context, lease driver.Lease) error {
	return l.do(ctx, leaseOp("renew", lease, true), func(ctx context.Context) error {
		// Promise 4: only a definite answer that the record is not this lease's is a loss.
		matched, err := l.updateHeld(ctx, lease, heldBy(lease, unbroken), setFields(renewalFields(lease.TTL.Milliseconds())...),
			func(r *record) bool { return !r.broken })
		if err == nil && !matched {
			return driver.ErrLost
		}
		return err
	})
}

func leaseOp(verb string, l driver.Lease, renewal bool) op {
	invalid := driver.ValidateName(l.Name, limits)
	if invalid == nil && renewal {
		invalid = driver.ValidateTTL(l.TTL, limits)
	}
	return op{verb: verb, name: l.Name, ids: []string{l.ID.Reveal()}, invalid: invalid}
}
