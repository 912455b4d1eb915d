package azblob

import (
	"errors"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/holdfast-go/holdfast/driver"
)

// A program's own writes to its lock's blob are refused after the lease has ended.
func TestConditions(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l := store.locker()
	lease := acquire(t, l, request("n"))
	lease.ID = driver.NewLeaseID(strings.ToUpper(lease.ID.Reveal()))
	write := func(held driver.Lease) error {
		b := l.Blob("n").BlobClient()
		p, err := b.GetProperties(bounded(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.Blob("n").Upload(bounded(t), requestBody([]byte("mine")), &blockblob.UploadOptions{AccessConditions: Conditions(held),
			Metadata: p.Metadata})
		return err
	}
	if err := write(lease); err != nil {
		t.Fatal(err)
	}
	if r := inspect(t, l, "n"); r.Token != lease.Token || string(r.Data) != "mine" {
		t.Errorf("%+v", r)
	}
	if err := l.Break(bounded(t), "n", driver.BreakAnybody()); err != nil {
		t.Fatal(err)
	}
	if err := write(lease); err != nil { // it still has the lock
		t.Error(err)
	}
	if err := l.BreakNow(bounded(t), "n", driver.BreakAnybody()); err != nil {
		t.Fatal(err)
	}
	if err := write(lease); !hasCode(err, bloberror.LeaseNotPresentWithBlobOperation, bloberror.LeaseLost) {
		t.Errorf("after a break: %v", err)
	}
	next := acquire(t, l, request("n"))
	if err := write(lease); !hasCode(err, bloberror.LeaseIDMismatchWithBlobOperation) {
		t.Errorf("while another holds the lock: %v", err)
	}
	if err := write(next); err != nil {
		t.Error(err)
	}
}

func TestFence(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	target := store.client.NewBlockBlobClient("users/own")
	fence := func(token uint64) (*Fence, error) { return NewFence(bounded(t), target.BlobClient(), token) }
	write := func(f *Fence, text string) error {
		_, err := target.Upload(bounded(t), requestBody([]byte(text)), &blockblob.UploadOptions{AccessConditions: f.Conditions,
			Metadata: f.Metadata})
		return err
	}
	must := func(f *Fence, err error) *Fence {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	first, rival := must(fence(5)), must(fence(4))
	if err := write(first, "by 5"); err != nil {
		t.Fatal(err)
	}
	if err := write(rival, "by 4"); !hasCode(err, bloberror.BlobAlreadyExists, bloberror.ConditionNotMet) {
		t.Errorf("a write prepared before another's: %v", err)
	}
	if _, err := fence(4); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a lower token: %v, want ErrLost", err)
	}
	slow, again := must(fence(5)), must(fence(6))
	again.Metadata["colour"] = &[]string{"red"}[0]
	if _, err := target.BlobClient().SetMetadata(bounded(t), again.Metadata,
		&blob.SetMetadataOptions{AccessConditions: again.Conditions}); err != nil {
		t.Fatal(err)
	}
	if err := write(slow, "by 5, late"); !hasCode(err, bloberror.ConditionNotMet) {
		t.Errorf("a write after the next holder's: %v", err)
	}
	if _, err := fence(5); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a lower token: %v, want ErrLost", err)
	}
	if f := must(fence(7)); f.Metadata["colour"] == nil || *f.Metadata["colour"] != "red" {
		t.Errorf("the blob's own metadata are lost: %v", f.Metadata)
	}
	if _, err := fence(0); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("token 0: %v", err)
	}
}

// A fence on a lock's own blob survives the next acquire.
func TestFenceOnALocksBlob(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l := store.locker()
	used(t, l, "n")
	b := l.Blob("n").BlobClient()
	f, err := NewFence(bounded(t), b, 7)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.SetMetadata(bounded(t), f.Metadata, &blob.SetMetadataOptions{AccessConditions: f.Conditions}); err != nil {
		t.Fatal(err)
	}
	withData := request("n")
	withData.Data = []byte("data")
	release(t, l, acquire(t, l, withData))
	used(t, l, "n")
	if _, err := NewFence(bounded(t), b, 3); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a lower token after 7: %v", err)
	}
}
