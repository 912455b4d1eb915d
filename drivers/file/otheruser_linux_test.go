package file

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// asStranger calls fn as a user who may not enter the folders of this one. For root the thread becomes another user's for files.
func asStranger(t *testing.T, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if os.Geteuid() == 0 {
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
			if err := syscall.Setfsuid(65534); err != nil {
				t.Error(err)
				return
			}
		}
		fn()
	}()
	<-done
}

// folderForStrangers makes a folder that every user may enter. The folder of TMPDIR can be closed to others.
func folderForStrangers(t *testing.T) (dir string) {
	t.Helper()
	for _, parent := range []string{"", "/tmp", "/var/tmp"} {
		made, err := os.MkdirTemp(parent, "folder") //nolint:usetesting // t.TempDir is closed to other users
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = os.RemoveAll(made) })
		if err := os.Chmod(made, 0o755); err != nil { //nolint:gosec // for all users
			t.Fatal(err)
		}
		asStranger(t, func() {
			if _, err := os.Stat(made); err == nil {
				dir = made
			}
		})
		if dir != "" {
			return dir
		}
	}
	t.Fatal("no folder for temporary files can be entered by every user")
	return ""
}

// A folder that this user may not enter is refused with the reason and what to do, also when it is only read: one of another
// user, such as one that root made before, with the owner, and this user's own with its mode. Doctor does not ask for a higher limit.
func TestFolderThatMayNotBeEntered(t *testing.T) {
	t.Run("its own", func(t *testing.T) { folderThatMayNotBeEntered(t, os.Geteuid(), "chmod 700 ") })
	if os.Geteuid() == 0 { // it can give a folder away
		t.Run("another's", func(t *testing.T) {
			folderThatMayNotBeEntered(t, 1, "all processes that use a folder must run as one user")
		})
	}
}

func folderThatMayNotBeEntered(t *testing.T, owner int, want string) {
	dir := filepath.Join(folderForStrangers(t), "locks")
	if err := errors.Join(os.Mkdir(dir, 0), os.Chown(dir, owner, -1)); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Chmod(dir, 0o700) }() //nolint:gosec // a folder must be entered to be removed
	check := func(what string, err error) {
		if !errors.Is(err, driver.ErrDenied) || !errors.Is(err, syscall.EACCES) || strings.Count(err.Error(), want) != 1 ||
			!strings.Contains(err.Error(), dir+" ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	reader := newTestReader(t, dir)
	asStranger(t, func() {
		_, err := reader.stems("")
		check("list", err)
		_, err = reader.inspect(t.Context(), "job")
		check("inspect", err)
		if owner == os.Geteuid() { // of others' folders, it refuses all but root's before it enters them
			check("open", makeFolder(dir, slog.New(slog.DiscardHandler)))
		}
		_, err = openWatch(dir, func(string, bool) {}, func() {})
		if remedy, command := watchRemedy(err); strings.Contains(remedy, "limit") || command != "" || !strings.Contains(remedy, "read") {
			t.Errorf("%v: %q, %q", err, remedy, command)
		}
	})
	for _, limit := range []error{syscall.EMFILE, syscall.ENOSPC} {
		if remedy, command := watchRemedy(limit); !strings.Contains(remedy, "limit") || command == "" {
			t.Errorf("%v: %q, %q", limit, remedy, command)
		}
	}
}

// newTestReader makes a Locker that only reads.
func newTestReader(t *testing.T, dir string) *Locker {
	t.Helper()
	opened, err := openForReading(t.Context(), "file:"+dir)
	if err != nil {
		t.Fatal(err)
	}
	l, ok := opened.(*Locker)
	if !ok {
		t.Fatalf("%T", opened)
	}
	return l
}
