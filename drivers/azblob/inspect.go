package azblob

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/holdfast-go/holdfast/driver"
)

// Inspect implements [driver.Locker]. The service does not say how long a lease still runs, or
// when it was renewed; only that it never ends. A holder without a record is reported without owner and token: it is about
// to write one, or has crashed, or is another program.
func (l *Locker) Inspect(ctx context.Context, name string) (driver.Record, error) {
	var out driver.Record
	err := l.do(ctx, op{verb: "inspect", name: name, invalid: driver.ValidateName(name, limits), size: limits.MaxData},
		func(ctx context.Context) error {
			answer, data, err := l.download(ctx, l.lockBlob(name, ""))
			if hasCode(err, codesGone...) {
				out = driver.Record{Name: name, State: driver.StateFree}
				return nil
			}
			if err != nil {
				return err
			}
			r, err := parse(answer.Metadata)
			if err != nil {
				return err
			}
			out, err = l.describe(ctx, name, r, blobLease{answer.LeaseState, answer.LeaseDuration})
			out.Data = data
			if answer.Date != nil {
				out.ReadAt = *answer.Date
			}
			past := r.pastHolders(out.State == driver.StateHeld && !out.AcquiredAt.IsZero(), answer.LeaseState)
			out.History = past[:min(len(past), l.config.history)]
			return err
		})
	if err != nil {
		return driver.Record{}, err
	}
	return out, nil
}

// download reads metadata and data in one request. The data are nil if there are none.
func (l *Locker) download(ctx context.Context, b lockBlob) (blob.DownloadStreamResponse, []byte, error) {
	answer, err := b.blob.DownloadStream(l.withRetries(ctx, limits.MaxData), nil)
	if err != nil {
		return answer, nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(answer.Body, int64(limits.MaxData)+1))
	switch {
	case err != nil && ctx.Err() != nil:
		return answer, nil, ctx.Err() // err may be the context's cause, which is no outcome of this call
	case err != nil:
		return answer, nil, err
	case len(data) > limits.MaxData:
		return answer, nil, fmt.Errorf("the blob has more than the %d bytes that a lock's data may have", limits.MaxData)
	case len(data) == 0:
		return answer, nil, nil
	}
	return answer, data, nil
}

// blobLease is what the service says of a blob's lease. It reports the duration of a lease only while somebody has it.
type blobLease struct {
	state    *lease.StateType
	duration *lease.DurationType
}

// endless reports whether somebody has the lease and it never ends. The driver takes no such lease.
func (l blobLease) endless() bool {
	return l.duration != nil && *l.duration == lease.DurationTypeInfinite
}

// describe returns what is known of a lock. A holder writes its record after it took the
// lease, so the record of a held lock may be the predecessor's. A request that names the lease
// of the record shows whose it is.
func (l *Locker) describe(ctx context.Context, name string, r record, found blobLease) (driver.Record, error) {
	out := describeState(name, r, found)
	if out.State != driver.StateHeld || r.id == "" { // without an ID, the first holder is about to write its record
		return out, nil
	}
	_, err := l.readProperties(ctx, l.lockBlob(name, r.id))
	switch {
	case err == nil:
		out.Owner, out.Token, out.TTL, out.AcquiredAt = r.owner, r.token, r.ttl, r.acquired
		return out, nil
	case hasCode(err, bloberror.LeaseIDMismatchWithBlobOperation):
		out.Token = 0 // another's lease
		return out, nil
	case hasCode(err, codesLost...):
		return freeRecord(name, r), nil // it has ended meanwhile
	default:
		return driver.Record{}, err
	}
}

// describeState returns what is known without a request for the lease's holder. The record of
// a held lock may be the predecessor's, so the token is that of the last grant on record, and
// the owner stays unknown. An endless lease is none of a lock's holder, so its token is unknown.
func describeState(name string, r record, found blobLease) driver.Record {
	if found.state == nil {
		return driver.Record{Name: name, Token: r.token}
	}
	switch *found.state {
	case lease.StateTypeLeased, lease.StateTypeBreaking:
		out := driver.Record{Name: name, State: driver.StateHeld, Token: r.token, Broken: *found.state == lease.StateTypeBreaking}
		if out.Endless = found.endless(); out.Endless {
			out.Token = 0
		}
		return out
	case lease.StateTypeAvailable, lease.StateTypeExpired, lease.StateTypeBroken:
		return freeRecord(name, r)
	default:
		return driver.Record{Name: name, Token: r.token}
	}
}

func freeRecord(name string, r record) driver.Record {
	return driver.Record{Name: name, State: driver.StateFree, Owner: r.owner, Token: r.token, AcquiredAt: r.acquired}
}

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
			page, err := l.nextPage(ctx, pager)
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
