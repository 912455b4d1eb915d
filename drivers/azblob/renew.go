package azblob

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// Renew implements [driver.Locker]. The service renews a lease for the time
// that it was granted for, so a TTL other than that of the request changes
// nothing; [Locker.TryAcquire] with the same ID can make it longer.
func (l *Locker) Renew(ctx context.Context, held driver.Lease) error {
	invalid := driver.ValidateName(held.Name, limits)
	if invalid == nil {
		invalid = driver.ValidateTTL(held.TTL, limits)
	}
	return l.do(ctx, op{verb: "renew", name: held.Name, invalid: invalid}, func(ctx context.Context) error {
		id, ok := canonical(held.ID.Reveal())
		if !ok {
			return driver.ErrLost // nobody was ever granted that
		}
		_, err := l.target(held.Name, id).lease().RenewLease(l.tries(ctx, 0), nil)
		if hasCode(err, codesLost...) {
			return driver.ErrLost
		}
		return err
	})
}

// Release implements [driver.Locker].
func (l *Locker) Release(ctx context.Context, held driver.Lease) error {
	return l.do(ctx, op{verb: "release", name: held.Name, invalid: driver.ValidateName(held.Name, limits)}, func(ctx context.Context) error {
		id, ok := canonical(held.ID.Reveal())
		if !ok {
			return nil
		}
		_, err := l.target(held.Name, id).lease().ReleaseLease(l.tries(ctx, 0), nil)
		if hasCode(err, codesLost...) {
			return nil
		}
		return err
	})
}
