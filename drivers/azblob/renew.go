package azblob

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// Renew implements [driver.Locker]. The service renews a lease for the length for which it was
// taken, so another TTL has no effect; [Locker.TryAcquire] with the same ID can extend it.
func (l *Locker) Renew(ctx context.Context, held driver.Lease) (driver.Lease, error) {
	invalid := driver.ValidateRenew(held, limits)
	return held, l.do(ctx, op{verb: "renew", name: held.Name, invalid: invalid}, func(ctx context.Context) error {
		id, ok := canonicalID(held.ID.Reveal())
		if !ok {
			return driver.ErrLost // such an ID was never granted
		}
		_, err := l.lockBlob(held.Name, id).lease().RenewLease(l.withRetries(ctx, 0), nil)
		// Promise 4: only these answers are definite. Any other error leaves the outcome unknown.
		if hasCode(err, codesLost...) {
			return driver.ErrLost
		}
		return err
	})
}
