package file

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
)

// failsNaming wants an error of unknown outcome that names the path.
func failsNaming(t *testing.T, what, path string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%s: error %v, want one that names %s", what, err, path)
	}
	for _, known := range []error{holdfast.ErrHeld, holdfast.ErrLost, holdfast.ErrConflict, holdfast.ErrInvalid, holdfast.ErrClosed} {
		if errors.Is(err, known) {
			t.Errorf("%s: error %v passes for a known outcome", what, err)
		}
	}
}

func TestFolderIsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := New(path)
	failsNaming(t, "New", path, err)
}

func TestFolderIsGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	l := newTestLocker(t, dir, newDial().clock())
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	for call, err := range everyCall(t.Context(), l) {
		failsNaming(t, call, dir, err)
	}
}

func TestFolderIsReadOnly(t *testing.T) {
	dir := t.TempDir()
	switch {
	case runtime.GOOS == "windows":
		t.Skip("Windows has no mode that forbids to create files in a folder")
	case os.Geteuid() == 0:
		dir = "/proc" // which refuses root as well
	default:
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
	}
	l := newTestLocker(t, dir, newDial().clock())
	_, err := l.TryAcquire(t.Context(), request("first"))
	failsNaming(t, "TryAcquire", dir, err)
}

// A record that cannot be replaced stays as it is, and no half of one is left.
func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	l := newTestLocker(t, dir, newDial().clock())
	lease := mustAcquire(t, l, request("first"))
	tmp := filepath.Join(dir, "n.tmp")
	if err := os.MkdirAll(filepath.Join(tmp, "x"), 0o700); err != nil { // in the way
		t.Fatal(err)
	}
	failsNaming(t, "Renew", tmp, l.Renew(t.Context(), lease))
	failsNaming(t, "Release", tmp, l.Release(t.Context(), lease))
	if r, err := l.Inspect(t.Context(), "n"); err != nil || r.State != holdfast.StateHeld || r.Token != lease.Token {
		t.Errorf("after it: %+v, error %v; want held as before", r, err)
	}
	if err := os.RemoveAll(tmp); err != nil {
		t.Fatal(err)
	}
	if err := l.Renew(t.Context(), lease); err != nil {
		t.Errorf("once it is out of the way: %v", err)
	}
}
