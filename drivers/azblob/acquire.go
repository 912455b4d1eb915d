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

// maxRounds is how often an operation starts again because the blob changed during it. Each
// change is another's success, or the operation's own request whose answer was lost.
const maxRounds = 5

var (
	errChanging = errors.New("the blob changed during every attempt")
	errNoETag   = errors.New("the service's answer has no ETag or no Date")
)

// TryAcquire implements [driver.Locker]. It ignores Request.Replace: leases end by the
// service's own clock, which does not step back.
func (l *Locker) TryAcquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	invalid := req.Validate(l.Info())
	id, ok := canonicalID(req.ID.Reveal())
	if invalid == nil && !ok {
		invalid = driver.Invalid("ID", fmt.Sprintf("of %d bytes", len(req.ID.Reveal())), "a UUID on this backend")
	}
	var granted driver.Lease
	err := l.do(ctx, op{verb: "acquire", name: req.Name, invalid: invalid, size: len(req.Data)}, func(ctx context.Context) (err error) {
		granted, err = l.acquire(ctx, l.lockBlob(req.Name, id), req)
		return err
	})
	if err != nil {
		return driver.Lease{}, err
	}
	return granted, nil
}

// lockBlob is a lock's blob, and the lease ID of the requests for it.
type lockBlob struct {
	path string // its name in the container
	blob *blockblob.Client
	id   string
}

func (l *Locker) lockBlob(name, id string) lockBlob {
	path := l.config.prefix + escape(name)
	return lockBlob{path, l.container.NewBlockBlobClient(path), id}
}

func (b lockBlob) lease() *lease.BlobClient {
	c, err := lease.NewBlobClient(b.blob, &lease.BlobClientOptions{LeaseID: &b.id})
	if err != nil {
		panic(err) // it fails only if it has to generate an ID
	}
	return c
}

// leaseConditions are the conditions that only the lease's holder meets.
func (b lockBlob) leaseConditions() *blob.AccessConditions {
	return &blob.AccessConditions{LeaseAccessConditions: &blob.LeaseAccessConditions{LeaseID: &b.id}}
}

// acquire takes the lease first and writes the record under it, so that nobody else writes
// between its read and its write.
func (l *Locker) acquire(ctx context.Context, b lockBlob, req driver.Request) (driver.Lease, error) {
	if err := l.mayRead(ctx, b); err != nil {
		return driver.Lease{}, err
	}
	for round := range maxRounds {
		traced, unsent := traceConnections(ctx)
		err := l.takeLease(traced, b, req.TTL)
		if round == 0 && unsent(err) {
			noteUnsent(ctx)
		}
		switch {
		case err == nil:
			granted, err := l.writeGrant(ctx, b, req)
			if !hasCode(err, codesLost...) {
				return granted, err
			} // the lease was broken, or the blob removed: start again
		case hasCode(err, bloberror.LeaseAlreadyPresent, bloberror.LeaseIsBreakingAndCannotBeAcquired):
			return driver.Lease{}, &driver.HeldError{Record: driver.Record{Name: req.Name, State: driver.StateHeld,
				Broken: hasCode(err, bloberror.LeaseIsBreakingAndCannotBeAcquired)}}
		case hasCode(err, bloberror.BlobNotFound, bloberror.ContainerNotFound):
			if err := l.createBlob(ctx, b); err != nil {
				return driver.Lease{}, l.denied(ctx, err)
			}
		default:
			return driver.Lease{}, l.denied(ctx, err)
		}
	}
	return driver.Lease{}, errChanging
}

// mayRead asks whether the credential may read, if it was refused that. Otherwise each failed attempt would take the lease, and keep
// it from those who may.
func (l *Locker) mayRead(ctx context.Context, b lockBlob) error {
	if !l.unreadable.Load() {
		return nil
	}
	_, err := b.blob.BlobClient().GetProperties(l.withoutRetries(ctx), nil)
	if err := l.denied(ctx, err); errors.Is(err, driver.ErrDenied) {
		return errUnreadable(err)
	}
	l.unreadable.Store(false)
	return nil
}

