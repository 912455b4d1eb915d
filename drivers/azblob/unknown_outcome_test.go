package azblob

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// A call's context may belong to another hold, and its cause be that hold's end. That is no
// outcome of the call, and is added as text only.
func TestContextCauseIsNoOutcome(t *testing.T) {
	t.Parallel()
	limitParallelTests(t)
	store := newTestContainer(t)
	l, w := store.lockerWithFaults()
	held := acquire(t, l, request("n"))
	calls := map[string]func(context.Context) error{
		reqRenew:    func(ctx context.Context) error { return errOf(l.Renew(ctx, held)) },
		reqRelease:  func(ctx context.Context) error { return l.Release(ctx, held) },
		reqAcquire:  func(ctx context.Context) error { _, err := l.TryAcquire(ctx, request("other")); return err },
		reqDownload: func(ctx context.Context) error { _, err := l.Inspect(ctx, "n"); return err },
	}
	own := errors.New("the program's own")
	for name, call := range calls {
		for _, cause := range []error{driver.ErrLost, driver.ErrClosed, driver.ErrHeld, driver.ErrInvalid, driver.ErrConflict, own} {
			ctx, cancel := context.WithCancelCause(bounded(t))
			w.next(name, func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
				cancel(driver.Errorf("the outer hold: %w", cause))
				_, _ = hang(base, r)
				return nil, context.Cause(r.Context()) // as Go's own transport does
			})
			err := call(ctx)
			wantUnknown(t, name, err)
			if !errors.Is(err, context.Canceled) || !strings.Contains(fmt.Sprint(err), "the outer hold: "+driver.ErrorText(cause)) {
				t.Errorf("%s: %v, want the context's error and its cause in words", name, err)
			}
			if kept := errors.Is(cause, own); errors.Is(err, cause) != kept {
				t.Errorf("%s: %v matches %v: %v", name, err, cause, !kept)
			}
			wantUnknown(t, name+" with a context that has ended", call(ctx))
		}
	}
}

// A lock is acquired within the hold of another, and the client shut down while the request is
// sent. The cleanup treats the outcome as unknown.
func TestShutdownFreesALockInALock(t *testing.T) {
	t.Parallel()
	limitParallelTests(t)
	store := newTestContainer(t)
	l, w := store.lockerWithFaults()
	client, err := holdfast.New(l, holdfast.WithTTL(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	other := store.locker()
	used(t, other, "inner") // makes the blob
	done, sent := make(chan error, 1), make(chan struct{})
	go func() {
		done <- client.Do(bounded(t), "outer", func(ctx context.Context) error {
			w.next(reqAcquire, func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
				if err := deliver(base, r); err != nil {
					return nil, err
				}
				close(sent)
				<-r.Context().Done()
				return nil, r.Context().Err()
			})
			_, err := client.Lock(ctx, "inner")
			return err
		})
	}()
	<-sent
	if err := client.Shutdown(bounded(t)); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	if err := <-done; err == nil {
		t.Error("granted by a client that was shut down")
	}
	acquire(t, other, request("inner"))
}

// Of two calls with one ID, one is granted the lock, and the other gets an error of the
// service. The second does not end the lease.
func TestFailedRepeatLeavesTheLease(t *testing.T) {
	t.Parallel()
	limitParallelTests(t)
	store := newTestContainer(t)
	other := store.locker()
	l, w := store.lockerWithFaults()
	req := request("n")
	var held driver.Lease
	w.next(reqMetadata, func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
		discard(r)
		held = acquire(t, other, req)
		return errorResponse(r, http.StatusServiceUnavailable, "ServerBusy"), nil
	})
	w.all(reqMetadata, respond(http.StatusServiceUnavailable, "ServerBusy"))
	_, err := l.TryAcquire(bounded(t), req)
	wantUnknown(t, "the call that failed", err)
	wantHeld(t, store.locker(), "n")
	if _, err := other.Renew(bounded(t), held); err != nil {
		t.Errorf("the call that was granted the lock lost it: %v", err)
	}
}

// A repeat that cannot read the record does not know whether it held the lease before, and
// does not release it.
func TestFailedReadLeavesTheLease(t *testing.T) {
	t.Parallel()
	limitParallelTests(t)
	store := newTestContainer(t)
	other := store.locker()
	l, w := store.lockerWithFaults()
	req := request("n")
	held := acquire(t, other, req)
	w.all(reqRead, respond(http.StatusForbidden, "AuthorizationFailure"))
	_, err := l.TryAcquire(bounded(t), req)
	wantUnknown(t, "the repeat", err)
	if n := w.count(reqRelease); n != 0 {
		t.Errorf("%d releases were sent", n)
	}
	wantHeld(t, store.locker(), "n")
	w.all(reqRead, nil)
	if again := acquire(t, l, req); again.Token != held.Token {
		t.Errorf("token %d of a repeat, before %d", again.Token, held.Token)
	}
}

// A request for the lease gets no answer and arrives after the lock was released. The client
// knows that its outcome is unknown, and frees the lock once more.
func TestLateAcquireAfterRelease(t *testing.T) {
	t.Parallel()
	limitParallelTests(t)
	store := newTestContainer(t)
	l, w := store.lockerWithFaults()
	used(t, l, "n") // makes the blob
	client, err := holdfast.New(l, holdfast.WithTTL(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	var first delayedRequest
	w.next(reqAcquire, first.fault)
	hold, err := client.Lock(bounded(t), "n")
	if err != nil {
		t.Fatal(err)
	}
	if err := hold.Release(bounded(t)); err != nil {
		t.Fatal(err)
	}
	if status, code, err := first.send(); status != http.StatusCreated || err != nil {
		t.Fatalf("the late request was answered %d %s, %v", status, code, err)
	}
	if err := client.Shutdown(bounded(t)); err != nil {
		t.Error(err)
	}
	acquire(t, store.locker(), request("n"))
}

// The context also ends while data are read.
func TestContextCauseWhileReading(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l, w := store.lockerWithFaults()
	req := request("n")
	req.Data = []byte("data")
	acquire(t, l, req)
	ctx, cancel := context.WithCancelCause(bounded(t))
	w.next(reqDownload, func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(r)
		if err == nil {
			err = resp.Body.Close()
			resp.Body = failingBody{func() error { cancel(driver.ErrLost); return context.Cause(ctx) }}
		}
		return resp, err
	})
	_, _, err := l.ReadData(ctx, "n")
	wantUnknown(t, "read data", err)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}

// failingBody is a body that cannot be read.
type failingBody struct{ why func() error }

func (f failingBody) Read([]byte) (int, error) { return 0, f.why() }
func (f failingBody) Close() error             { return nil }
