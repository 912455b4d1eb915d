package integration

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast"
)

// The disk of the lock folder is full for a moment, and then for longer than a TTL — the first
// time errors are reported and nothing is lost; the second time the loss is reported before the
// lease ends, nothing is granted while the disk is full, and no record is damaged.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	t.Run(onFile, func(t *testing.T) {
		t.Parallel()
		dir, disk := newDisk(t)
		const ttl = 18 * time.Second // a third is left after the first renewal that fails
		name := uniqueName()
		holder := startWorker(t, job{Role: "commands", URL: "file:" + dir, Name: name, TTL: ttl})
		waiter := startWorker(t, job{Role: "commands", URL: "file:" + dir, Name: name, TTL: ttl})
		first := parse(t, holder.query("lock", "token"))

		disk.fill(t, holder, waiter)
		eventually(t, "a renewal fails", func() bool { return holder.reported(holdfast.EventError) })
		disk.empty(t, holder, waiter)
		time.Sleep(ttl + ttl/4)
		if err := holder.query("err", "err"); err != "<nil>" || holder.reported(holdfast.EventLost) {
			t.Fatalf("after a moment with a full disk the hold reports %s", err)
		}

		waiter.send("lock")
		eventually(t, "the waiter waits", func() bool { return waiter.reported(holdfast.EventHolderSeen) })
		disk.fill(t, holder, waiter)
		eventually(t, "the loss is reported", func() bool { return holder.reported(holdfast.EventLost) })
		time.Sleep(ttl) // the lease has ended, but its record cannot be changed
		if waiter.reported(holdfast.EventAcquired) {
			t.Error("a lock was granted on a full disk")
		}
		disk.empty(t, holder, waiter)
		second := parse(t, waiter.expect("token"))
		if second <= first {
			t.Errorf("token %d was granted after token %d", second, first)
		}
		if err := holder.query("release", "released"); err != "<nil>" {
			t.Errorf("release of the lost hold: %s", err)
		}
		if err := waiter.query("err", "err"); err != "<nil>" {
			t.Errorf("the successor's hold: %s", err)
		}
		waiter.query("release", "released")
		if left, _ := filepath.Glob(filepath.Join(dir, "[^.]*.tmp")); len(left) > 0 { // .pruned.tmp may be under way
			t.Errorf("temporary files are left: %v", left)
		}
	})
}

// disk is a disk that can be filled: a small tmpfs. Where that cannot be mounted, the processes
// get a limit on the size of the files that they write.
type disk struct {
	mounted bool
	ballast string
}

func newDisk(t *testing.T) (dir string, d disk) {
	t.Helper()
	dir = t.TempDir()
	d = disk{ballast: filepath.Join(dir, "ballast")}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Logf("tmpfs cannot be mounted (%v): using a file size limit instead", err)
		return dir, d
	}
	d.mounted = true
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, d
}

func (d disk) fill(t *testing.T, writers ...*workerProcess) {
	t.Helper()
	if !d.mounted {
		setFileSizeLimit(t, 8, writers)
		return
	}
	err := os.WriteFile(d.ballast, []byte(strings.Repeat("full", 256<<10)), 0o600)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
}

func (d disk) empty(t *testing.T, writers ...*workerProcess) {
	t.Helper()
	if !d.mounted {
		setFileSizeLimit(t, unix.RLIM_INFINITY, writers)
		return
	}
	if err := os.Remove(d.ballast); err != nil {
		t.Fatal(err)
	}
}

func setFileSizeLimit(t *testing.T, bytes uint64, writers []*workerProcess) {
	t.Helper()
	for _, w := range writers {
		l := unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}
		if err := unix.Prlimit(w.Process.Pid, unix.RLIMIT_FSIZE, &l, nil); err != nil {
			t.Fatal(err)
		}
	}
}
