package azblob

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
)

// Conditions makes the service refuse a program's own request for the blob of its lock
// ([Locker.Blob]) unless the lease is still the one given, such as hold.Lease(). The answer is
// 412 LeaseIdMismatchWithBlobOperation if another has the lease, and
// LeaseNotPresentWithBlobOperation or LeaseLost if it has ended. The service decides at the
// moment of the write, so it also refuses a holder that was paused and does not know that its
// lease has ended.
//
// Use it for the lock's own blob only. Another blob does not have this lease and refuses the
// request. For other blobs there is [NewFence].
//
// A request that replaces the blob replaces its metadata, which are the lock's record. Send
// the metadata that GetProperties returned, or use [Locker.WriteData], which does. Without its
// record the lock still excludes other holders, but its holder is unknown, the next token is
// based on the service's clock alone, and an acquire with data takes the contents for another
// program's.
func Conditions(held driver.Lease) *blob.AccessConditions {
	id := strings.ToLower(held.ID.Reveal())
	return &blob.AccessConditions{LeaseAccessConditions: &blob.LeaseAccessConditions{LeaseID: &id}}
}

// Container returns the container of the locks, for the program's own blobs beside them, with a
// "/" in their names or another prefix. If [Open] made the Locker, it is usable until Close.
// The SDK's errors may show a SAS; [Redact] removes it.
func (l *Locker) Container() *container.Client { return l.container }

// Blob returns the blob of a lock. Only its holder should write it.
func (l *Locker) Blob(name string) *blockblob.Client { return l.lockBlob(name, "").blob }

// keyFence is the metadata key of a fenced blob: the highest token so far.
const keyFence = "holdfastfence"

// Fence is what a write to a fenced blob must send.
type Fence struct {
	Conditions *blob.AccessConditions
	// Metadata are the blob's own, with the new token.
	Metadata map[string]*string
}

// NewFence prepares one write to any blob by the holder of a fencing token. Every writer of
// the blob must use a fence: an upload, a commit of blocks or a setting of metadata that sends
// both the fence's Conditions and its Metadata.
//
// The service then keeps the holders' writes in the order of their tokens:
//
//   - NewFence returns [driver.ErrLost] if the blob was written with a higher token.
//   - A write is refused if the blob was written since NewFence (412 ConditionNotMet, or 409
//     BlobAlreadyExists for a new blob). Then call NewFence again.
//
// It does not refuse a write of a former holder before the next holder's first write to the
// blob. A holder that must not be overtaken first sets the metadata with a fence, and then
// reads the blob. The token goes with the blob: after a deletion a former holder can make it
// again. So empty a blob instead of deleting it while a former holder may still write.
func NewFence(ctx context.Context, b *blob.Client, token uint64) (f *Fence, err error) {
	op := telemetry.Operation{Kind: telemetry.Guard, Token: token, Backend: backend, Method: "fence"}
	err = telemetry.Measure(ctx, ctx, op, func(ctx context.Context) (err error) {
		f, err = newFence(ctx, b, token)
		return err
	})
	return f, err
}

func newFence(ctx context.Context, b *blob.Client, token uint64) (*Fence, error) {
	fail := func(err error) (*Fence, error) {
		return nil, &driver.OpError{Op: "fence", Backend: backend, Err: redact(err)}
	}
	if token == 0 {
		return fail(driver.Invalid("token", "0", "the token of a lease"))
	}
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	ctx = policy.WithRetryOptions(ctx, policy.RetryOptions{TryTimeout: defaultRequestTimeout, MaxRetryDelay: opTimeout,
		ShouldRetry: func(answer *http.Response, err error) bool {
			failForeign(answer, err)
			return failed(answer, err)
		}})
	f := &Fence{Conditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{}}, Metadata: map[string]*string{}}
	p, err := b.GetProperties(ctx, nil)
	switch {
	case bloberror.HasCode(err, bloberror.BlobNotFound):
		every := azcore.ETagAny
		f.Conditions.ModifiedAccessConditions.IfNoneMatch = &every
	case err != nil:
		return fail(err)
	case p.ETag == nil: // without the condition every write would be let through
		return fail(errNoETag)
	default:
		// Promise 3: the service refuses the write after any other write.
		f.Conditions.ModifiedAccessConditions.IfMatch = p.ETag
	}
	for key, value := range p.Metadata {
		if key = strings.ToLower(key); key != keyFence || value == nil {
			f.Metadata[key] = value
			continue
		}
		highest, err := strconv.ParseUint(*value, 10, 64)
		if err != nil {
			return fail(fmt.Errorf("the blob's metadata are damaged: %s is not a number", keyFence))
		}
		if highest > token { // Promise 3: a later holder has written the blob
			return fail(driver.Errorf("%w: the blob was written with token %d, this one is %d", driver.ErrLost, highest, token))
		}
	}
	text := strconv.FormatUint(token, 10)
	f.Metadata[keyFence] = &text
	return f, nil
}
