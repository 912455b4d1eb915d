package azblob

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/holdfast-go/holdfast/driver"
)

// Break implements [driver.Breaker]: what is left of the lease runs out.
func (l *Locker) Break(ctx context.Context, name string) error {
	return l.breakLease(ctx, name, nil)
}

// BreakNow implements [driver.Breaker]. The record, with its token, stays.
func (l *Locker) BreakNow(ctx context.Context, name string) error {
	at := int32(0)
	return l.breakLease(ctx, name, &at)
}

// breakLease needs no lease ID, so the request names the blob's ETag: each holder writes
// its record, and a request that arrives late must not break the next holder's lease. The
// ETag also changes when the holder writes its data. It is sent once for each ETag: a
// repeat could reach the next holder before its record is written.
func (l *Locker) breakLease(ctx context.Context, name string, period *int32) error {
	return l.do(ctx, op{verb: "break", name: name, invalid: driver.ValidateName(name, limits)}, func(ctx context.Context) error {
		t := l.target(name, "")
		holder := ""
		for round := range rounds {
			p, err := t.blob.BlobClient().GetProperties(l.tries(ctx, 0), nil)
			if hasCode(err, codesGone...) {
				return nil
			}
			if err != nil {
				return err
			}
			r, _ := parse(p.Metadata) // a damaged record does not protect the lease
			if round > 0 && r.id != holder {
				return nil
			}
			holder = r.id
			unchanged := &blob.ModifiedAccessConditions{IfMatch: p.ETag}
			_, err = t.lease().BreakLease(l.onlyOnce(ctx), &lease.BlobBreakOptions{BreakPeriod: period, ModifiedAccessConditions: unchanged})
			if hasCode(err, codesLost...) || hasCode(err, bloberror.LeaseAlreadyBroken) {
				return nil // it is free, or cannot be broken any further
			}
			if !hasCode(err, bloberror.ConditionNotMet) {
				return err
			}
		}
		return errChanging
	})
}
