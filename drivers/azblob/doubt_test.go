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

// A call's context may be that of another hold, and its cause that hold's end:
// that is no outcome of the call, and is told as text only.
func TestCauseIsNoOutcome(t *testing.T) {
	t.Parallel()
	takeTurns(t)
	room := newRoom(t)
	l, w := room.wired()
	held := acquire(t, l, request("n"))
	calls := map[string]func(context.Context) error{
		reqRenew:    func(ctx context.Context) error { return l.Renew(ctx, held) },
		reqRelease:  func(ctx context.Context) error { return l.Release(ctx, held) },
		reqAcquire:  func(ctx context.Context) error { _, err := l.TryAcquire(ctx, request("other")); return err },
		reqDownload: func(ctx context.Context) error { _, err := l.Inspect(ctx, "n"); return err },
	}
	own := errors.New("the program's own")
	for name, call := range calls {
		for _, cause := range []error{driver.ErrLost, driver.ErrClosed, driver.ErrHeld, driver.ErrInvalid, own} {
			ctx, cancel := context.WithCancelCause(bounded(t))
			w.next(name, func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
				cancel(fmt.Errorf("the outer hold: %w", cause))
				_, _ = hang(base, r)
				return nil, context.Cause(r.Context()) // as Go's own transport does
			})
			err := call(ctx)
			wantUnknown(t, name, err)
			if !errors.Is(err, context.Canceled) || !strings.Contains(fmt.Sprint(err), "the outer hold: "+cause.Error()) {
				t.Errorf("%s: %v, want the context's error and its cause in words", name, err)
			}
			if kept := errors.Is(cause, own); errors.Is(err, cause) != kept {
				t.Errorf("%s: %v matches %v: %v", name, err, cause, !kept)
			}
			wantUnknown(t, name+" with a context that has ended", call(ctx))
		}
	}
}

// A lock is taken within the hold of another, and the client shut down while the
// request is on its way: the clean-up sees that the outcome is in doubt.
func TestShutdownFreesALockInALock(t *testing.T) {
	t.Parallel()
	takeTurns(t)
	room := newRoom(t)
	l, w := room.wired()
	client, err := holdfast.New(l, holdfast.WithTTL(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	other := room.locker()
	release(t, other, acquire(t, other, request("inner"))) // makes the blob
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

// Of two calls with one ID, one is granted the lock, and the other meets a failing
// service: it does not end the lease.
func TestFailedRepeatLeavesTheLease(t *testing.T) {
	t.Parallel()
	takeTurns(t)
	room := newRoom(t)
	other := room.locker()
	l, w := room.wired()
	req := request("n")
	var held driver.Lease
	w.next(reqMetadata, func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
		discard(r)
		held = acquire(t, other, req)
		return response(r, http.StatusServiceUnavailable, "ServerBusy"), nil
	})
	w.all(reqMetadata, answer(http.StatusServiceUnavailable, "ServerBusy"))
	_, err := l.TryAcquire(bounded(t), req)
	wantUnknown(t, "the call that failed", err)
	wantHeld(t, room.locker(), "n")
	if err := other.Renew(bounded(t), held); err != nil {
		t.Errorf("the call that was granted the lock lost it: %v", err)
	}
}

// A repeat that cannot read the record does not know that the lease was its own before, and
// leaves it.
func TestFailedReadLeavesTheLease(t *testing.T) {
	t.Parallel()
	takeTurns(t)
	room := newRoom(t)
	other := room.locker()
	l, w := room.wired()
	req := request("n")
	held := acquire(t, other, req)
	w.all(reqRead, answer(http.StatusForbidden, "AuthorizationFailure"))
	_, err := l.TryAcquire(bounded(t), req)
	wantUnknown(t, "the repeat", err)
	if n := w.count(reqRelease); n != 0 {
		t.Errorf("%d releases were sent", n)
	}
	wantHeld(t, room.locker(), "n")
	w.all(reqRead, nil)
	if again := acquire(t, l, req); again.Token != held.Token {
		t.Errorf("token %d of a repeat, before %d", again.Token, held.Token)
	}
}

// A request for the lease gets no answer, and arrives after all when the lock has
// been released. The client knew of the doubt, and frees the lock once more.
func TestLateAcquireAfterRelease(t *testing.T) {
	t.Parallel()
	takeTurns(t)
	room := newRoom(t)
	l, w := room.wired()
	release(t, l, acquire(t, l, request("n"))) // makes the blob
	client, err := holdfast.New(l, holdfast.WithTTL(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	var first late
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
	acquire(t, room.locker(), request("n"))
}

// The same while the data of a lock are being read.
func TestCauseWhileReading(t *testing.T) {
	t.Parallel()
	room := newRoom(t)
	l, w := room.wired()
	req := request("n")
	req.Data = []byte("data")
	acquire(t, l, req)
	ctx, cancel := context.WithCancelCause(bounded(t))
	w.next(reqDownload, func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(r)
		if err == nil {
			err = resp.Body.Close()
			resp.Body = failing{func() error { cancel(driver.ErrLost); return context.Cause(ctx) }}
		}
		return resp, err
	})
	_, _, err := l.ReadData(ctx, "n")
	wantUnknown(t, "read data", err)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}

// failing is a body that cannot be read.
type failing struct{ why func() error }

func (f failing) Read([]byte) (int, error) { return 0, f.why() }
func (f failing) Close() error             { return nil }
