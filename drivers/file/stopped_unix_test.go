//go:build unix

package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

func init() { tasks["lock files"] = lockFilesTask }

// lockFilesTask locks the lock files of "n" and "free", as during a change, and keeps them locked.
func lockFilesTask(dir string) error {
	var locked []*flock.Flock
	for _, name := range []string{"n", "free"} {
		lock := flock.New(filepath.Join(dir, name+".lock"))
		if err := lock.Lock(); err != nil {
			return err
		}
		locked = append(locked, lock)
	}
	runtime.GC() // would soon close, and so unlock, a file that nothing refers to
	fmt.Println("ready")
	time.Sleep(time.Hour)
	runtime.KeepAlive(locked)
	return nil
}

// A call that waits for those of its own process does not say that another process has the lock file.
func TestCallsOfOneProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, other := newTestLocker(t, dir, newFakeClock().clock()), newTestLocker(t, dir, newFakeClock().clock())
	unlock, err := l.lockFile(t.Context(), filepath.Join(dir, "n.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = other.TryAcquire(ctx, request("first"))
	if err == nil || !strings.Contains(err.Error(), "n.lock is locked by other calls, of this process or another") {
		t.Errorf("got %v", err)
	}
}

// A process that is stopped while it has a lock file locked delays no call that only needs to read
// the record. A call that needs the lock file fails when its context ends, and says why.
func TestStoppedProcess(t *testing.T) {
	t.Parallel()
	l, dir := freshLocker(t)
	lease := mustAcquire(t, l, request("first"))
	cmd := startWhenReady(t, "lock files", dir)
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	start := time.Now()
	if r, err := l.Inspect(t.Context(), "n"); err != nil || r.State != driver.StateHeld {
		t.Errorf("Inspect: %+v, error %v", r, err)
	}
	if data, _, err := l.ReadData(t.Context(), "n"); err != nil || string(data) != "data" {
		t.Errorf("ReadData: %q, error %v", data, err)
	}
	for r, err := range l.List(t.Context(), "") {
		if err != nil || r.Name != "n" {
			t.Errorf("List: %+v, error %v", r, err)
		}
	}
	wantHeld(t, l, request("second"), "TryAcquire")
	other := driver.Lease{Name: "n", ID: driver.NewLeaseID("second"), TTL: time.Minute}
	if _, err := l.Renew(t.Context(), other); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Renew of no lease: %v, want ErrLost", err)
	}
	if err := l.Release(t.Context(), other); err != nil {
		t.Errorf("Release of no lease: %v", err)
	}
	if took := time.Since(start); took > callLimit { // as one that needs the lock file does
		t.Errorf("calls that only read took %v", took)
	}

	for call, do := range map[string]func(context.Context) error{
		"n":    func(ctx context.Context) error { return errOf(l.Renew(ctx, lease)) },
		"free": func(ctx context.Context) error { _, err := l.TryAcquire(ctx, freeRequest()); return err },
	} {
		err := interrupted(t, do, func(err error) bool { return strings.Contains(err.Error(), "other calls, of this process or another") })
		expectPathError(t, call, filepath.Join(dir, call+".lock"), err)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "other calls, of this process or another") {
			t.Errorf("%s: error %v", call, err)
		}
	}

	// A program's wait ends in time, and its shutdown has nothing to clean up.
	client, err := holdfast.New(l)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "free.lock")
	lock := func(ctx context.Context) error { _, err := client.Lock(ctx, "free"); return err }
	err = interrupted(t, lock, func(err error) bool { return strings.Contains(err.Error(), path) })
	expectPathError(t, "Lock", path, err)
	start = time.Now()
	if err := client.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if took := time.Since(start); took >= callLimit { // as long as a cleanup would wait for the stopped process
		t.Errorf("shutting down took %v", took)
	}
}

func freeRequest() driver.Request {
	req := request("second")
	req.Name = "free"
	return req
}

// List creates no file, whatever the folder has.
func TestListCreatesNoFile(t *testing.T) {
	t.Parallel()
	l, dir := freshLocker(t)
	write(t, filepath.Join(dir, "package.json"), "{}")
	for _, err := range l.List(t.Context(), "") {
		_ = err
	}
	_, _ = l.Inspect(t.Context(), "package")
	_ = l.Release(t.Context(), driver.Lease{Name: "absent", ID: driver.NewLeaseID("x")})
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v (%v), want package.json alone", entries, err)
	}
}
