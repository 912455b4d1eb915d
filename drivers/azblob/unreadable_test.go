package azblob

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// writer returns a client whose SAS may do everything but read.
func (r *testContainer) writer(t *testing.T, opts ...holdfast.ClientOption) *holdfast.Client {
	t.Helper()
	may := allPermissions
	may.Read = false
	client, err := container.NewClientWithNoCredential(r.client.URL()+"?"+sasOf(t, r.client, may), nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := New(client, WithRequestTimeout(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	c, err := holdfast.New(l, append(opts, holdfast.WithTTL(15*time.Second), holdfast.WithPollInterval(time.Second),
		holdfast.WithLogger(slog.New(slog.DiscardHandler)))...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A waiter whose credential may write and not read takes the lease when it is free, cannot go on, and does not keep it: others are granted
// the lock while it still waits.
func TestAWaiterThatMayNotReadKeepsNothing(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l := store.locker()
	held := acquire(t, l, request("n"))
	refused, failed := make(chan struct{}, 100), make(chan error, 100)
	waiter := store.writer(t, holdfast.WithObserver(func(e holdfast.Event) {
		switch {
		case e.Type == holdfast.EventHolderSeen:
			refused <- struct{}{}
		case e.Type == holdfast.EventError && e.Op == "acquire":
			failed <- e.Err
		}
	}))
	ctx, cancel := context.WithCancel(bounded(t))
	done := make(chan error, 1)
	go func() {
		_, err := waiter.Lock(ctx, "n")
		done <- err
	}()
	<-refused
	release(t, l, held)
	err := <-failed
	if driver.OutcomeKnown(err) || !strings.Contains(err.Error(), "cannot be read") || !strings.Contains(err.Error(), "rcwl") {
		t.Errorf("the waiter that took the lease: %v; want an unknown outcome, and the rights that are needed", err)
	}
	other, err := holdfast.New(store.locker(), holdfast.WithTTL(15*time.Second), holdfast.WithPollInterval(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	soon, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	hold, err := other.Lock(soon, "n")
	if err != nil {
		t.Fatalf("another, which may read: %v", err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the waiter: %v", err)
	}
	if err := errors.Join(hold.Err(), waiter.Shutdown(bounded(t)), other.Shutdown(bounded(t))); err != nil {
		t.Error(err)
	}
}

// A caller whose credential may write and not read gets an error that says so, and leaves no lease behind.
func TestWithoutTheRightToReadNoLeaseStays(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l := store.locker()
	for name, call := range map[string]func(context.Context, *holdfast.Client) error{
		"lock": func(ctx context.Context, c *holdfast.Client) error { return errOf(c.Lock(ctx, "lock")) },
		"try":  func(ctx context.Context, c *holdfast.Client) error { return errOf(c.TryLock(ctx, "try")) },
	} {
		c := store.writer(t)
		err := call(bounded(t), c)
		if err == nil || !strings.Contains(err.Error(), "cannot be read") || !strings.Contains(err.Error(), "rcwl") {
			t.Errorf("%s: %v", name, err)
		}
		if name == "lock" && !errors.Is(err, driver.ErrDenied) {
			t.Errorf("%s: %v; want it denied, instead of retried until the context ends", name, err)
		}
		if err := c.Shutdown(bounded(t)); err != nil {
			t.Error(err)
		}
		if r := inspect(t, l, name); r.State != driver.StateFree {
			t.Errorf("%s: afterwards the lock is %v", name, r.State)
		}
	}
}

// Once the credential was refused to read, no request takes a lease until it may. The lease that was taken before belongs to the
// caller, who must not repeat its request.
func TestRefusedReads(t *testing.T) {
	t.Parallel()
	l, w := newTestContainer(t).lockerWithFaults()
	used(t, l, "n")
	w.all(reqRead, respond(http.StatusForbidden, "AuthorizationPermissionMismatch"))
	req := request("n")
	if _, err := l.TryAcquire(bounded(t), req); driver.OutcomeKnown(err) || !errors.Is(err, driver.ErrIDReleased) {
		t.Errorf("the first: %v; want an unknown outcome, and no other request with this ID", err)
	}
	w.take()
	if _, err := l.TryAcquire(bounded(t), request("n")); !errors.Is(err, driver.ErrDenied) || w.count(reqAcquire) > 0 {
		t.Errorf("the second: %v, with %d requests for the lease; want it denied, with none", err, w.count(reqAcquire))
	}
	release(t, l, driver.Lease{Name: "n", ID: req.ID})
	w.all(reqRead, nil)
	w.take()
	release(t, l, acquire(t, l, request("n")))
	release(t, l, acquire(t, l, request("n")))
	if n := w.count(reqRead); n != 3 {
		t.Errorf("%d requests to read by two grants, after the right was granted; want one more than usual", n)
	}
}
