//go:build unix

package file

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// openOnly makes open fail for a symbolic link, and keeps it from waiting for a writer if the
// file is a pipe.
const openOnly = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// refuseLink does nothing, since opening a link fails.
func refuseLink(string) error { return nil }

func openFile(_ context.Context, path string, flag int) (*os.File, error) {
	return os.OpenFile(path, flag|openOnly, 0o600)
}

// owner returns the user to whom a file belongs.
func owner(info fs.FileInfo) (uid int, known bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}

func rename(_ context.Context, from, to string) error { return os.Rename(from, to) }

// removeLock removes a lock file while it is locked. A process that has opened it, and locks it
// afterwards, detects that it is not the file of that name any more; see isCurrent.
func removeLock(path string, unlock func()) error {
	defer unlock()
	return os.Remove(path)
}

// syncDir waits until the rename of a file in the folder is on disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
