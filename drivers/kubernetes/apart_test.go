package kubernetes

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/kubernetestest"
)

// Locks can be kept apart from others in the same namespace, and are removed, also those that are held.
func TestApart(t *testing.T) {
	t.Parallel()
	server := kubernetestest.Start(t)
	for _, base := range []string{server.URL(t), server.URL(t) + "&prefix=team-a-"} {
		theirs := acquire(t, open(t, base), "job", "a", 30*time.Second)
		before := strings.Join(server.Names(), " ")
		own, remove := apart(base, "holdfast_certify_test")
		for range 2 { // the second time after it was removed
			l := openRacing(t, own)
			acquire(t, l, "job", "b", 30*time.Second)
			acquire(t, l, "A/"+strings.Repeat("x", 250), "b", 30*time.Second)
			if err := l.Close(context.WithoutCancel(t.Context())); err != nil { // it goes on racing writes on a young store
				t.Fatal(err)
			}
			if err := remove(context.WithoutCancel(t.Context())); err != nil {
				t.Fatal(err)
			}
			if after := strings.Join(server.Names(), " "); after != before {
				t.Errorf("after the removal there are %s, want %s", after, before)
			}
		}
		r, err := open(t, base).Inspect(t.Context(), "job")
		if err != nil || r.State != driver.StateHeld || r.Token != theirs.Token {
			t.Errorf("the lock beside it is %+v, %v", r, err)
		}
	}
	own, remove := apart(server.URL(t), "holdfast_certify_test")
	acquire(t, open(t, own), "job", "b", 30*time.Second)
	server.Deny("delete")
	if err := remove(t.Context()); !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "delete") {
		t.Errorf("without the right to delete: %v", err)
	}
	if _, remove := apart("kubernetes://NAMESPACE", "holdfast_certify_test"); !errors.Is(remove(t.Context()), driver.ErrInvalid) {
		t.Error("the namespace is valid")
	}
}
