package azblob

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/holdfast-go/holdfast/driver"
)

// listedBlob is one blob of a listing.
type listedBlob struct {
	name   string
	record record
	damage error // what is wrong with the record
	lease  blobLease
}

// List implements [driver.Lister] with one request for every 5000 blobs, and one for each held
// lock, for its owner. Records have no data. Blobs that are not a lock's are skipped.
func (l *Locker) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		all, err := l.listAll(ctx, prefix)
		if err != nil {
			yield(driver.Record{}, err)
			return
		}
		for _, one := range all {
			r, err := l.describeListed(ctx, one)
			if err != nil && one.damage == nil {
				yield(driver.Record{}, err)
				return
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// listAll collects all blobs first, because their order is not that of the names.
func (l *Locker) listAll(ctx context.Context, prefix string) ([]listedBlob, error) {
	var all []listedBlob
	err := l.forEachPage(ctx, "list", prefix, func(page container.ListBlobsHierarchyResponse) {
		for _, item := range page.Segment.BlobItems {
			all = l.appendLock(all, item)
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b listedBlob) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// forEachPage lists the blobs of the names that begin with prefix.
func (l *Locker) forEachPage(ctx context.Context, verb, prefix string, visit func(container.ListBlobsHierarchyResponse)) error {
	pager := l.newPager(l.config.prefix + escape(prefix))
	for pager.More() {
		err := l.do(ctx, op{verb: verb, name: prefix}, func(ctx context.Context) error {
			page, err := l.nextPage(ctx, pager)
			if err == nil {
				visit(page)
			}
			return err
		})
		if hasCode(err, codesGone...) {
			return nil // no container, no locks
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// newPager lists the blobs whose own names begin with prefix.
func (l *Locker) newPager(prefix string) *runtime.Pager[container.ListBlobsHierarchyResponse] {
	return l.container.NewListBlobsHierarchyPager("/", &container.ListBlobsHierarchyOptions{
		Prefix: &prefix, MaxResults: l.config.pageSize, Include: container.ListBlobsInclude{Metadata: true}})
}

// nextPage returns a page that is a listing. The SDK takes an answer without a body for an empty one.
func (l *Locker) nextPage(
	ctx context.Context, pager *runtime.Pager[container.ListBlobsHierarchyResponse],
) (container.ListBlobsHierarchyResponse, error) {
	page, err := pager.NextPage(l.withRetries(ctx, 0))
	if err == nil && page.Segment == nil {
		err = errors.New("the service's answer is no listing")
	}
	return page, err
}

func (l *Locker) appendLock(all []listedBlob, item *container.BlobItem) []listedBlob {
	if item.Name == nil {
		return all
	}
	name, ok := unescape(strings.TrimPrefix(*item.Name, l.config.prefix))
	r, err := parse(item.Metadata)
	if !ok || driver.ValidateName(name, limits) != nil || err == nil && r.id == "" {
		return all
	}
	one := listedBlob{name: name, record: r, damage: err}
	if item.Properties != nil {
		one.lease = blobLease{item.Properties.LeaseState, item.Properties.LeaseDuration}
	}
	return append(all, one)
}

func (l *Locker) describeListed(ctx context.Context, one listedBlob) (out driver.Record, err error) {
	if one.damage != nil { // a damaged record: nothing else is known of the lock
		return driver.Record{Name: one.name}, &driver.OpError{Op: "list", Backend: backend, Name: one.name, Err: one.damage}
	}
	err = l.do(ctx, op{verb: "list", name: one.name}, func(ctx context.Context) (err error) {
		out, err = l.describe(ctx, one.name, one.record, one.lease)
		return err
	})
	return out, err
}
