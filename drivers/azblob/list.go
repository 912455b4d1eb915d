package azblob

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/holdfast-go/holdfast/driver"
)

// listed is one blob of a listing.
type listed struct {
	name   string
	record record
	damage error // of the record
	state  *lease.StateType
}

// List implements [driver.Lister]: a request for every 5000 blobs, and one for
// each held lock, which tells its owner. Records are without data. Blobs that
// are no lock's are passed over.
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

// listAll collects the names first, since the order of the blobs is not theirs.
func (l *Locker) listAll(ctx context.Context, prefix string) ([]listed, error) {
	var all []listed
	err := l.pages(ctx, "list", prefix, func(page container.ListBlobsHierarchyResponse) {
		for _, item := range page.Segment.BlobItems {
			all = l.appendLock(all, item)
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b listed) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// pages lists the blobs of the names that begin with prefix.
func (l *Locker) pages(ctx context.Context, verb, prefix string, see func(container.ListBlobsHierarchyResponse)) error {
	start := l.config.prefix + escape(prefix)
	pager := l.container.NewListBlobsHierarchyPager("/", &container.ListBlobsHierarchyOptions{
		Prefix: &start, MaxResults: l.config.pageSize, Include: container.ListBlobsInclude{Metadata: true}})
	for pager.More() {
		err := l.do(ctx, op{verb: verb, name: prefix}, func(ctx context.Context) error {
			page, err := pager.NextPage(l.tries(ctx, 0))
			if err == nil {
				see(page)
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

func (l *Locker) appendLock(all []listed, item *container.BlobItem) []listed {
	if item.Name == nil {
		return all
	}
	name, ok := unescape(strings.TrimPrefix(*item.Name, l.config.prefix))
	r, err := parse(item.Metadata)
	if !ok || driver.ValidateName(name, limits) != nil || err == nil && r.id == "" {
		return all
	}
	one := listed{name: name, record: r, damage: err}
	if item.Properties != nil {
		one.state = item.Properties.LeaseState
	}
	return append(all, one)
}

func (l *Locker) describeListed(ctx context.Context, one listed) (out driver.Record, err error) {
	if one.damage != nil { // a lock's, and nothing is known of it
		return driver.Record{Name: one.name}, &driver.OpError{Op: "list", Backend: backend, Name: one.name, Err: one.damage}
	}
	err = l.do(ctx, op{verb: "list", name: one.name}, func(ctx context.Context) (err error) {
		out, err = l.describe(ctx, one.name, one.record, one.state)
		return err
	})
	return out, err
}