// errUnreadable says what a credential lacks that may take leases.
func errUnreadable(err error) error {
	return fmt.Errorf("the lock's record cannot be read: %w", err)
}

// takeLease takes the lease, or extends it if the caller has it.
func (l *Locker) takeLease(ctx context.Context, b lockBlob, ttl time.Duration) error {
	// Promise 1: the service grants one lease at a time.
	// Promise 5: a repeat with the same ID extends the lease. The SDK sends the request again only
	// if the service refused it: the first copy could still arrive, after the release, and take the
	// lease for nobody. So the caller gets an error that leaves the outcome open.
	_, err := b.lease().AcquireLease(l.retryIfRefused(ctx), int32(ttl/time.Second), nil)
	return err
}

// createBlob creates the blob, and first the container if that is missing. It succeeds if
// another process has created them.
func (l *Locker) createBlob(ctx context.Context, b lockBlob) error {
	err := l.uploadIfAbsent(ctx, b)
	if !hasCode(err, bloberror.ContainerNotFound) {
		return err
	}
	_, err = l.container.Create(l.withRetries(ctx, 0), nil)
	switch {
	case err == nil: // another container is another set of locks, so none is made without a word
		l.config.logger.InfoContext(ctx, "holdfast: there was no container for locks, it was made", "backend", backend,
			"container", l.containerName())
	case !hasCode(err, codesExist...):
		return driver.Errorf("the container does not exist and cannot be created: %w", redact(err))
	}
	return l.uploadIfAbsent(ctx, b)
}

func (l *Locker) uploadIfAbsent(ctx context.Context, b lockBlob) error {
	every := azcore.ETagAny
	// Promise 3: an existing blob, with its record and token, is never replaced.
	absent := &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: &every}}
	_, err := b.blob.Upload(l.withRetries(ctx, 0), requestBody(nil), &blockblob.UploadOptions{AccessConditions: absent})
	if hasCode(err, codesExist...) {
		return nil
	}
	return err
}

// writeGrant writes the record of the grant under the lease that was just taken.
func (l *Locker) writeGrant(ctx context.Context, b lockBlob, req driver.Request) (driver.Lease, error) {
	for range maxRounds {
		now, err := l.readProperties(ctx, b)
		if errors.Is(l.denied(ctx, err), driver.ErrDenied) {
			// The lease was taken, and the attempt has failed. Only the caller knows whether it held it before, so only the caller can release
			// it, and does. A request with the same ID would extend it instead.
			l.unreadable.Store(true)
			return driver.Lease{}, driver.WithIDReleased(errUnreadable(redact(err)))
		}
		if err != nil {
			// The caller may have held the lease before, so it is not released.
			return driver.Lease{}, err
		}
		if now.damage != nil {
			if !l.releaseUnrecorded(ctx, b, now) {
				return driver.Lease{}, errors.New(now.damage.Error()) // the lease may be taken
			}
			return driver.Lease{}, now.damage
		}
		// Promise 5: the same ID in the record keeps its token.
		if now.record.id == b.id {
			return l.repeatGrant(ctx, b, now, req)
		}
		if req.Data != nil && now.foreign {
			if !l.releaseUnrecorded(ctx, b, now) {
				return driver.Lease{}, errors.New(errForeign(b).Error())
			}
			return driver.Lease{}, errForeign(b)
		}
		next := now.record.nextGrant(req, b.id, now.date, l.config.history)
		err = l.writeRecord(ctx, b, now.etag, next, req.Data)
		switch {
		case err == nil:
			return next.lease(req), nil
		case hasCode(err, bloberror.ConditionNotMet):
			// Written by this call, with the answer lost, or by another call with the same ID:
			// read it.
		case hasCode(err, codesLost...):
			return driver.Lease{}, err
		default:
			if l.releaseUnrecorded(ctx, b, now) {
				err = l.denied(ctx, err)
			}
			return driver.Lease{}, err
		}
	}
	return driver.Lease{}, errChanging // always by calls with the same ID
}

