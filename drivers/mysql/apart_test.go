package mysql

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mysqltest"
)

// Locks can be kept apart from others in the same database, and are removed, also those that are held.
func TestApart(t *testing.T) {
	t.Parallel()
	rawURL := mysqltest.URL(t)
	take := func(rawURL, name string) (*Locker, driver.Lease) {
		t.Helper()
		l := openAt(t, rawURL)
		lease, err := l.TryAcquire(t.Context(), request(name, "0a0a0a0a-0b0b-4c0c-8d0d-0e0e0e0e0e0e"))
		if err != nil {
			t.Fatal(err)
		}
		return l, lease
	}
	_, theirs := take(rawURL, "job")
	own, remove := apart(rawURL, "holdfast_certify_test")
	for range 2 { // the second time after it was removed
		l, lease := take(own, "job")
		if before, err := writeGuarded(t.Context(), l, lease, "first"); err != nil || before != "" {
			t.Errorf("%q, %v", before, err)
		}
		if before, err := writeGuarded(t.Context(), l, lease, "second"); err != nil || before != "first" {
			t.Errorf("%q, %v", before, err)
		}
		lease.Token--
		if _, err := writeGuarded(t.Context(), l, lease, "late"); !errors.Is(err, driver.ErrLost) {
			t.Errorf("an earlier token: %v", err)
		}
		if err := remove(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	reader := openAt(t, own, unprobed)
	if missing, err := reader.MissingStore(t.Context()); err != nil || missing != "the table app.holdfast_certify_test" {
		t.Errorf("%q, %v", missing, err)
	}
	r, err := openAt(t, rawURL, unprobed).Inspect(t.Context(), "job")
	if err != nil || r.State != driver.StateHeld || r.Token != theirs.Token {
		t.Errorf("the lock beside it is %+v, %v", r, err)
	}
	if _, remove := apart("mysql:", "holdfast_certify_test"); !errors.Is(remove(t.Context()), driver.ErrInvalid) {
		t.Error("the URL without a host is valid")
	}
}
