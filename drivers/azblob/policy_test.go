package azblob

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/holdfast-go/holdfast/driver"
)

type countPolicy struct{ requests atomic.Int64 }

func (c *countPolicy) Do(req *policy.Request) (*http.Response, error) {
	c.requests.Add(1)
	return req.Next()
}

// Policies observe the requests of a Locker that was opened by URL. A program's own client has
// its own policies.
func TestPolicies(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	var seen countPolicy
	l, err := Open(bounded(t), store.service.URL(store.name), WithPolicies(&seen), WithRequestTimeout(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer closeLocker(t, l)
	acquire(t, l, request("n")) // creates the blob
	release(t, l, driver.Lease{Name: "n", ID: driver.NewLeaseID("x")})
	seen.requests.Store(0)
	wantHeld(t, l, "n")
	if got := seen.requests.Load(); got != 1 {
		t.Errorf("%d requests observed for an attempt on a held lock, want 1", got)
	}
	if _, err := New(store.client, WithPolicies(&seen)); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("New with policies: %v", err)
	}
	if _, err := Open(bounded(t), store.service.URL(store.name), WithPolicies(nil)); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Open with a nil policy: %v", err)
	}
}
