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
	"testing/synctest"
	"time"

	"github.com/gofrs/flock"

	"github.com/holdfast-go/holdfast/driver"
)

// A lock file that is replaced before each attempt to lock it is tried again with a backoff, until the context ends.
func TestLockFileIsReplacedAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, dir := freshLocker(t)
		path := filepath.Join(dir, "n.lock")
		tries := 0
		l.disk.lock = func(f *flock.Flock) (bool, error) {
			locked, err := f.TryLock()
			if tries++; tries < 1000 {
				other := path + ".new"
				if err := errors.Join(os.WriteFile(other, nil, 0o600), os.Rename(other, path)); err != nil {
					t.Error(err)
				}
			}
			return locked, err
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.lockFile(ctx, path)
		if !errors.Is(err, context.DeadlineExceeded) || tries > 100 {
			t.Errorf("after %d attempts: %v, want the end of the context", tries, err)
		}
	})
}

// A lock file whose unlocking a signal interrupts, as on FUSE, does not stay locked.
func TestInterruptedUnlock(t *testing.T) {
	l, _ := freshLocker(t)
	interrupted := 0
	l.disk.unlock = func(f *flock.Flock) error {
		if interrupted++; interrupted%2 == 1 {
			return syscall.EINTR
		}
		return f.Unlock()
	}
	lease := mustAcquire(t, l, request("first"))
	if _, err := l.Renew(t.Context(), lease); err != nil || interrupted != 4 {
		t.Errorf("the next call, after %d attempts to unlock: %v", interrupted, err)
	}
}

// A file system that cannot lock files is no temporary fault, and the error says what it lacks. Another call that is not implemented
// proves nothing about locks.
func TestFileSystemWithoutFileLocks(t *testing.T) {
	for _, cause := range []error{syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.ENOTSUP, syscall.EIO} {
		l, _ := freshLocker(t)
		l.disk.lock = func(*flock.Flock) (bool, error) { return false, &os.PathError{Op: "flock", Path: "n.lock", Err: cause} }
		_, err := l.TryAcquire(t.Context(), request("first"))
		lasting := !errors.Is(cause, syscall.EIO)
		if !errors.Is(err, cause) || errors.Is(err, driver.ErrDenied) != lasting ||
			strings.Contains(fmt.Sprint(err), "has no file locks") != lasting {
			t.Errorf("%v: %v", cause, err)
		}
		l.disk = systemDisk()
		l.disk.sync = func(*os.File) error { return cause }
		if _, err := l.TryAcquire(t.Context(), request("first")); err == nil || errors.Is(err, driver.ErrDenied) {
			t.Errorf("%v of a sync: %v", cause, err)
		}
	}
}
