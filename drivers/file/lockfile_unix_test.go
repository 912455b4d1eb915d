//go:build unix

package file

import (
	"context"
	"errors"
	"os"
	"path/filepath"
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
