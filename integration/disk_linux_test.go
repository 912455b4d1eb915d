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

// The disk under the folder of locks is full for a while, and then for longer than a TTL —
// the first costs nothing but errors that are told; in the second the holder is told of the
// loss in time, nobody is granted anything while the disk is full, and no record is damaged.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	t.Run(onFile, func(t *testing.T) {
		t.Parallel()
		dir, disk := newDisk(t)
		const ttl = 6 * time.Second
		name := fresh()
		holder := newWorker(t, job{Role: "obey", URL: "file:" + dir, Name: name, TTL: ttl})
		waiter := newWorker(t, job{Role: "obey", URL: "file:" + dir, Name: name, TTL: ttl})
		first := parse(t, holder.ask("lock", "token"))

		disk.fill(t, holder, waiter)
		eventually(t, "a renewal fails", func() bool { return holder.tells(holdfast.EventError) })
		disk.empty(t, holder, waiter)
		time.Sleep(ttl + ttl/4)
		if err := holder.ask("err", "err"); err != "<nil>" || holder.tells(holdfast.EventLost) {
			t.Fatalf("after a moment with a full disk the hold is %s", err)
		}

		waiter.order("lock")
		eventually(t, "the waiter waits", func() bool { return waiter.tells(holdfast.EventHolderSeen) })
		disk.fill(t, holder, waiter)
		eventually(t, "the loss is told", func() bool { return holder.tells(holdfast.EventLost) })
		time.Sleep(ttl) // the lease is over now, and its record is still there
		if waiter.tells(holdfast.EventAcquired) {
			t.Error("a lock was granted on a full disk")
		}
		disk.empty(t, holder, waiter)
		second := parse(t, waiter.expect("token"))
		if second <= first {
			t.Errorf("token %d after %d", second, first)
		}
		if err := holder.ask("release", "released"); err != "<nil>" {
			t.Errorf("release of what was lost: %s", err)
		}
		if err := waiter.ask("err", "err"); err != "<nil>" {
			t.Errorf("the successor's hold: %s", err)
		}
		waiter.ask("release", "released")
		if left, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); len(left) > 0 {
			t.Errorf("files are left over: %v", left)
		}
	})
}

// disk is one that can be full: a small tmpfs, or where that cannot be mounted a limit on
// the size of the files that the processes may write.
type disk struct {
	mounted bool
	ballast string
}

func newDisk(t *testing.T) (dir string, d disk) {
	t.Helper()
	dir = t.TempDir()
	d = disk{ballast: filepath.Join(dir, "ballast")}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Logf("no tmpfs (%v): a limit on the size of files instead", err)
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

func (d disk) fill(t *testing.T, writers ...*worker) {
	t.Helper()
	if !d.mounted {
		limit(t, 8, writers)
		return
	}
	err := os.WriteFile(d.ballast, []byte(strings.Repeat("full", 256<<10)), 0o600)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
}

func (d disk) empty(t *testing.T, writers ...*worker) {
	t.Helper()
	if !d.mounted {
		limit(t, unix.RLIM_INFINITY, writers)
		return
	}
	if err := os.Remove(d.ballast); err != nil {
		t.Fatal(err)
	}
}

func limit(t *testing.T, bytes uint64, writers []*worker) {
	t.Helper()
	for _, w := range writers {
		l := unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}
		if err := unix.Prlimit(w.Process.Pid, unix.RLIMIT_FSIZE, &l, nil); err != nil {
			t.Fatal(err)
		}
	}
}
