//go:build unix

package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// errNoRight is the error of a file that this user may not open.
const errNoRight = syscall.EACCES

// What a person must change is denied, at once and certainly. Whatever happens after the record was
// replaced leaves the outcome unknown.
func TestDenied(t *testing.T) {
	for _, cause := range []error{
		syscall.EACCES, syscall.EPERM, syscall.EROFS, syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EMFILE,
	} {
		t.Run(cause.Error(), func(t *testing.T) {
			l, _ := freshLocker(t)
			system := l.disk
			l.disk.sync = func(*os.File) error { return fmt.Errorf("sync: %w", cause) }
			if _, err := l.TryAcquire(t.Context(), request("first")); !errors.Is(err, driver.ErrDenied) || !errors.Is(err, cause) {
				t.Errorf("before the record is replaced: %v", err)
			}
			if r, err := l.Inspect(t.Context(), "n"); err != nil || r.State != driver.StateFree {
				t.Errorf("after it: %v, %v", r.State, err)
			}
			l.disk = system
			l.disk.syncDir = func(string) error { return cause }
			if _, err := l.TryAcquire(t.Context(), request("first")); err == nil || driver.OutcomeKnown(err) {
				t.Errorf("after the record is replaced: %v", err)
			}
			l.disk = system
			l.disk.open = func(context.Context, string, int) (*os.File, error) { return nil, cause }
			_, err := l.Inspect(t.Context(), "n")
			if !errors.Is(err, driver.ErrDenied) {
				t.Errorf("a record that may not be read: %v", err)
			}
			limit := map[error]string{syscall.EFBIG: "ulimit -f", syscall.EMFILE: "ulimit -n"}[cause]
			if err != nil && (!strings.Contains(err.Error(), limit) || limit == "" && strings.Contains(err.Error(), "ulimit")) {
				t.Errorf("the error is %v, want %q in it", err, limit)
			}
		})
	}
}

// A record that cannot be used, or what lies in its place, is damaged, and the error names it. A pipe makes no call wait for a writer.
func TestDamaged(t *testing.T) {
	l, dir := freshLocker(t)
	path := filepath.Join(dir, "n.json")
	for what, make := range map[string]func() error{
		"not a record": func() error { return os.WriteFile(path, []byte("x"), 0o600) },
		"a folder":     func() error { return os.Mkdir(path, 0o700) },
		"a link":       func() error { return os.Symlink("/nowhere", path) },
		"a pipe":       func() error { return syscall.Mkfifo(path, 0o600) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		for call, err := range everyCall(t.Context(), l) {
			expectPathError(t, what+", "+call, path, err)
			if !errors.Is(err, driver.ErrDamaged) && what != "a pipe" || errors.Is(err, driver.ErrDenied) ||
				errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s, %s: %v", what, call, err)
			}
		}
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, prunedFile), "x")
	if _, err := l.TryAcquire(t.Context(), request("first")); !errors.Is(err, driver.ErrDamaged) {
		t.Errorf("the file of the highest token: %v", err)
	}
	l, dir = freshLocker(t)
	lock := filepath.Join(dir, "n.lock")
	if err := syscall.Mkfifo(lock, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := l.TryAcquire(t.Context(), request("first"))
	if expectPathError(t, "a pipe", lock, err); errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the call waited: %v", err)
	}
}

// The record of another machine is damaged, for this one.
func TestRecordOfAnotherMachine(t *testing.T) {
	dir := t.TempDir()
	mustAcquire(t, newTestLocker(t, dir, newFakeClock().clock()), request("first"))
	clock := newFakeClock().clock()
	clock.machine, clock.boot = "another", "another"
	if _, err := newTestLocker(t, dir, clock).TryAcquire(t.Context(), request("second")); !errors.Is(err, driver.ErrDamaged) {
		t.Errorf("TryAcquire: %v", err)
	}
}
