package azblob

import (
	"context"
	"errors"
	"net"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/holdfast-go/holdfast/driver"
)

// transport is a way to a service that cannot be reached.
type transport func(*http.Request) (*http.Response, error)

func (f transport) Do(r *http.Request) (*http.Response, error) { return f(r) }

// silent gets no answer, as from a host that drops what is sent to it.
func silent(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func unreachable(t *testing.T, f transport, opts ...Option) *Locker {
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

func operations(l *Locker) map[string]func(context.Context) error {
	lease := driver.Lease{Name: "n", ID: driver.NewLeaseID(newID()), TTL: time.Minute}
	return map[string]func(context.Context) error{
		"acquire":    func(ctx context.Context) error { _, err := l.TryAcquire(ctx, request("n")); return err },
		"renew":      func(ctx context.Context) error { return l.Renew(ctx, lease) },
		"release":    func(ctx context.Context) error { return l.Release(ctx, lease) },
		"inspect":    func(ctx context.Context) error { _, err := l.Inspect(ctx, "n"); return err },
		"break":      func(ctx context.Context) error { return l.Break(ctx, "n") },
		"break now":  func(ctx context.Context) error { return l.BreakNow(ctx, "n") },
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

// Each operation ends with its context, to the moment; without one it has a time limit of its
// own, however long its tries may take.
func TestTimeLimits(t *testing.T) {
	for _, wait := range []time.Duration{0, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			for name, do := range operations(unreachable(t, silent, WithRequestTimeout(time.Hour))) {
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

// A service that refuses connections is not asked again and again for the lease: the caller
// knows at once. What may be repeated is, within a few seconds.
func TestConnectionRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		for name, do := range operations(unreachable(t, func(*http.Request) (*http.Response, error) { return nil, refused })) {
			start := time.Now()
			err := do(context.Background())
			if took := time.Since(start); !errors.Is(err, refused) || took > 5*time.Second || name == "acquire" && took > 0 {
				t.Errorf("%s: error %v after %v", name, err, took)
			}
		}
	})
}
