//go:build unix

package file

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gofrs/flock"
)

// A lock file that is replaced before each attempt to lock it is tried again with a backoff, until the context ends.
func TestLockFileIsReplacedAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		l := newTestLocker(t, dir, newFakeClock().clock())
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
	l := newTestLocker(t, t.TempDir(), newFakeClock().clock())
	interrupted := 0
	l.disk.unlock = func(f *flock.Flock) error {
		if interrupted++; interrupted%2 == 1 {
			return syscall.EINTR
		}
		return f.Unlock()
	}
	lease := mustAcquire(t, l, request("first"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := l.Renew(ctx, lease); err != nil || interrupted != 4 {
		t.Errorf("the next call, after %d attempts to unlock: %v", interrupted, err)
	}
}
