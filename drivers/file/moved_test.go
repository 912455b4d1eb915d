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

// A holder whose folder was moved away is certain of its loss at the next renewal after another has taken the lock in the
// folder that has its place now.
func TestMovedFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	first := mustNew(t, dir)
	lease := mustAcquire(t, first, request("first"))
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Skip("an open file keeps the folder in its place: ", err) // Windows
	}
	if _, err := first.Renew(t.Context(), lease); err == nil {
		t.Error("renewed in a folder that is not there")
	}
	expectTakeOver(t, dir, first, lease)
}

// expectTakeOver opens a folder again, and expects another Locker's lock to be granted with a greater token.
func expectTakeOver(t *testing.T, dir string, first *Locker, lease driver.Lease) {
	t.Helper()
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
}

// A folder that is deleted while a lock is held is made again by the next process that starts, which is granted the lock with
// a greater token. A process that waits already gets an error until then. The holder is certain of its loss at the next renewal.
func TestDeletedFolder(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("an open file keeps the folder in its place")
	}
	dir := filepath.Join(t.TempDir(), "locks")
	first := mustNew(t, dir)
	second := mustNew(t, dir)
	lease := mustAcquire(t, first, request("first"))
	wantHeld(t, second, request("second"), "TryAcquire")
	// It fails while a process makes a file there, as it does to remove old records.
	eventually(t, "the removal of the folder", func() bool { return os.RemoveAll(dir) == nil })
	if got, err := second.TryAcquire(t.Context(), request("second")); err == nil || errors.Is(err, driver.ErrHeld) {
		t.Errorf("in a folder that is gone: %v, %v", got, err)
	}
	expectTakeOver(t, dir, first, lease)
}
