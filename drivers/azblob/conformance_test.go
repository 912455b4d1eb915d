package azblob

import (
	"context"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/test/azuritetest"
)

// The Lockers are opened by URL, on a service that can be frozen.
func TestConformance(t *testing.T) {
	t.Parallel()
	service := azuritetest.Start(t, false)
	url := service.URL(service.Fresh(t))
	lockertest.Run(t, lockertest.Config{
		New: func(t *testing.T) driver.Locker {
			l, err := Open(t.Context(), url, WithRequestTimeout(10*time.Second)) // longer than usual, for a busy machine
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { closeLocker(t, l) })
			return l
		},
		Forget: forget(t, service.Service, url),
		Stall: func(context.Context, string) (func(), error) {
			return func() {
				if err := service.Resume(); err != nil {
					t.Error(err)
				}
			}, service.Pause()
		},
		Secrets: []string{azuritetest.Key},
		Without: []string{"Damage", "Deny", "FailOver"}, // Azurite is one process, unlike the service
	})
}

func closeLocker(t *testing.T, l driver.Locker) {
	t.Helper()
	if err := l.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// forget deletes a lock's blob, also if it is leased.
func forget(t *testing.T, service *azuritetest.Service, url string) func(context.Context, string) error {
	t.Helper()
	where, err := parseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	client := service.Client(t, where.container, nil)
	return func(ctx context.Context, name string) error {
		blob := client.NewBlobClient(escape(name))
		leases, err := lease.NewBlobClient(blob, nil)
		if err != nil {
			return err
		}
		at := int32(0)
		if _, err := leases.BreakLease(ctx, &lease.BlobBreakOptions{BreakPeriod: &at}); err != nil &&
			!bloberror.HasCode(err, bloberror.LeaseNotPresentWithLeaseOperation) {
			return err
		}
		_, err = blob.Delete(ctx, nil)
		return err
	}
}
