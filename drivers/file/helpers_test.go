package file

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/holdfast-go/holdfast/driver"
)

// newTestLocker makes a Locker whose grants start no prune, so that a test can replace its disk.
func newTestLocker(t *testing.T, dir string, c clock, opts ...Option) *Locker {
	t.Helper()
	l, err := newLocker(dir, c, opts...)
	if err != nil {
		t.Fatal(err)
	}
	l.nextPrune = time.Now().Add(time.Hour)
	t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) })
	return l
}

// freshLocker makes a Locker of a new folder.
func freshLocker(t *testing.T) (l *Locker, dir string) {
	t.Helper()
	dir = t.TempDir()
	return newTestLocker(t, dir, newFakeClock().clock()), dir
}

// mustNew is New, for a Locker that is closed at the end of the test.
func mustNew(t *testing.T, dir string, opts ...Option) *Locker {
	t.Helper()
	l, err := New(dir, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) })
	return l
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// flocked locks a file until the end of the test, as another process does during a call.
func flocked(t *testing.T, path string) *flock.Flock {
	t.Helper()
	f := flock.New(path)
	if err := f.Lock(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Unlock() })
	return f
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func request(id string) driver.Request {
	return driver.Request{Name: "n", ID: driver.NewLeaseID(id), Owner: "me", TTL: time.Minute, Data: []byte("data")}
}

func mustAcquire(t *testing.T, l *Locker, req driver.Request) driver.Lease {
	t.Helper()
	lease, err := l.TryAcquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func mustRenew(t *testing.T, l *Locker, lease driver.Lease) {
	t.Helper()
	if _, err := l.Renew(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
}

func mustRelease(t *testing.T, l *Locker, lease driver.Lease) {
	t.Helper()
	if err := l.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
}

func wantHeld(t *testing.T, l *Locker, req driver.Request, what string) {
	t.Helper()
	if _, err := l.TryAcquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("%s: %v, want ErrHeld", what, err)
	}
}

// everyCall makes each call that reads the record, and returns its error.
func everyCall(ctx context.Context, l *Locker) map[string]error {
	lease := driver.Lease{Name: "n", ID: driver.NewLeaseID("first"), TTL: time.Minute}
	errs := map[string]error{}
	_, errs["TryAcquire"] = l.TryAcquire(ctx, request("second"))
	_, errs["Renew"] = l.Renew(ctx, lease)
	errs["Release"] = l.Release(ctx, lease)
	_, errs["Inspect"] = l.Inspect(ctx, "n")
	errs["Break"] = l.Break(ctx, "n", driver.BreakAnybody())
	errs["BreakNow"] = l.BreakNow(ctx, "n", driver.BreakAnybody())
	_, _, errs["ReadData"] = l.ReadData(ctx, "n")
	errs["WriteData"] = l.WriteData(ctx, lease, nil, driver.DataRevision{Token: lease.Token})
	for _, err := range l.List(ctx, "") {
		errs["List"] = err
	}
	return errs
}
