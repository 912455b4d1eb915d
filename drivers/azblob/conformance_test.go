package azblob

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
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
	var signer forger
	lockertest.Run(t, lockertest.Config{
		New: func(t *testing.T) driver.Locker {
			// The time limit is longer than usual, for a busy machine.
			l, err := Open(t.Context(), url, WithRequestTimeout(10*time.Second), WithPolicies(&signer))
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
		Deny: func(context.Context, string) (func(), error) {
			signer.forges.Store(true)
			return func() { signer.forges.Store(false) }, nil
		},
		Damage:  damage(t, service.Service, url),
		Secrets: []string{azuritetest.Key},
		Without: []string{"FailOver"}, // Azurite is one process, unlike the service
	})
}

// forger signs requests with a wrong key.
type forger struct{ forges atomic.Bool }

// Do implements policy.Policy.
func (f *forger) Do(req *policy.Request) (*http.Response, error) {
	if header := req.Raw().Header; f.forges.Load() {
		credential, _, _ := strings.Cut(header.Get("Authorization"), ":")
		header.Set("Authorization", credential+":"+base64.StdEncoding.EncodeToString(make([]byte, 32)))
	}
	return req.Next()
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

// damage gives a lock's record a version that nobody knows.
func damage(t *testing.T, service *azuritetest.Service, url string) func(context.Context, string) (func(), error) {
	t.Helper()
	where, err := parseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	client := service.Client(t, where.container, nil)
	return func(ctx context.Context, name string) (mend func(), err error) {
		b := client.NewBlobClient(escape(name))
		p, err := b.GetProperties(ctx, nil)
		if err != nil {
			return nil, err
		}
		r, err := parse(p.Metadata)
		if err != nil {
			return nil, err
		}
		conditions := &blob.AccessConditions{}
		if *p.LeaseState == lease.StateTypeLeased {
			conditions.LeaseAccessConditions = &blob.LeaseAccessConditions{LeaseID: &r.id}
		}
		set := func(ctx context.Context, metadata map[string]*string) error {
			_, err := b.SetMetadata(ctx, metadata, &blob.SetMetadataOptions{AccessConditions: conditions})
			return err
		}
		unknown := r.metadata()
		*unknown[keyVersion] = "99"
		return func() {
			if err := set(context.WithoutCancel(ctx), r.metadata()); err != nil {
				t.Error(err)
			}
		}, set(ctx, unknown)
	}
}
