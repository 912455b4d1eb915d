package azblob

import (
	"context"
	"fmt"
	"io"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
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