// repeatGrant completes a call whose ID already holds the lock. Taking the lease again has set
// its length, so a longer one is restored; the record keeps the longest.
func (l *Locker) repeatGrant(ctx context.Context, b lockBlob, now snapshot, req driver.Request) (driver.Lease, error) {
	r := now.record
	if r.ttl > req.TTL {
		// Promise 2: the lease must not be shorter than its holder counts on.
		return r.lease(req), l.takeLease(ctx, b, r.ttl)
	}
	if r.ttl < req.TTL {
		r.ttl = req.TTL
		if err := l.writeRecord(ctx, b, now.etag, r, nil); err != nil && !hasCode(err, bloberror.ConditionNotMet) {
			return driver.Lease{}, err
		}
	}
	return r.lease(req), nil
}

// releaseUnrecorded releases a lease for which no record could be written, unless the blob has
// changed: then the record may have been written after all, by this call or by another one
// with the same ID. A lease that is not released is left to the caller, to whom the error says
// that the outcome is unknown. It reports whether the lease was released.
func (l *Locker) releaseUnrecorded(ctx context.Context, b lockBlob, before snapshot) bool {
	if ctx.Err() != nil {
		return false
	}
	// Promise 6: a lease that another call has recorded is not released.
	unchanged := &blob.ModifiedAccessConditions{IfMatch: before.etag}
	_, err := b.lease().ReleaseLease(l.withoutRetries(ctx), &lease.BlobReleaseOptions{ModifiedAccessConditions: unchanged})
	return err == nil
}

func errForeign(b lockBlob) error {
	return driver.Damaged(fmt.Errorf("the blob %q has contents of another program, which are kept; use another name or prefix", b.path))
}

// snapshot is the state of a blob at one moment.
type snapshot struct {
	record  record
	damage  error // what is wrong with the metadata
	foreign bool  // the contents are not a lock's data
	etag    *azcore.ETag
	date    time.Time // by the service's clock
}

// readProperties reads the blob's properties as the holder of the lease.
func (l *Locker) readProperties(ctx context.Context, b lockBlob) (snapshot, error) {
	p, err := b.blob.BlobClient().GetProperties(l.withRetries(ctx, 0), &blob.GetPropertiesOptions{AccessConditions: b.leaseConditions()})
	if err != nil {
		return snapshot{}, err
	}
	if p.ETag == nil || p.Date == nil {
		return snapshot{}, errNoETag
	}
	r, damage := parse(p.Metadata)
	foreign := p.BlobType != nil && *p.BlobType != blob.BlobTypeBlockBlob ||
		r.id == "" && p.ContentLength != nil && *p.ContentLength > 0
	return snapshot{record: r, damage: damage, foreign: foreign, etag: p.ETag, date: *p.Date}, nil
}

// writeRecord writes the record as the holder of the lease, and the data unless they are nil.
func (l *Locker) writeRecord(ctx context.Context, b lockBlob, etag *azcore.ETag, r record, data []byte) error {
	// Promise 3: without the lease, or after another write, the service refuses the request, so a
	// late one cannot lower the token.
	conditions := b.leaseConditions()
	conditions.ModifiedAccessConditions = &blob.ModifiedAccessConditions{IfMatch: etag}
	if data == nil {
		_, err := b.blob.BlobClient().SetMetadata(l.withRetries(ctx, 0), r.metadata(), &blob.SetMetadataOptions{AccessConditions: conditions})
		return err
	}
	_, err := b.blob.Upload(l.withRetries(ctx, len(data)), requestBody(data), &blockblob.UploadOptions{AccessConditions: conditions,
		Metadata: r.metadata()})
	return err
}

// requestBody copies the data: a transport may read on after the request was abandoned.
func requestBody(data []byte) io.ReadSeekCloser {
	return streaming.NopCloser(bytes.NewReader(bytes.Clone(data)))
}
