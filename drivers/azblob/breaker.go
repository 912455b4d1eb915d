package azblob

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/holdfast-go/holdfast/driver"
)

// Break implements [driver.Breaker]: the rest of the lease runs out. A lease that never ends has no rest: the service
// frees it at once. One that has expired, but could be renewed, is taken and released. [driver.BreakUnknown] leaves that
// alone: whose it is cannot be seen.
func (l *Locker) Break(ctx context.Context, name string, target driver.BreakTarget) error {
	return l.breakLease(ctx, name, target, nil)
}

// BreakNow implements [driver.Breaker]. The record and its token stay.
func (l *Locker) BreakNow(ctx context.Context, name string, target driver.BreakTarget) error {
	at := int32(0)
	return l.breakLease(ctx, name, target, &at)
}

// breakLease breaks the lease of the present holder. The request has no lease ID, so it names
// the blob's ETag, which changes when a holder writes its record. The ETag also changes when
// the holder writes its data; then the break starts again.
//
// A holder takes the lease before it writes its record. So the record may be its predecessor's, and an ETag that has
// changed may be due to the very holder that the call must break.
func (l *Locker) breakLease(ctx context.Context, name string, target driver.BreakTarget, period *int32) error {
	return l.do(ctx, op{verb: "break", name: name, invalid: driver.ValidateBreak(name, target, limits)}, func(ctx context.Context) error {
		b := l.lockBlob(name, "")
		holder, known := "", false // of the round before; known: the record was the holder's
		expired := false           // in the round before
		for round := range maxRounds {
			p, err := b.blob.BlobClient().GetProperties(l.withRetries(ctx, 0), nil)
			if hasCode(err, codesGone...) {
				return nil
			}
			if err != nil {
				return err
			}
			r, _ := parse(p.Metadata) // a lease whose record is damaged can be broken, too
			seen, err := l.describe(ctx, name, r, blobLease{p.LeaseState, p.LeaseDuration})
			if err != nil {
				return err
			}
			if expired && seen.Token == 0 {
				return nil // its next holder, or another break
			}
			if affects, err := seen.CheckTarget(target); !affects || err != nil {
				return err
			}
			// Promise 6: a grant leaves the ETag as it is, so a request to break a lock without a holder would break one that comes now.
			if expired = p.LeaseState != nil && *p.LeaseState == lease.StateTypeExpired; expired {
				holder, known = r.id, true
				err = l.takeAway(ctx, name, p.ETag)
				switch {
				case hasCode(err, codesGone...):
					return nil
				case hasCode(err, bloberror.LeaseAlreadyPresent, bloberror.LeaseIsBreakingAndCannotBeAcquired, bloberror.ConditionNotMet):
					continue // its holder has renewed it, or there is another
				}
				return err
			}
			if seen.State == driver.StateFree || seen.Broken && period == nil {
				return nil
			}
			if anybody := target == driver.BreakAnybody(); anybody && round > 0 && known && r.id != holder {
				return nil // the holder at the time of the call has gone
			}
			holder, known = r.id, seen.Token != 0
			// Promise 6: a late or repeated request must not break the lease of the next holder. The
			// ETag refuses it once that holder has written its record, and it is sent only once.
			unchanged := &blob.ModifiedAccessConditions{IfMatch: p.ETag}
			_, err = b.lease().BreakLease(l.withoutRetries(ctx), &lease.BlobBreakOptions{BreakPeriod: period, ModifiedAccessConditions: unchanged})
			if hasCode(err, codesLost...) || hasCode(err, bloberror.LeaseAlreadyBroken) {
				return nil // it is free, or already broken
			}
			if !hasCode(err, bloberror.ConditionNotMet) {
				return err
			}
		}
		return errChanging
	})
}

// takeAway ends a lease that has expired, and that its holder could still renew: it takes the lease, if nobody has it, and releases it.
// If the answer is lost and the context ends, the lock is free 15 s later.
func (l *Locker) takeAway(ctx context.Context, name string, seen *azcore.ETag) error {
	mine, err := lease.NewBlobClient(l.lockBlob(name, "").blob, nil) // with an ID of its own
	if err != nil {
		return err
	}
	unchanged := &lease.BlobAcquireOptions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: seen}}
	_, err = mine.AcquireLease(l.retryIfRefused(ctx), int32(limits.MinTTL/time.Second), unchanged)
	var answer *StorageError
	if errors.As(redact(err), &answer) && !answer.ofProxy() && answer.Status < http.StatusInternalServerError {
		return err // it was not taken
	}
	noteDoubt(ctx) // whatever fails from here on leaves it open whether the lease was taken
	if _, released := mine.ReleaseLease(l.withRetries(ctx, 0), nil); err == nil && !hasCode(released, codesLost...) {
		err = released
	}
	return err
}
