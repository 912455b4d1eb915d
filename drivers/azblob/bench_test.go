package azblob

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/bench/ratio"
)

// ratioPairs gives an interval of about ±2 % on a busy machine.
const ratioPairs = 1000

// BenchmarkRatio compares each call with the same requests through the SDK, for blobs in the
// same container, with the same client: lease, properties and metadata of the same size for an
// acquire; one request for the others.
func BenchmarkRatio(b *testing.B) {
	store := newTestContainer(b)
	l, err := New(store.client)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close(context.Background()) })
	ctx := b.Context()
	plain := plainLease{store.client, newID()}
	ours := request("ours")
	if err := l.createBlob(ctx, l.lockBlob("base", "")); err != nil {
		b.Fatal(err)
	}
	acquire(b, l, ours) // the first acquire creates the blob

	ratio := func(name string, base, ours func(i int) error) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				ratio.Run(b, ratioPairs, base, ours).Report(b)
			}
		})
	}
	held := driver.Lease{Name: ours.Name, ID: ours.ID, TTL: ours.TTL}
	if err := plain.acquire(ctx, nil); err != nil {
		b.Fatal(err)
	}
	ratio("Renew", func(int) error { return plain.renew(ctx) }, func(int) error { return errOf(l.Renew(ctx, held)) })
	ratio("AcquireHeld", func(int) error { return wantError(plain.stranger().take(ctx)) },
		func(int) error { _, err := l.TryAcquire(ctx, request("ours")); return wantError(err) })
	release(b, l, held)
	if err := plain.release(ctx); err != nil {
		b.Fatal(err)
	}
	var last driver.Lease
	ratio("AcquireAndRelease", func(i int) error {
		plain.id = newID()
		r := record{id: plain.id, owner: ours.Owner, token: uint64(time.Now().UnixMilli()), ttl: ours.TTL, acquired: time.Now()}
		if err := plain.acquire(ctx, r.metadata()); err != nil {
			return err
		}
		return plain.release(ctx)
	}, func(i int) (err error) {
		req := ours
		req.ID = driver.NewLeaseID(newID())
		if last, err = l.TryAcquire(ctx, req); err != nil {
			return err
		}
		return l.Release(ctx, last)
	})
}

func wantError(err error) error {
	if err == nil {
		return fmt.Errorf("granted although it is held")
	}
	return nil
}

// plainLease is the blob "base" with the SDK's own calls.
type plainLease struct {
	container *container.Client
	id        string
}

func (r plainLease) blob() *blob.Client { return r.container.NewBlobClient("base") }

func (r plainLease) lease() *lease.BlobClient {
	c, err := lease.NewBlobClient(r.blob(), &lease.BlobClientOptions{LeaseID: &r.id})
	if err != nil {
		panic(err)
	}
	return c
}

func (r plainLease) stranger() plainLease { return plainLease{r.container, newID()} }

func (r plainLease) take(ctx context.Context) error {
	_, err := r.lease().AcquireLease(ctx, 60, nil)
	return err
}

func (r plainLease) acquire(ctx context.Context, metadata map[string]*string) error {
	if err := r.take(ctx); err != nil {
		return err
	}
	conditions := leaseConditionsOf(r.id)
	p, err := r.blob().GetProperties(ctx, &blob.GetPropertiesOptions{AccessConditions: conditions})
	if err != nil {
		return err
	}
	conditions.ModifiedAccessConditions = &blob.ModifiedAccessConditions{IfMatch: p.ETag}
	_, err = r.blob().SetMetadata(ctx, metadata, &blob.SetMetadataOptions{AccessConditions: conditions})
	return err
}

func (r plainLease) renew(ctx context.Context) error {
	_, err := r.lease().RenewLease(ctx, nil)
	return err
}

func (r plainLease) release(ctx context.Context) error {
	_, err := r.lease().ReleaseLease(ctx, nil)
	return err
}
