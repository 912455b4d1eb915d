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
	// listCost is the price of one listing request in reads of one blob's properties: a
	// listing is billed as "list and create container", at the price of a write, a read as
	// "other".
	// https://learn.microsoft.com/azure/storage/blobs/map-rest-apis-transaction-categories
	listCost = 12
	// parallelReads is how many reads run at a time. The SDK's transport keeps as many
	// connections.
	parallelReads = 10
	// timePerName is the time that each name adds to the limit of a whole call.
	timePerName = 20 * time.Millisecond
)

// InspectBatch implements [driver.BatchInspector]. It reads the properties of the single
// blobs. From 12 names on it lists the blobs whose names begin with the longest common prefix
// of all names: one request covers up to 5,000 blobs and is billed like 12 reads. When the
// listing has cost as much as reading every name, it stops, and the names that are still
// missing are read. So a call costs at most twice as much as reads alone. It costs least if
// the names have a prefix that few other blobs have.
//
// The result says whether a lock is held, and whether it is broken. Its token is that of the
// last grant on record, which changes with the holder; with a lease that never ends it is 0. The holder and the time left stay unknown:
// they would take a request for each name (see Inspect).
func (l *Locker) InspectBatch(ctx context.Context, _ driver.WaiterID, names []string) ([]driver.Record, []error) {
	ctx, cancel := context.WithTimeout(ctx, opTimeout+time.Duration(len(names))*timePerName)
	defer cancel()
	remaining := slices.Compact(slices.Sorted(slices.Values(names)))
	results := make(map[string]inspectResult, len(remaining))
	if len(remaining) >= listCost {
		remaining = l.readByListing(ctx, remaining, results)
	}
	l.readEach(ctx, remaining, results)
	records, errs := make([]driver.Record, len(names)), make([]error, len(names))
	for i, name := range names {
		records[i], errs[i] = results[name].record, results[name].err
	}
	return records, errs
}

type inspectResult struct {
	record driver.Record
	err    error
}

// readEach reads the properties of each name's blob.
func (l *Locker) readEach(ctx context.Context, names []string, results map[string]inspectResult) {
	var mu sync.Mutex // guards results
	var reads sync.WaitGroup
	running := make(chan struct{}, parallelReads)
	for _, name := range names {
		running <- struct{}{}
		reads.Go(func() {
			r, err := l.readState(ctx, name)
			<-running
			mu.Lock()
			defer mu.Unlock()
			results[name] = inspectResult{r, err}
		})
	}
	reads.Wait()
}

func (l *Locker) readState(ctx context.Context, name string) (out driver.Record, err error) {
	err = l.do(ctx, op{verb: "inspect", name: name, invalid: driver.ValidateName(name, limits)}, func(ctx context.Context) error {
		p, err := l.lockBlob(name, "").blob.BlobClient().GetProperties(l.withRetries(ctx, 0), nil)
		if hasCode(err, codesGone...) {
			out = freeRecord(name, record{})
			return nil
		}
		if err != nil {
			return err
		}
		r, err := parse(p.Metadata)
		if err == nil {
			out = describeState(name, r, blobLease{p.LeaseState, p.LeaseDuration})
		}
		return err
	})
	return out, err
}

// readByListing lists blobs and returns the names that are still unknown.
func (l *Locker) readByListing(ctx context.Context, names []string, results map[string]inspectResult) (remaining []string) {
	wanted := make(map[string]string, len(names)) // by the blob's name
	for _, name := range names {
		if driver.ValidateName(name, limits) != nil {
			remaining = append(remaining, name)
		} else {
			wanted[l.lockBlob(name, "").path] = name
		}
	}
	complete, err := l.listWanted(ctx, wanted, len(names)/listCost, results)
	for _, name := range wanted {
		switch {
		case hasCode(err, bloberror.AuthorizationPermissionMismatch, bloberror.AuthorizationFailure):
			remaining = append(remaining, name) // the credential may still have the right to read
		case err != nil:
			// A service that is too busy must not get a request for each name now.
			results[name] = inspectResult{err: &driver.OpError{Op: "inspect", Backend: backend, Name: name, Err: err}}
		case complete:
			results[name] = inspectResult{record: freeRecord(name, record{})}
		default:
			remaining = append(remaining, name)
		}
	}
	return remaining
}

// listWanted removes from wanted the names that are found on at most so many pages. complete
// means that the remaining names have no blobs.
func (l *Locker) listWanted(
	ctx context.Context, wanted map[string]string, pages int, results map[string]inspectResult,
) (complete bool, err error) {
	pager := l.newPager(commonPrefix(wanted))
	for ; pager.More() && len(wanted) > 0; pages-- {
		if pages == 0 {
			return false, nil
		}
		err := l.run(ctx, op{}, func(ctx context.Context) error {
			page, err := pager.NextPage(l.withRetries(ctx, 0))
			if err != nil {
				return err
			}
			for _, item := range page.Segment.BlobItems {
				storeListed(wanted, item, results)
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

func storeListed(wanted map[string]string, item *container.BlobItem, results map[string]inspectResult) {
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
		results[name] = inspectResult{err: &driver.OpError{Op: "inspect", Backend: backend, Name: name, Err: err}}
		return
	}
	results[name] = inspectResult{record: describeState(name, r, blobLease{item.Properties.LeaseState, item.Properties.LeaseDuration})}
}

// commonPrefix is the longest common prefix of all keys.
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
