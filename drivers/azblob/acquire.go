package azblob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/holdfast-go/holdfast/driver"
)

// rounds is how often an operation begins again because the blob changed under
// it. Each change is another's success, or our own of which the answer was lost.
const rounds = 5

var errChanging = errors.New("the blob keeps changing")

// TryAcquire implements [driver.Locker]. Request.Replace is without meaning
// here: the clock that ends leases is the service's own and does not step back.
func (l *Locker) TryAcquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	invalid := req.Validate(limits)
	id, ok := canonical(req.ID.Reveal())
	if invalid == nil && !ok {
		invalid = driver.Invalid("ID", fmt.Sprintf("of %d bytes", len(req.ID.Reveal())), "a UUID on this backend")
	}
	var granted driver.Lease
	err := l.do(ctx, op{verb: "acquire", name: req.Name, invalid: invalid, size: len(req.Data)}, func(ctx context.Context) (err error) {
		granted, err = l.acquire(ctx, l.target(req.Name, id), req)
		return err
	})
	if err != nil {
		return driver.Lease{}, err
	}
	return granted, nil
}

// target is a lock's blob, and the lease ID that requests about it carry.
type target struct {
	path string // in the container
	blob *blockblob.Client
	id   string
}

func (l *Locker) target(name, id string) target {
	path := l.config.prefix + escape(name)
	return target{path, l.container.NewBlockBlobClient(path), id}
}

func (t target) lease() *lease.BlobClient {
	c, err := lease.NewBlobClient(t.blob, &lease.BlobClientOptions{LeaseID: &t.id})
	if err != nil {
		panic(err) // it fails only where it has to make up an ID
	}
	return c
}

// held are the conditions under which only the lease's holder is served.
func (t target) held() *blob.AccessConditions {
	return &blob.AccessConditions{LeaseAccessConditions: &blob.LeaseAccessConditions{LeaseID: &t.id}}
}

// acquire takes the lease first and writes the record under it, so that what it
// writes rests on what it read.
func (l *Locker) acquire(ctx context.Context, t target, req driver.Request) (driver.Lease, error) {
	for range rounds {
		err := l.take(ctx, t, req.TTL)
		switch {
		case err == nil:
			granted, err := l.settle(ctx, t, req)
			if !hasCode(err, codesLost...) {
				return granted, err
			} // the lease was broken, or the blob removed: begin again
		case hasCode(err, bloberror.LeaseAlreadyPresent, bloberror.LeaseIsBreakingAndCannotBeAcquired):
			return driver.Lease{}, &driver.HeldError{Record: driver.Record{Name: req.Name, State: driver.StateHeld,
				Broken: hasCode(err, bloberror.LeaseIsBreakingAndCannotBeAcquired)}}
		case hasCode(err, bloberror.BlobNotFound, bloberror.ContainerNotFound):
			if err := l.create(ctx, t); err != nil {
				return driver.Lease{}, err
			}
		default:
			return driver.Lease{}, err
		}
	}
	return driver.Lease{}, errChanging
}

// take takes the lease, or extends it if it is ours. A second copy of the request
// would be as good for the call, but the first could arrive after the release,
// and take the lease for nobody: so the caller is told of the doubt instead.
func (l *Locker) take(ctx context.Context, t target, ttl time.Duration) error {
	_, err := t.lease().AcquireLease(l.unlessRefused(ctx), int32(ttl/time.Second), nil)
	return err
}

// create makes the blob, and first the container if that is missing. Of many
// that do so at once, those that come second find what they wanted.
func (l *Locker) create(ctx context.Context, t target) error {
	err := l.put(ctx, t)
	if !hasCode(err, bloberror.ContainerNotFound) {
		return err
	}
	if _, err := l.container.Create(l.tries(ctx, 0), nil); err != nil && !hasCode(err, codesExist...) {
		return fmt.Errorf("the container does not exist and cannot be made: %w", clean(err))
	}
	return l.put(ctx, t)
}

func (l *Locker) put(ctx context.Context, t target) error {
	every := azcore.ETagAny
	absent := &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: &every}}
	_, err := t.blob.Upload(l.tries(ctx, 0), body(nil), &blockblob.UploadOptions{AccessConditions: absent})
	if hasCode(err, codesExist...) {
		return nil
	}
	return err
}

