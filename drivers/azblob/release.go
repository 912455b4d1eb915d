package azblob

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// Release implements [driver.Locker].
func (l *Locker) Release(ctx context.Context, held driver.Lease) error {
	return l.do(ctx, op{verb: "release", name: held.Name, invalid: driver.ValidateName(held.Name, limits)}, func(ctx context.Context) error {
		id, ok := canonicalID(held.ID.Reveal())
		if !ok {
			return nil
		}
		// Promise 6: the service compares the lease ID. A lease that has ended is no error.
		_, err := l.lockBlob(held.Name, id).lease().ReleaseLease(l.withRetries(ctx, 0), nil)
		if hasCode(err, codesLost...) {
			return nil
		}
		return err
	})
}
