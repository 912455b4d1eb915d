package azblob

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/guard"
)

// apart returns the URL of a prefix of its own.
func apart(rawURL, name string) (own string, remove func(context.Context) error) {
	if _, err := parseURL(rawURL); err != nil { // without a container, name would be one
		return rawURL, func(context.Context) error { return err }
	}
	own = driverutil.Below(rawURL, name)
	return own, func(ctx context.Context) error { return deleteAll(ctx, own) }
}

// deleters is how many blobs deleteAll deletes at a time.
const deleters = 8

// deleteAll deletes every blob under the prefix of a URL, also those that are leased. The container stays.
func deleteAll(ctx context.Context, rawURL string) error {
	l, err := Open(ctx, rawURL)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close(ctx) }()
	var names []string
	if err := l.forEachPage(ctx, "remove", "", func(page container.ListBlobsHierarchyResponse) {
		for _, item := range page.Segment.BlobItems {
			if item.Name != nil {
				names = append(names, *item.Name)
			}
		}
	}); err != nil {
		return err
	}
	errs := make([]error, len(names))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range deleters {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(names); i = int(next.Add(1)) - 1 {
				errs[i] = l.deleteBlob(ctx, names[i])
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err // the others are most likely the same
		}
	}
	return nil
}

// deleteBlob ends the lease of a blob, and deletes it.
func (l *Locker) deleteBlob(ctx context.Context, path string) error {
	return l.do(ctx, op{verb: "remove", name: path}, func(ctx context.Context) error {
		b := lockBlob{path, l.container.NewBlockBlobClient(path), ""}
		_, err := b.blob.Delete(l.withRetries(ctx, 0), nil)
		if hasCode(err, bloberror.LeaseIDMissing) {
			leased, clientErr := lease.NewBlobClient(b.blob, nil)
			if clientErr != nil {
				return clientErr
			}
			at := int32(0)
			if _, err := leased.BreakLease(l.withRetries(ctx, 0), &lease.BlobBreakOptions{BreakPeriod: &at}); err != nil &&
				!hasCode(err, codesLost...) && !hasCode(err, bloberror.LeaseAlreadyBroken) {
				return err
			}
			_, err = b.blob.Delete(l.withRetries(ctx, 0), nil)
		}
		if hasCode(err, codesGone...) {
			return nil
		}
		return err
	})
}

// writeGuarded implements [driver.Description.WriteGuarded], with a fenced blob beside that of the lock.
func writeGuarded(ctx context.Context, locks driver.Locker, lease driver.Lease, value string) (before string, err error) {
	l, err := guard.LockerOf[Locker](locks)
	if err != nil {
		return "", err
	}
	b := l.lockBlob(lease.Name+"-written", "").blob
	fence, err := NewFence(ctx, b.BlobClient(), lease.Token)
	if err != nil {
		return "", err
	}
	err = l.do(ctx, op{verb: "guard", name: lease.Name}, func(ctx context.Context) error {
		answer, err := b.DownloadStream(l.withRetries(ctx, 0), nil)
		if err == nil {
			var text []byte
			text, err = io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			before = string(text)
		}
		if err != nil && !bloberror.HasCode(err, bloberror.BlobNotFound) {
			return err
		}
		_, err = b.UploadBuffer(l.withRetries(ctx, len(value)), []byte(value), &blockblob.UploadBufferOptions{
			AccessConditions: fence.Conditions, Metadata: fence.Metadata})
		return err
	})
	return before, err
}
