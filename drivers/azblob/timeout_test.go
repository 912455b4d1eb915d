package azblob

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/serverprocess"
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
		"renew":      func(ctx context.Context) error { return errOf(l.Renew(ctx, lease)) },
		"release":    func(ctx context.Context) error { return l.Release(ctx, lease) },
		"inspect":    func(ctx context.Context) error { _, err := l.Inspect(ctx, "n"); return err },
		"break":      func(ctx context.Context) error { return l.Break(ctx, "n", driver.BreakAnybody()) },
		"break now":  func(ctx context.Context) error { return l.BreakNow(ctx, "n", driver.BreakAnybody()) },
		"read data":  func(ctx context.Context) error { _, _, err := l.ReadData(ctx, "n"); return err },
		"write data": func(ctx context.Context) error { return l.WriteData(ctx, lease, nil, driver.DataRevision{}) },
		"prune":      func(ctx context.Context) error { _, err := l.Prune(ctx, "", time.Hour); return err },
		"list": func(ctx context.Context) (last error) {
			for _, err := range l.List(ctx, "") {
				last = err
			}
			return last
		},
		"inspect batch": func(ctx context.Context) error { _, errs := l.InspectBatch(ctx, "", []string{"n"}); return errs[0] },
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
		_, err := l.Renew(ctx, driver.Lease{Name: "n", ID: driver.NewLeaseID(newID()), TTL: time.Minute})
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

// aService answers requests about one blob, as much as the tests here need of it. A fault can replace the answer to a kind
// of request.
type aService struct {
	faults   map[string]func(*http.Request) *http.Response // nil as the answer: there is none
	requests map[string]int
	data     []byte
	metadata http.Header
}

func (s *aService) answer(r *http.Request) (*http.Response, error) {
	name := requestName(r)
	s.requests[name]++
	if fault := s.faults[name]; fault != nil {
		if resp := fault(r); resp != nil || r.Context().Err() != nil {
			return resp, r.Context().Err()
		}
	}
	status, body := http.StatusOK, []byte(nil)
	switch name {
	case reqAcquire, reqUpload:
		status = http.StatusCreated
	case reqDownload:
		body = s.data
	}
	if name == reqUpload {
		s.data, s.metadata = discard(r), http.Header{}
		for key, values := range r.Header {
			if strings.HasPrefix(strings.ToLower(key), "x-ms-meta-") {
				s.metadata.Set(key, values[0])
			}
		}
	}
	header := http.Header{"Etag": {`"0x1"`}, "Date": {time.Now().UTC().Format(http.TimeFormat)}, "X-Ms-Lease-State": {"leased"},
		"X-Ms-Blob-Type": {"BlockBlob"}, "X-Ms-Version": {"2026-01-01"}}
	maps.Copy(header, s.metadata)
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
		Request: r}, nil
}

// withService runs a test in virtual time with a Locker on a service that answers at once.
func withService(t *testing.T, requestTimeout time.Duration, test func(t *testing.T, l *Locker, s *aService)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &aService{faults: map[string]func(*http.Request) *http.Response{}, requests: map[string]int{}}
		test(t, lockerWithTransport(t, s.answer, WithRequestTimeout(requestTimeout)), s)
	})
}

// slow makes the answers to some kinds of request come after a time, unless the request ends before.
func (s *aService) slow(d time.Duration, kinds ...string) {
	for _, kind := range kinds {
		s.faults[kind] = func(r *http.Request) *http.Response {
			select {
			case <-time.After(d):
			case <-r.Context().Done():
			}
			return nil
		}
	}
}

// Each attempt has a time limit, although the client has none and the context is long.
func TestRequestTimeout(t *testing.T) {
	withService(t, time.Second, func(t *testing.T, l *Locker, s *aService) {
		s.faults[reqRenew] = func(r *http.Request) *http.Response {
			s.faults[reqRenew] = nil // the next attempt is answered
			<-r.Context().Done()
			return nil
		}
		start := time.Now()
		_, err := l.Renew(t.Context(), driver.Lease{Name: "n", ID: driver.NewLeaseID(newID()), TTL: time.Minute})
		if took := time.Since(start); err != nil || took < time.Second || took > 2*time.Second || s.requests[reqRenew] != 2 {
			t.Errorf("got %v after %v and %d requests", err, took, s.requests[reqRenew])
		}
	})
}

// Retry-After is respected if the context lasts long enough; otherwise the refusal is returned
// at once.
func TestRetryAfter(t *testing.T) {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		for seconds, want := range map[string]time.Duration{"1": time.Second, "60": 0} {
			withService(t, time.Second, func(t *testing.T, l *Locker, s *aService) {
				s.faults[reqRenew] = func(r *http.Request) *http.Response {
					s.faults[reqRenew] = nil
					return errorResponse(r, status, "ServerBusy", "Retry-After", seconds)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				start := time.Now()
				_, err := l.Renew(ctx, driver.Lease{Name: "n", ID: driver.NewLeaseID(newID()), TTL: time.Minute})
				if took := time.Since(start); took != want {
					t.Errorf("%d after %s s: %v, want %v", status, seconds, took, want)
				}
				var busy *StorageError
				refused := errors.As(err, &busy) && busy.Status == status && busy.Code == "ServerBusy"
				if again := want > 0; again != (err == nil) || again == refused || again != (s.requests[reqRenew] == 2) {
					t.Errorf("%d after %s s: %v and %d requests", status, seconds, err, s.requests[reqRenew])
				}
			})
		}
	}
}

// A lock's data may have the maximum size, also on a connection that takes longer to carry them than any
// other request or operation may take: time limits grow with the data.
func TestLargeDataOnASlowConnection(t *testing.T) {
	serverprocess.Long(t, "waits for time limits of requests")
	withService(t, opTimeout-5*time.Second, func(t *testing.T, l *Locker, s *aService) {
		s.slow(opTimeout+2*time.Second, reqUpload, reqDownload)
		req := request("n")
		req.Data = bytes.Repeat([]byte("12345678"), limits.MaxData/8)
		if _, err := l.TryAcquire(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		got, _, err := l.ReadData(t.Context(), "n")
		if err != nil || !bytes.Equal(got, req.Data) {
			t.Errorf("read %d bytes, %v", len(got), err)
		}
		if s.requests[reqUpload] != 1 || s.requests[reqDownload] != 1 {
			t.Errorf("sent %v: data were cut off and sent again", s.requests)
		}
	})
}
