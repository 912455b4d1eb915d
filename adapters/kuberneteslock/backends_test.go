package kuberneteslock

import (
	"bytes"
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/backendtest"
)

func open(t *testing.T, url string) driver.Locker {
	t.Helper()
	locker, err := driver.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locker.Close(context.Background()) })
	return locker
}

// The steps of an election, on every backend.
func TestBackends(t *testing.T) {
	for name, url := range backendtest.Backends(driver.ReachMachine) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, url := t.Context(), url(t)
			a, b := newLock(t, open(t, url), "a"), newLock(t, open(t, url), "b")
			create(t, a)
			found, before := get(t, b)
			if found.HolderIdentity != "a" || found.LeaseDurationSeconds != 15 {
				t.Errorf("the candidate sees %+v", found)
			}
			for range 3 {
				time.Sleep(10 * time.Millisecond)
				if err := a.Update(ctx, record("a")); err != nil {
					t.Fatalf("renewal: %v", err)
				}
				_, after := get(t, b)
				if bytes.Equal(before, after) {
					t.Error("the bytes did not change with a renewal")
				}
				before = after
			}
			if err := b.Update(ctx, record("b")); !apierrors.IsConflict(err) {
				t.Errorf("Update of another's record: %v", err)
			}
			if found, _ := get(t, a); found.HolderIdentity != "a" {
				t.Errorf("the leader sees %+v", found)
			}
			if err := a.Update(ctx, record("")); err != nil {
				t.Errorf("release: %v", err)
			}
			if found, _ := get(t, b); found.HolderIdentity != "" {
				t.Errorf("after the release: %+v", found)
			}
			if err := b.Update(ctx, record("b")); err != nil {
				t.Fatalf("Update of a free record: %v", err)
			}
			token := b.Token()
			get(t, a)
			deadline := time.Now().Add(time.Minute) // b does not renew
			for time.Since(deadline) < 0 {
				if found, _ := get(t, a); found.HolderIdentity == "" && a.Update(ctx, record("a")) == nil {
					break
				}
				time.Sleep(200 * time.Millisecond)
			}
			if a.Token() <= token {
				t.Errorf("after the expiry: token %d after %d", a.Token(), token)
			}
			if err := b.Update(ctx, record("b")); !apierrors.IsConflict(err) || b.Token() != 0 {
				t.Errorf("renewal of a lost lease: %v", err)
			}
		})
	}
}
