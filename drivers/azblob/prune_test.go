package azblob

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"

	"github.com/holdfast-go/holdfast/driver"
)

func exists(t *testing.T, l *Locker, name string) bool {
	t.Helper()
	_, err := l.Blob(name).GetProperties(bounded(t), nil)
	if err != nil && !hasCode(err, codesGone...) {
		t.Fatal(err)
	}
	return err == nil
}

// Prune deletes free, idle locks and nothing else. The tokens of a later grant are greater.
func TestPrune(t *testing.T) {
	t.Parallel()
	limitParallelTests(t)
	store := newTestContainer(t)
	l, w := store.lockerWithFaults()
	before := used(t, l, "n")
	acquire(t, l, request("held"))
	fenced := acquire(t, l, request("fenced"))
	fence, err := NewFence(bounded(t), l.Blob("fenced").BlobClient(), fenced.Token)
	if err != nil {
		t.Fatal(err)
	}
	fence.Conditions.LeaseAccessConditions = Conditions(fenced).LeaseAccessConditions
	if _, err := l.Blob("fenced").SetMetadata(bounded(t), fence.Metadata,
		&blob.SetMetadataOptions{AccessConditions: fence.Conditions}); err != nil {
		t.Fatal(err)
	}
	release(t, l, fenced)
	ahead := acquire(t, l, request("ahead"))
	putTokenAhead(t, l, ahead)
	release(t, l, ahead)
	damaged := "x"
	if _, err := l.Blob("damaged").Upload(bounded(t), requestBody(nil), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Blob("damaged").SetMetadata(bounded(t), map[string]*string{keyVersion: &damaged}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Blob("foreign").Upload(bounded(t), requestBody([]byte("another program's")), nil); err != nil {
		t.Fatal(err)
	}
	names := []string{"n", "held", "fenced", "ahead", "damaged", "foreign"}

	if removed, err := l.Prune(bounded(t), "", minIdleTime); removed != 0 || err != nil {
		t.Errorf("%d of the last minute removed, error %v", removed, err)
	}
	time.Sleep(1100 * time.Millisecond) // the service's clock has whole seconds
	if removed, err := l.prune(bounded(t), "other", 0); removed != 0 || err != nil {
		t.Errorf("%d of another prefix removed, error %v", removed, err)
	}
	if removed, err := l.prune(bounded(t), "", 0); removed != 1 || err != nil {
		t.Errorf("%d removed, error %v; want 1", removed, err)
	}
	if n := w.count("DELETE /" + containerPath(l) + "/held"); n != 0 {
		t.Errorf("%d requests to delete a held lock's blob", n)
	}
	for _, name := range names {
		if exists(t, l, name) != (name != "n") {
			t.Errorf("%s is there: %t", name, name == "n")
		}
	}
	if after := acquire(t, l, request("n")); after.Token <= before.Token {
		t.Errorf("token %d after %d", after.Token, before.Token)
	}
	for _, idle := range []time.Duration{0, -time.Hour, minIdleTime - 1} {
		if _, err := l.Prune(bounded(t), "", idle); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("idle for %v: error %v, want ErrInvalid", idle, err)
		} else if !strings.HasSuffix(err.Error(), "at least 1h") {
			t.Errorf("idle for %v: error %v, want a duration as people write it", idle, err)
		}
	}
}

// A token that the service's clock has not passed could be repeated.
func TestPruneWaitsForTheClock(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l := store.locker()
	for round := range 5 {
		lease := used(t, l, "n")
		if _, err := l.prune(bounded(t), "", 0); err != nil {
			t.Fatal(err)
		}
		next := acquire(t, l, request("n"))
		if next.Token <= lease.Token {
			t.Errorf("round %d: token %d after %d", round, next.Token, lease.Token)
		}
		release(t, l, next)
	}
}

// A lock stays if it is granted between the listing and the deletion, also if it is free
// again.
func TestPruneKeepsUsedLocks(t *testing.T) {
	t.Parallel()
	limitParallelTests(t)
	for _, released := range []bool{false, true} {
		store := newTestContainer(t)
		other := store.locker()
		used(t, other, "n")
		l, w := store.lockerWithFaults()
		time.Sleep(1100 * time.Millisecond)
		var held driver.Lease
		w.next("DELETE /"+containerPath(l)+"/n", func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
			held = acquire(t, other, request("n"))
			if released {
				release(t, other, held)
			}
			return base.RoundTrip(r)
		})
		if removed, err := l.prune(bounded(t), "", 0); removed != 0 || err != nil || held.Token == 0 {
			t.Errorf("released %t: %d removed, error %v, token %d", released, removed, err, held.Token)
		}
		if !released {
			if _, err := other.Renew(bounded(t), held); err != nil {
				t.Error(err)
			}
		}
		if !exists(t, other, "n") {
			t.Errorf("released %t: the blob is gone", released)
		}
	}
}

