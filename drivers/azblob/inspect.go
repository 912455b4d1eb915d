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

// Inspect implements [driver.Locker]. The service does not tell how long a
// lease still runs, nor when it was renewed. A holder that has not written its
// record yet, or never will because it crashed, is shown without a name.
func (l *Locker) Inspect(ctx context.Context, name string) (driver.Record, error) {
	var out driver.Record
	err := l.do(ctx, op{verb: "inspect", name: name, invalid: driver.ValidateName(name, limits), size: limits.MaxData}, func(ctx context.Context) error {
		answer, data, err := l.download(ctx, l.target(name, ""))
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
		out, err = l.describe(ctx, name, r, answer.LeaseState)
		out.Data = data
		return err
	})
	if err != nil {
		return driver.Record{}, err
	}
	return out, nil
}

// download reads metadata and data in one request; no data are nil.
func (l *Locker) download(ctx context.Context, t target) (blob.DownloadStreamResponse, []byte, error) {
	answer, err := t.blob.DownloadStream(l.tries(ctx, limits.MaxData), nil)
	if err != nil {
		return answer, nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(answer.Body, int64(limits.MaxData)+1))
	switch {
	case err != nil && ctx.Err() != nil:
		return answer, nil, ctx.Err() // err may be its cause, which is no outcome
	case err != nil:
		return answer, nil, err
	case len(data) > limits.MaxData:
		return answer, nil, fmt.Errorf("the blob has more than %d bytes: it is not a lock's", limits.MaxData)
	case len(data) == 0:
		return answer, nil, nil
	}
	return answer, data, nil
}

// describe tells what is known. Metadata are written after the lease is taken,
// so those of a held lock may be the predecessor's: whether they are is asked
// for by naming the lease that they are about.
func (l *Locker) describe(ctx context.Context, name string, r record, state *lease.StateType) (driver.Record, error) {
	out := glance(name, r, state)
	if out.State != driver.StateHeld || r.id == "" { // without an ID, the first holder is about to write its record
		return out, nil
	}
	out.Token = r.token
	_, err := l.read(ctx, l.target(name, r.id))
	switch {
	case err == nil:
		out.Owner, out.TTL, out.AcquiredAt = r.owner, r.ttl, r.acquired
		return out, nil
	case hasCode(err, bloberror.LeaseIDMismatchWithBlobOperation):
		return out, nil // another's lease
	case hasCode(err, codesLost...):
		return free(name, r), nil // it has ended meanwhile
	default:
		return driver.Record{}, err
	}
}

// glance tells what is known without asking whose the lease is: the record of a held
// lock, its token too, may be the predecessor's.
func glance(name string, r record, state *lease.StateType) driver.Record {
	if state == nil {
		return driver.Record{Name: name, Token: r.token}
	}
	switch *state {
	case lease.StateTypeLeased, lease.StateTypeBreaking:
		return driver.Record{Name: name, State: driver.StateHeld, Broken: *state == lease.StateTypeBreaking}
	case lease.StateTypeAvailable, lease.StateTypeExpired, lease.StateTypeBroken:
		return free(name, r)
	default:
		return driver.Record{Name: name, Token: r.token}
	}
}

func free(name string, r record) driver.Record {
	return driver.Record{Name: name, State: driver.StateFree, Owner: r.owner, Token: r.token, AcquiredAt: r.acquired}
}
