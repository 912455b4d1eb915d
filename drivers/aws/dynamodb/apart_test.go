package dynamodb

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/awstest"
	"github.com/holdfast-go/holdfast/test/dynamodbtest"
)

// Locks can be kept apart from others in the same table, and are removed, also those that are held.
func TestApart(t *testing.T) {
	awstest.Isolate(t)
	t.Setenv("AWS_ACCESS_KEY_ID", dynamodbtest.KeyID)
	t.Setenv("AWS_SECRET_ACCESS_KEY", dynamodbtest.Secret)
	server := dynamodbtest.Start(t)
	openURL := func(rawURL string, opts ...Option) *Locker {
		l, err := Open(t.Context(), rawURL, opts...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) })
		return l
	}
	for _, base := range []string{server.URL(), strings.Replace(server.URL(), "?", "/team?", 1)} {
		theirs := acquire(t, openURL(base, onlyReads), "job", "a")
		before := strings.Join(server.Keys(), " ")
		own, remove := apart(base, "holdfast_certify_test")
		for range 2 { // the second time after it was removed
			l := openURL(own)
			lease := acquire(t, l, "job", "b")
			acquire(t, l, "A/"+strings.Repeat("x", 250), "b")
			if _, err := writeGuarded(t.Context(), l, lease, "x"); err != nil {
				t.Fatal(err)
			}
			if err := l.Close(context.WithoutCancel(t.Context())); err != nil { // it goes on racing writes on a young store
				t.Fatal(err)
			}
			if err := remove(context.WithoutCancel(t.Context())); err != nil {
				t.Fatal(err)
			}
			if after := strings.Join(server.Keys(), " "); after != before {
				t.Errorf("after the removal there are %s, want %s", after, before)
			}
		}
		r, err := openURL(base, onlyReads).Inspect(t.Context(), "job")
		if err != nil || r.State != driver.StateHeld || r.Token != theirs.Token {
			t.Errorf("the lock beside it is %+v, %v", r, err)
		}
	}
	own, remove := apart(server.URL(), "holdfast_certify_test")
	acquire(t, openURL(own, onlyReads), "job", "b")
	server.Deny("DeleteItem")
	if err := remove(t.Context()); !errors.Is(err, driver.ErrDenied) || showsSecret(err.Error()) {
		t.Errorf("without the right to delete: %v", err)
	}
	if _, remove := apart("dynamodb://a", "holdfast_certify_test"); !errors.Is(remove(t.Context()), driver.ErrInvalid) {
		t.Error("the table is valid")
	}
}

// To look at locks, or to examine them, makes no table.
func TestOpenedForReading(t *testing.T) {
	awstest.Isolate(t)
	t.Setenv("AWS_ACCESS_KEY_ID", dynamodbtest.KeyID)
	t.Setenv("AWS_SECRET_ACCESS_KEY", dynamodbtest.Secret)
	server := dynamodbtest.Start(t)
	server.SetTable(dynamodbtest.Table, nil)
	for what, open := range map[string]driver.Opener{"reading": driver.OpenForReading, "a check": driver.OpenForCheck} {
		l, err := open(t.Context(), server.URL())
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if server.TableNamed(dynamodbtest.Table) != nil || server.Requests("PutItem") != 0 {
		t.Error("something was written")
	}
}