// containerPath is the beginning of the paths of a container's blobs.
func containerPath(l *Locker) string {
	parts, err := blob.ParseURL(l.container.URL())
	if err != nil {
		panic(err)
	}
	return "devstoreaccount1/" + parts.ContainerName
}

// lockerWithIdleLocks is a Locker with three locks that can be pruned.
func lockerWithIdleLocks(t *testing.T) (*Locker, *faultTransport) {
	t.Helper()
	l, w := newTestContainer(t).lockerWithFaults()
	for _, name := range []string{"a", "b", "c"} {
		used(t, l, name)
	}
	time.Sleep(1100 * time.Millisecond)
	return l, w
}

// If one blob cannot be deleted, Prune continues with the others. A failure that concerns
// every blob ends it: without the right to delete, it sends one refused request, not one for
// each blob.
func TestPruneFails(t *testing.T) {
	t.Parallel()
	limitParallelTests(t)
	l, w := lockerWithIdleLocks(t)
	deletions := func() (n int) {
		for _, request := range w.take() {
			if strings.HasPrefix(request, "DELETE ") {
				n++
			}
		}
		return n
	}
	firstFails := func(f fault) { w.all("DELETE /"+containerPath(l)+"/a", f) }

	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	for what, f := range map[string]fault{
		"no right":   respond(http.StatusForbidden, "AuthorizationFailure"),
		"no account": respond(http.StatusUnauthorized, "InvalidAuthenticationInfo"),
		"context's end": func(http.RoundTripper, *http.Request) (*http.Response, error) {
			cancel()
			return nil, errBroken
		},
	} {
		w.take()
		firstFails(f)
		here := bounded(t)
		if what == "context's end" {
			here = ctx
		}
		if removed, err := l.prune(here, "", 0); removed != 0 || err == nil {
			t.Errorf("%s: %d removed, error %v", what, removed, err)
		}
		if n := deletions(); n != 1 {
			t.Errorf("%s: %d requests to delete, want 1", what, n)
		}
	}
	if removed, err := l.prune(ctx, "", 0); removed != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d removed, error %v; want the context's", removed, err)
	}

	firstFails(respond(http.StatusConflict, "BlobImmutableDueToPolicy"))
	if removed, err := l.prune(bounded(t), "", 0); removed != 2 || !hasCode(err, "BlobImmutableDueToPolicy") {
		t.Errorf("%d removed, error %v; want the other two, and the error", removed, err)
	}
}

// Close ends a running Prune.
func TestPruneEndsWithClose(t *testing.T) {
	t.Parallel()
	limitParallelTests(t)
	l, w := lockerWithIdleLocks(t)
	w.all("DELETE /"+containerPath(l)+"/a", func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
		response, err := base.RoundTrip(r)
		_ = l.Close(t.Context())
		return response, err
	})
	removed, err := l.prune(bounded(t), "", 0)
	if text := fmt.Sprint(err); removed > 1 || !errors.Is(err, driver.ErrClosed) && !strings.Contains(text, "interrupted by Close") ||
		strings.Contains(text, "\n") {
		t.Errorf("%d removed, error %v; want one error, that of Close", removed, err)
	}
}
