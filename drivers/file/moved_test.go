package file

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A folder that is moved away or deleted while a lock is held is made again by the next process that starts, which is granted the lock with
// a greater token. The holder, and a process that waits already, get an error until then. The holder is certain of its loss at the next
// renewal after another has taken the lock.
func TestDeletedFolder(t *testing.T) {
	t.Parallel()
	for what, remove := range map[string]func(dir string) error{
		"moved": func(dir string) error { return os.Rename(dir, dir+".away") }, "deleted": os.RemoveAll,
	} {
		t.Run(what, func(t *testing.T) {
			if runtime.GOOS == "windows" {
				t.Skip("an open file keeps the folder in its place")
			}
			dir := filepath.Join(t.TempDir(), "locks")
			first, second := mustNew(t, dir), mustNew(t, dir)
			lease := mustAcquire(t, first, request("first"))
			wantHeld(t, second, request("second"), "TryAcquire")
			// It fails while a process makes a file there, as it does to remove old records.
			eventually(t, "the removal of the folder", func() bool { return remove(dir) == nil })
			if _, err := first.Renew(t.Context(), lease); err == nil {
				t.Error("renewed in a folder that is not there")
			}
			if got, err := second.TryAcquire(t.Context(), request("second")); err == nil || errors.Is(err, driver.ErrHeld) {
				t.Errorf("in a folder that is gone: %v, %v", got, err)
			}
			next := mustNew(t, dir)
			for time.Now().UnixMilli() <= int64(lease.Token) { // an empty folder takes its first token from the clock
				time.Sleep(time.Millisecond)
			}
			if got := mustAcquire(t, next, request("next")); got.Token <= lease.Token {
				t.Errorf("token %d after %d", got.Token, lease.Token)
			}
			if _, err := first.Renew(t.Context(), lease); !errors.Is(err, driver.ErrLost) {
				t.Errorf("Renew: %v, want ErrLost", err)
			}
		})
	}
}