// settle writes the record of the grant under the lease that was just taken.
func (l *Locker) settle(ctx context.Context, t target, req driver.Request) (driver.Lease, error) {
	for range rounds {
		now, err := l.read(ctx, t)
		if err != nil {
			// Whether the lease was ours before is unknown, so it is not given up.
			return driver.Lease{}, err
		}
		if now.damage != nil {
			l.giveBack(ctx, t, now)
			return driver.Lease{}, now.damage
		}
		if now.record.id == t.id {
			return l.repeat(ctx, t, now, req)
		}
		if req.Data != nil && now.foreign {
			l.giveBack(ctx, t, now)
			return driver.Lease{}, errForeign(t)
		}
		next := now.record.next(req, t.id, now.date)
		err = l.write(ctx, t, now.etag, next, req.Data)
		switch {
		case err == nil:
			return next.lease(req), nil
		case hasCode(err, bloberror.ConditionNotMet):
			// Written by ourselves, with the answer lost, or by another call with
			// our ID: read it.
		case hasCode(err, codesLost...):
			return driver.Lease{}, err
		default:
			l.giveBack(ctx, t, now)
			return driver.Lease{}, err
		}
	}
	return driver.Lease{}, errChanging // always by a call with our ID
}

// repeat ends a call whose ID has the lock already. Taking the lease anew has
// set its length, so one that was longer is made longer again; the record keeps
// the longest.
func (l *Locker) repeat(ctx context.Context, t target, now snapshot, req driver.Request) (driver.Lease, error) {
	r := now.record
	if r.ttl > req.TTL {
		return r.lease(req), l.take(ctx, t, r.ttl)
	}
	if r.ttl < req.TTL {
		r.ttl = req.TTL
		if err := l.write(ctx, t, now.etag, r, nil); err != nil && !hasCode(err, bloberror.ConditionNotMet) {
			return driver.Lease{}, err
		}
	}
	return r.lease(req), nil
}

// giveBack ends a lease for which no record could be written, unless the blob is
// another than it was before: then the record of our ID may be there after all,
// from this call or from another to which the lock was granted. What is not given
// back is left to the caller, who knows that the outcome is in doubt.
func (l *Locker) giveBack(ctx context.Context, t target, before snapshot) {
	if ctx.Err() == nil {
		unchanged := &blob.ModifiedAccessConditions{IfMatch: before.etag}
		_, _ = t.lease().ReleaseLease(l.onlyOnce(ctx), &lease.BlobReleaseOptions{ModifiedAccessConditions: unchanged})
	}
}

func errForeign(t target) error {
	return fmt.Errorf("the blob %q is not a lock's: it has contents of its own, which are kept; use another name or prefix", t.path)
}

// snapshot is a blob at one moment.
type snapshot struct {
	record  record
	damage  error // of the metadata
	foreign bool  // the contents are not a lock's data
	etag    *azcore.ETag
	date    time.Time // by the service's clock
}

// read reads the blob's properties as the holder of the lease.
func (l *Locker) read(ctx context.Context, t target) (snapshot, error) {
	p, err := t.blob.BlobClient().GetProperties(l.tries(ctx, 0), &blob.GetPropertiesOptions{AccessConditions: t.held()})
	if err != nil {
		return snapshot{}, err
	}
	if p.ETag == nil || p.Date == nil {
		return snapshot{}, errors.New("the service's answer lacks ETag or Date")
	}
	r, damage := parse(p.Metadata)
	foreign := p.BlobType != nil && *p.BlobType != blob.BlobTypeBlockBlob ||
		r.id == "" && p.ContentLength != nil && *p.ContentLength > 0
	return snapshot{record: r, damage: damage, foreign: foreign, etag: p.ETag, date: *p.Date}, nil
}

// write writes the record, and the data unless they are nil, as the holder of
// the lease and only if nothing was written since: a request that arrives late
// is refused.
func (l *Locker) write(ctx context.Context, t target, etag *azcore.ETag, r record, data []byte) error {
	conditions := t.held()
	conditions.ModifiedAccessConditions = &blob.ModifiedAccessConditions{IfMatch: etag}
	if data == nil {
		_, err := t.blob.BlobClient().SetMetadata(l.tries(ctx, 0), r.metadata(), &blob.SetMetadataOptions{AccessConditions: conditions})
		return err
	}
	_, err := t.blob.Upload(l.tries(ctx, len(data)), body(data), &blockblob.UploadOptions{AccessConditions: conditions, Metadata: r.metadata()})
	return err
}

// body is a copy: a transport may go on reading after the request was given up.
func body(data []byte) io.ReadSeekCloser {
	return streaming.NopCloser(bytes.NewReader(bytes.Clone(data)))
}
