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
	"github.com/holdfast-go/holdfast/driver/text"
)

const minIdle = time.Hour

// Prune deletes the blobs, with their data, of locks that are free and were neither granted nor
// written for as long as idle, at least an hour, and returns how many. Their names begin with
// prefix. Renewals and releases do not count as use, since the service dates neither: choose an
// idle time longer than the longest hold, or a lock may lose its data soon after its release.
// Nothing is pruned automatically: a program that uses names which come and go calls it now
// and then.
//
// It may be called while the locks are used. The service refuses to delete a blob that
// is leased, or that was written since it was listed. A lock that is granted again gets a
// higher token, since only blobs are deleted whose token the service's clock has passed.
// Blobs that are no lock's, or that carry metadata of others, such as a [Fence]'s, stay.
//
// It costs a request for every 5000 blobs, and one for each that is deleted. A blob that the
// service refuses to delete does not keep it from the next one. Any other failure ends it.
func (l *Locker) Prune(ctx context.Context, prefix string, idle time.Duration) (removed int, err error) {
	if idle < minIdle {
		return 0, &driver.OpError{Op: "prune", Backend: backend, Name: prefix,
			Err: driver.Invalid("idle time", text.Duration(idle), "at least "+text.Duration(minIdle))}
	}
	return l.prune(ctx, prefix, idle)
}

// unused is a blob that may be deleted if it still is what it was.
type unused struct {
	name string
	etag *azcore.ETag
}

func (l *Locker) prune(ctx context.Context, prefix string, idle time.Duration) (removed int, err error) {
	var all []unused
	err = l.pages(ctx, "prune", prefix, func(page container.ListBlobsHierarchyResponse) {
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
			same := &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: one.etag}}
			_, err := l.target(one.name, "").blob.Delete(l.tries(ctx, 0), &blob.DeleteOptions{AccessConditions: same})
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

// concernsBlob says whether an error is an answer about one blob. Others, such as a lack of rights or
// the end of the context, would be met with every blob.
func concernsBlob(err error) bool {
	var answer *StorageError
	return errors.As(err, &answer) && (answer.Status == http.StatusConflict || answer.Status == http.StatusPreconditionFailed)
}

// unused judges a blob by the service's clock when it was listed.
func (l *Locker) unused(item *container.BlobItem, now *time.Time, idle time.Duration) (unused, bool) {
	locks := l.appendLock(nil, item)
	if len(locks) == 0 || now == nil || item.Properties == nil || item.Properties.ETag == nil || item.Properties.LastModified == nil {
		return unused{}, false
	}
	lock := locks[0]
	switch {
	case lock.damage != nil, len(lock.record.others) > 0,
		lock.state == nil || *lock.state == lease.StateTypeLeased || *lock.state == lease.StateTypeBreaking,
		now.Sub(*item.Properties.LastModified) < idle,
		lock.record.token >= uint64(max(now.UnixMilli(), 0)): // the next could be no higher
		return unused{}, false
	}
	return unused{lock.name, item.Properties.ETag}, true
}
