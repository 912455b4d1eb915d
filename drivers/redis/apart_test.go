package redis

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/redistest"
)

// Locks can be kept apart from others in the same database, and are removed, also those that are held.
func TestApart(t *testing.T) {
	rawURL := redistest.URL(t)
	take := func(rawURL, name string) driver.Lease {
		t.Helper()
		l := openAt(t, rawURL, unprobed)
		lease, err := l.TryAcquire(t.Context(), request(name, "0a0a0a0a-0b0b-4c0c-8d0d-0e0e0e0e0e0e"))
		if err != nil {
			t.Fatal(err)
		}
		return lease
	}
	theirs := take(rawURL, "job")
	own, remove := apart(rawURL, "holdfast_certify_test")
	for range 2 { // the second time after it was removed
		take(own, "job")
		take(own, "a*b")
		if err := remove(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := openAt(t, own, unprobed).Inspect(t.Context(), "job"); err != nil || r.Token != 0 {
		t.Errorf("after the removal there is %+v, %v", r, err)
	}
	r, err := openAt(t, rawURL, unprobed).Inspect(t.Context(), "job")
	if err != nil || r.State != driver.StateHeld || r.Token != theirs.Token {
		t.Errorf("the lock beside it is %+v, %v", r, err)
	}
	if _, remove := apart("redis:", "holdfast_certify_test"); !errors.Is(remove(t.Context()), driver.ErrInvalid) {
		t.Error("the URL without a host is valid")
	}
}
