package azblob

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/holdfast-go/holdfast/driver"
)

// Conditions has the service refuse a program's own request about the blob of
// its lock ([Locker.Blob]) unless the lease still is the one given, such as
// hold.Lease(): with 412 LeaseIdMismatchWithBlobOperation once another has it,
// LeaseNotPresentWithBlobOperation or LeaseLost once it has ended. The service
// decides, at the moment of the write, so a holder that was paused is refused
// too, whatever it believes.
//
// It is of use for the lock's own blob alone: another blob has no such lease, and
// refuses the request for that. For other blobs there is [NewFence].
//
// A request that replaces the blob replaces its metadata, which are the lock's
// record: give it the metadata that GetProperties returned, or use
// [Locker.WriteData], which does. Without its record the lock still excludes,
// but nobody is told who holds it, the next token rests on the service's clock
// alone, and an acquire with data takes the contents for somebody else's.
func Conditions(held driver.Lease) *blob.AccessConditions {
	id := strings.ToLower(held.ID.Reveal())
	return &blob.AccessConditions{LeaseAccessConditions: &blob.LeaseAccessConditions{LeaseID: &id}}
}

// Blob is the blob of a lock. Nothing but its holder should write it.
func (l *Locker) Blob(name string) *blockblob.Client { return l.target(name, "").blob }

// keyFence is the metadata key of a fenced blob: the highest token so far.
const keyFence = "holdfastfence"

// Fence is what a write to a fenced blob must carry.
type Fence struct {
	Conditions *blob.AccessConditions
	// Metadata are those that the blob has, with the new token.
	Metadata map[string]*string
}

// NewFence prepares one write to any blob by the holder of a fencing token. All
// who write the blob must do so with a fence: an upload, a commit of blocks or a
// setting of metadata that carries both the fence's Conditions and Metadata.
//
// The service then keeps the writes of holders in the order of their tokens:
//   - NewFence returns [driver.ErrLost] if a write with a higher token is there.
//   - A write is refused (412 ConditionNotMet, or 409 BlobAlreadyExists for a new
//     blob) if the blob was written since NewFence; then call NewFence again.
//
// What it cannot refuse is a write by a former holder before the next holder's
// first write to that blob. A holder that must not be overtaken by one begins
// by setting the metadata with a fence, and reads the blob after that.
func NewFence(ctx context.Context, b *blob.Client, token uint64) (*Fence, error) {
	fail := func(err error) (*Fence, error) {
		return nil, &driver.OpError{Op: "fence", Backend: backend, Err: clean(err)}
	}
	if token == 0 {
		return fail(driver.Invalid("token", "0", "the token of a lease"))
	}
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	ctx = policy.WithRetryOptions(ctx, policy.RetryOptions{TryTimeout: defaultTry, MaxRetryDelay: opTimeout})
	f := &Fence{Conditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{}}, Metadata: map[string]*string{}}
	p, err := b.GetProperties(ctx, nil)
	switch {
	case bloberror.HasCode(err, bloberror.BlobNotFound):
		every := azcore.ETagAny
		f.Conditions.ModifiedAccessConditions.IfNoneMatch = &every
	case err != nil:
		return fail(err)
	default:
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
		if highest > token {
			return fail(fmt.Errorf("%w: the blob was written with token %d, after %d", driver.ErrLost, highest, token))
		}
	}
	text := strconv.FormatUint(token, 10)
	f.Metadata[keyFence] = &text
	return f, nil
}
