package azblob

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/serverprocess"
)

// transport replaces the connection to a service.
type transport func(*http.Request) (*http.Response, error)

func (f transport) Do(r *http.Request) (*http.Response, error) { return f(r) }

// neverAnswers drops requests, like a host behind a firewall.
func neverAnswers(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func lockerWithTransport(t *testing.T, f transport, opts ...Option) *Locker {
	t.Helper()
	client, err := container.NewClientWithNoCredential("https://account.blob.core.windows.net/locks",
		&container.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: f}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := New(client, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func allOperations(l *Locker) map[string]func(context.Context) error {
	lease := driver.Lease{Name: "n", ID: driver.NewLeaseID(newID()), TTL: time.Minute}
	return map[string]func(context.Context) error{
		"acquire":    func(ctx context.Context) error { _, err := l.TryAcquire(ctx, request("n")); return err },
		"renew":      func(ctx context.Context) error { return l.Renew(ctx, lease) },
		"release":    func(ctx context.Context) error { return l.Release(ctx, lease) },
		"inspect":    func(ctx context.Context) error { _, err := l.Inspect(ctx, "n"); return err },
		"break":      func(ctx context.Context) error { return l.Break(ctx, "n", 0) },
		"break now":  func(ctx context.Context) error { return l.BreakNow(ctx, "n", 0) },
		"read data":  func(ctx context.Context) error { _, _, err := l.ReadData(ctx, "n"); return err },
		"write data": func(ctx context.Context) error { return l.WriteData(ctx, lease, nil, driver.DataRevision{}) },
		"prune":      func(ctx context.Context) error { _, err := l.Prune(ctx, "", time.Hour); return err },
		"list": func(ctx context.Context) (last error) {
			for _, err := range l.List(ctx, "") {
				last = err
			}
			return last
		},
		"inspect batch": func(ctx context.Context) error { _, errs := l.InspectBatch(ctx, []string{"n"}); return errs[0] },
	}
}

// Each operation ends exactly with its context. Without a deadline it has its own time limit,
// however long its attempts may take.
func TestTimeLimits(t *testing.T) {
	for _, wait := range []time.Duration{0, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			for name, do := range allOperations(lockerWithTransport(t, neverAnswers, WithRequestTimeout(time.Hour))) {
				ctx, want := context.Background(), opTimeout
				if name == "inspect" || name == "read data" {
					want += transferTime(limits.MaxData)
				}
				if wait > 0 {
					limited, cancel := context.WithTimeout(ctx, wait)
					defer cancel()
					ctx, want = limited, wait
				}
				start := time.Now()
				err := do(ctx)
				wantUnknown(t, name, err)
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: error %v, want one that wraps %v", name, err, context.DeadlineExceeded)
				}
				if took := time.Since(start); took != want {
					t.Errorf("%s took %v, want %v", name, took, want)
				}
			}
		})
	}
}

// After a refused connection the request for the lease is not repeated: the caller gets the
// error at once. Other requests are repeated within a few seconds.
func TestConnectionRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		for name, do := range allOperations(lockerWithTransport(t, func(*http.Request) (*http.Response, error) { return nil, refused })) {
			start := time.Now()
			err := do(context.Background())
			if took := time.Since(start); !errors.Is(err, refused) || took > 5*time.Second || name == "acquire" && took > 0 {
				t.Errorf("%s: error %v after %v", name, err, took)
			}
		}
	})
}

// A service that hangs delays no call beyond its context, and nothing is sent after that.
func TestHangEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 350 * time.Millisecond
		var requests atomic.Int64
		l := lockerWithTransport(t, func(r *http.Request) (*http.Response, error) {
			requests.Add(1)
			return neverAnswers(r)
		}, WithRequestTimeout(100*time.Millisecond))
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		start := time.Now()
		err := l.Renew(ctx, driver.Lease{Name: "n", ID: driver.NewLeaseID(newID()), TTL: time.Minute})
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != limit {
			t.Errorf("got %v after %v", err, took)
		}
		sent := requests.Load()
		if sent < 2 {
			t.Errorf("%d requests, want several within the time", sent)
		}
		time.Sleep(time.Minute)
		if again := requests.Load(); again != sent {
			t.Errorf("%d more requests after the context's end", again-sent)
		}
	})
}

// Each attempt has a time limit, although the client has none and the context is long.
func TestRequestTimeout(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l, w := store.lockerWithFaults()
	lease := acquire(t, l, request("n"))
	w.next(reqRenew, hang)
	start := time.Now()
	if err := withRequestTimeout(l, time.Second).Renew(bounded(t), lease); err != nil || time.Since(start) < time.Second || time.Since(start) > 10*time.Second {
		t.Errorf("got %v after %v", err, time.Since(start))
	}
}

// Retry-After is respected if the context lasts long enough; otherwise the refusal is returned
// at once.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		store := newTestContainer(t)
		l, w := store.lockerWithFaults()
		lease := acquire(t, l, request("n"))

		w.next(reqRenew, respond(status, "ServerBusy", "Retry-After", "1"))
		start := time.Now()
		if err := l.Renew(bounded(t), lease); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took < time.Second || w.count(reqRenew) != 2 {
			t.Errorf("renewed after %v with %d requests, want 2 and a second between them", took, w.count(reqRenew))
		}

		w.take()
		w.next(reqRenew, respond(status, "ServerBusy", "Retry-After", "60"))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		start = time.Now()
		err := l.Renew(ctx, lease)
		cancel()
		var busy *StorageError
		if !errors.As(err, &busy) || busy.Status != status || busy.Code != "ServerBusy" {
			t.Errorf("got %v, want the service's %d", err, status)
		}
		if took := time.Since(start); took > 5*time.Second || w.count(reqRenew) != 1 {
			t.Errorf("gave up after %v and %d requests, want at once", took, w.count(reqRenew))
		}
	}
}

// A lock's data may have the maximum size, also on a connection that takes seconds to carry
// them: time limits grow with the data.
func TestLargeDataOnASlowConnection(t *testing.T) {
	serverprocess.Long(t, "waits for time limits of requests")
	t.Parallel()
	store := newTestContainer(t)
	l, w := store.lockerWithFaults()
	slow := func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
		select {
		case <-time.After(3 * time.Second):
			return base.RoundTrip(r)
		case <-r.Context().Done():
			discard(r)
			return nil, r.Context().Err()
		}
	}
	req := request("n")
	req.Data = bytes.Repeat([]byte("12345678"), limits.MaxData/8)
	release(t, l, acquire(t, l, request("n"))) // creates the blob
	w.take()
	w.all(reqUpload, slow)
	w.all(reqDownload, slow)
	l = withRequestTimeout(l, 2*time.Second)
	for tries := 0; ; tries++ {
		_, err := l.TryAcquire(bounded(t), req)
		if err == nil {
			break
		}
		if tries == 5 || !errors.Is(err, context.DeadlineExceeded) || w.count(reqUpload) > 0 {
			t.Fatal(err) // only small requests may be late on a busy machine
		}
	}
	got, _, err := l.ReadData(bounded(t), "n")
	if err != nil || !bytes.Equal(got, req.Data) {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
	if w.count(reqUpload) != 1 || w.count(reqDownload) != 1 {
		t.Errorf("sent %q: data were cut off and sent again", w.take())
	}
}
