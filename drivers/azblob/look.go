package azblob

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// listPrice is what a request of a listing is billed at, in reads of one blob's
	// properties: it is an operation of the class "list and create container", at the
	// price of a write, and the read one of the class "other".
	// https://learn.microsoft.com/azure/storage/blobs/map-rest-apis-transaction-categories
	listPrice = 12
	// lookParallel is how many reads are under way at a time: as many as the SDK's
	// transport keeps connections.
	lookParallel = 10
	// lookTime is what each name adds to the time limit of a whole call.
	lookTime = 20 * time.Millisecond
)

// InspectBatch implements [driver.BatchInspector] with reads of the single blobs'
// properties or, from 12 names on, with listings of the blobs that begin as all the names
// do: one request tells of up to 5,000, and is billed like 12 reads. The listing is given
// up, and what it has not told yet is read, when it has cost as much as reading all of
// the names: at the worst a call costs twice that. Names that begin alike, and like little
// else in the container, are the cheapest.
//
// A lease's state says whether a lock is held, and whether it is broken. By whom, with
// which token and for how long stays unknown: that would take a request for each (see
// Inspect).
func (l *Locker) InspectBatch(ctx context.Context, names []string) ([]driver.Record, []error) {
	ctx, cancel := context.WithTimeout(ctx, opTimeout+time.Duration(len(names))*lookTime)
	defer cancel()
	left := slices.Compact(slices.Sorted(slices.Values(names)))
	views := make(map[string]view, len(left))
	if len(left) >= listPrice {
		left = l.lookThrough(ctx, left, views)
	}
	l.lookAt(ctx, left, views)
	records, errs := make([]driver.Record, len(names)), make([]error, len(names))
	for i, name := range names {
		records[i], errs[i] = views[name].record, views[name].err
	}
	return records, errs
}

type view struct {
	record driver.Record
	err    error
}

// lookAt reads the properties of each name's blob.
func (l *Locker) lookAt(ctx context.Context, names []string, views map[string]view) {
	var mu sync.Mutex // guards views
	var reads sync.WaitGroup
	slots := make(chan struct{}, lookParallel)
	for _, name := range names {
		slots <- struct{}{}
		reads.Go(func() {
			r, err := l.glanceAt(ctx, name)
			<-slots
			mu.Lock()
			defer mu.Unlock()
			views[name] = view{r, err}
		})
	}
	reads.Wait()
}

func (l *Locker) glanceAt(ctx context.Context, name string) (out driver.Record, err error) {
	err = l.do(ctx, op{verb: "inspect", name: name, invalid: driver.ValidateName(name, limits)}, func(ctx context.Context) error {
		p, err := l.target(name, "").blob.BlobClient().GetProperties(l.tries(ctx, 0), nil)
		if hasCode(err, codesGone...) {
			out = free(name, record{})
			return nil
		}
		if err != nil {
			return err
		}
		r, err := parse(p.Metadata)
		if err == nil {
			out = glance(name, r, p.LeaseState)
		}
		return err
	})
	return out, err
}

// lookThrough lists blobs, and returns the names that this has told nothing of.
func (l *Locker) lookThrough(ctx context.Context, names []string, views map[string]view) (left []string) {
	wanted := make(map[string]string, len(names)) // by the blob's name
	for _, name := range names {
		if driver.ValidateName(name, limits) != nil {
			left = append(left, name)
		} else {
			wanted[l.target(name, "").path] = name
		}
	}
	complete, err := l.listWanted(ctx, wanted, len(names)/listPrice, views)
	for _, name := range wanted {
		switch {
		case hasCode(err, bloberror.AuthorizationPermissionMismatch, bloberror.AuthorizationFailure):
			left = append(left, name) // the credential may read, perhaps
		case err != nil:
			// A service that is too busy is not asked for each name then.
			views[name] = view{err: &driver.OpError{Op: "inspect", Backend: backend, Name: name, Err: err}}
		case complete:
			views[name] = view{record: free(name, record{})}
		default:
			left = append(left, name)
		}
	}
	return left
}

// listWanted takes out of wanted what at most so many pages tell of. complete says
// that there are no blobs of the others.
func (l *Locker) listWanted(ctx context.Context, wanted map[string]string, pages int, views map[string]view) (complete bool, err error) {
	prefix := commonPrefix(wanted)
	pager := l.container.NewListBlobsHierarchyPager("/", &container.ListBlobsHierarchyOptions{
		Prefix: &prefix, MaxResults: l.config.pageSize, Include: container.ListBlobsInclude{Metadata: true}})
	for ; pager.More() && len(wanted) > 0; pages-- {
		if pages == 0 {
			return false, nil
		}
		err := l.run(ctx, op{}, func(ctx context.Context) error {
			page, err := pager.NextPage(l.tries(ctx, 0))
			if err != nil {
				return err
			}
			for _, item := range page.Segment.BlobItems {
				noteWanted(wanted, item, views)
			}
			return nil
		})
		if hasCode(err, codesGone...) {
			return true, nil // no container, no locks
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

func noteWanted(wanted map[string]string, item *container.BlobItem, views map[string]view) {
	if item.Name == nil || item.Properties == nil {
		return
	}
	name, ok := wanted[*item.Name]
	if !ok {
		return
	}
	delete(wanted, *item.Name)
	r, err := parse(item.Metadata)
	if err != nil {
		views[name] = view{err: &driver.OpError{Op: "inspect", Backend: backend, Name: name, Err: err}}
		return
	}
	views[name] = view{record: glance(name, r, item.Properties.LeaseState)}
}

// commonPrefix is what all keys begin with.
func commonPrefix(all map[string]string) string {
	prefix, first := "", true
	for path := range all {
		if first {
			prefix, first = path, false
		}
		for !strings.HasPrefix(path, prefix) {
			prefix = prefix[:len(prefix)-1]
		}
	}
	return prefix
}
