package azblob

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/holdfast-go/holdfast/driver"
)

const minIdleTime = time.Hour

// Prune deletes the blobs, with their data, of free locks whose names begin with prefix and
// that were not granted or written for the time idle, at least an hour. It returns how many it
// deleted. Renewals and releases do not count as use, because the service records no time for
// them. Choose an idle time longer than the longest hold; otherwise a lock may lose its data
// soon after its release. Nothing is pruned automatically: a program whose lock names change
// calls Prune from time to time.
//
// It is safe while the locks are in use: the service refuses to delete a blob that is leased,
// or that was written since it was listed. A lock that is granted again gets a higher token,
// because Prune deletes only blobs whose token is below the service's time. It keeps blobs
// that are not a lock's, and blobs with other metadata, such as a [Fence]'s.
//
// It takes one request for every 5000 blobs, and one for each deleted blob. If the service
// refuses to delete one blob, Prune continues with the next. Any other failure ends it.
func (l *Locker) Prune(ctx context.Context, prefix string, idle time.Duration) (removed int, err error) {
	if idle < minIdleTime {
		return 0, &driver.OpError{Op: "prune", Backend: backend, Name: prefix,
			Err: driver.Invalid("idle time", driver.FormatDuration(idle), "at least "+driver.FormatDuration(minIdleTime))}
	}
	return l.prune(ctx, prefix, idle)
}

// unusedBlob is a blob that may be deleted if it has not changed.
type unusedBlob struct {
	name string
	etag *azcore.ETag
}

func (l *Locker) prune(ctx context.Context, prefix string, idle time.Duration) (removed int, err error) {
	var all []unusedBlob
	err = l.forEachPage(ctx, "prune", prefix, func(page container.ListBlobsHierarchyResponse) {
		for _, item := range page.Segment.BlobItems {
			if one, ok := l.unused(item, page.Date, idle); ok {
				all = append(all, one)
			}
		}
	})
	if err != nil {
		return 0, err
	}
	var failed []error
	for _, one := range all {
		err := l.do(ctx, op{verb: "prune", name: one.name}, func(ctx context.Context) error {
			// Promise 1: the service refuses to delete a leased or changed blob.
			same := &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: one.etag}}
			_, err := l.lockBlob(one.name, "").blob.Delete(l.withRetries(ctx, 0), &blob.DeleteOptions{AccessConditions: same})
			return err
		})
		switch {
		case err == nil:
			removed++
		case hasCode(err, bloberror.LeaseIDMissing, bloberror.ConditionNotMet), hasCode(err, codesGone...): // used or removed meanwhile
		default:
			failed = append(failed, err)
			if !concernsBlob(err) {
				return removed, errors.Join(failed...)
			}
		}
	}
	return removed, errors.Join(failed...)
}

// concernsBlob reports whether an error is an answer about one blob. Other errors, such as
// missing rights or the end of the context, would occur for every blob.
func concernsBlob(err error) bool {
	var answer *StorageError
	return errors.As(err, &answer) && (answer.Status == http.StatusConflict || answer.Status == http.StatusPreconditionFailed)
}

// unused reports whether a blob is unused by the service's clock at the time of the listing.
func (l *Locker) unused(item *container.BlobItem, now *time.Time, idle time.Duration) (unusedBlob, bool) {
	locks := l.appendLock(nil, item)
	if len(locks) == 0 || now == nil || item.Properties == nil || item.Properties.ETag == nil || item.Properties.LastModified == nil {
		return unusedBlob{}, false
	}
	lock := locks[0]
	switch {
	case lock.damage != nil, len(lock.record.others) > 0,
		lock.lease.state == nil || *lock.lease.state == lease.StateTypeLeased || *lock.lease.state == lease.StateTypeBreaking,
		now.Sub(*item.Properties.LastModified) < idle,
		lock.record.token >= uint64(max(now.UnixMilli(), 0)): // Promise 3: the next token might not be greater
		return unusedBlob{}, false
	}
	return unusedBlob{lock.name, item.Properties.ETag}, true
}
