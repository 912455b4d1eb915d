package azblob

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/holdfast-go/holdfast"
)

// Break implements [holdfast.Breaker]: what is left of the lease runs out.
func (l *Locker) Break(ctx context.Context, name string) error {
	return l.breakLease(ctx, name, nil)
}

// BreakNow implements [holdfast.Breaker]. The record, with its token, stays.
func (l *Locker) BreakNow(ctx context.Context, name string) error {
	at := int32(0)
	return l.breakLease(ctx, name, &at)
}

// breakLease needs no lease ID, so it hits whoever holds the lock when the
// request arrives. It is sent once: a repeat could hit the next holder.
func (l *Locker) breakLease(ctx context.Context, name string, period *int32) error {
	return l.do(ctx, op{verb: "break", name: name, invalid: holdfast.ValidateName(name, limits)}, func(ctx context.Context) error {
		_, err := l.target(name, "").lease().BreakLease(l.onlyOnce(ctx), &lease.BlobBreakOptions{BreakPeriod: period})
		if hasCode(err, codesLost...) || hasCode(err, bloberror.LeaseAlreadyBroken) {
			return nil // it is free, or no more to be broken than it is
		}
		return err
	})
}
