package azblob_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/azblob"
	"github.com/holdfast-go/holdfast/test/azuritetest"
)

// A program with its own container client, here with the identity of the machine.
func ExampleNew() {
	ctx := context.Background()
	identity, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := container.NewClient("https://account.blob.core.windows.net/leases", identity, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	locker, err := azblob.New(client)
	if err != nil {
		fmt.Println(err)
		return
	}
	locks, err := holdfast.New(locker)
	if err != nil {
		fmt.Println(err)
		return
	}
	err = locks.Do(ctx, "billing", func(ctx context.Context) error {
		return nil // the work; ctx ends if the lock is lost
	})
	fmt.Println(err)
}

// A URL, with credentials from the environment. In China's cloud the URL would end in
// ?endpoint=https://account.blob.core.chinacloudapi.cn.
func ExampleOpen() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, "azblob://account/leases/team-a")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = locks.Shutdown(ctx) }()
	hold, err := locks.TryLock(ctx, "billing")
	if errors.Is(err, driver.ErrHeld) {
		fmt.Println("another instance does it")
		return
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = hold.Release(ctx) }()
}

// Only the holder can write the lock's own blob: the service refuses a write after the lease
// has ended.
func ExampleConditions() {
	ctx := context.Background()
	save := func(locker *azblob.Locker, hold *holdfast.Hold, blocks []string) error {
		blob := locker.Blob(hold.Lease().Name)
		now, err := blob.GetProperties(ctx, nil)
		if err != nil {
			return err
		}
		_, err = blob.CommitBlockList(ctx, blocks, &blockblob.CommitBlockListOptions{
			AccessConditions: azblob.Conditions(hold.Lease()),
			Metadata:         now.Metadata, // the lock's record
		})
		if bloberror.HasCode(err, bloberror.LeaseIDMismatchWithBlobOperation, bloberror.LeaseNotPresentWithBlobOperation, bloberror.LeaseLost) {
			return driver.ErrLost
		}
		return err
	}
	_ = save
}

// Any other blob stores the highest token with which it was written.
func ExampleNewFence() {
	save := func(ctx context.Context, report *blockblob.Client, text []byte) error {
		token, _ := holdfast.TokenFromContext(ctx) // in a function given to Do or a runner
		fence, err := azblob.NewFence(ctx, report.BlobClient(), token)
		if err != nil {
			return err // ErrLost: a later holder has written
		}
		_, err = report.Upload(ctx, streaming.NopCloser(bytes.NewReader(text)), &blockblob.UploadOptions{
			AccessConditions: fence.Conditions,
			Metadata:         fence.Metadata,
		})
		return err
	}
	_ = save
}

// ExampleOpen on the emulator.
func TestOpen(t *testing.T) {
	service := azuritetest.Shared(t)
	locks, err := holdfast.Open(t.Context(), service.URL(service.Fresh(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Shutdown(t.Context())
	err = locks.Do(t.Context(), "billing", func(ctx context.Context) error {
		if token, _ := holdfast.TokenFromContext(ctx); token == 0 {
			t.Error("no token")
		}
		_, err := locks.TryLock(ctx, "billing")
		if !errors.Is(err, driver.ErrHeld) {
			t.Errorf("TryLock of a held lock: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
