//go:build unix

package file

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// openOnly has open fail for a symbolic link, and not wait for a writer if the file is a pipe.
const openOnly = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// refuseLink does nothing: opening fails for a link.
func refuseLink(string) error { return nil }

func openFile(path string, flag int) (*os.File, error) {
	return os.OpenFile(path, flag|openOnly, 0o600)
}

// owner is the user to whom a file belongs.
func owner(info fs.FileInfo) (uid int, known bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}

func rename(_ context.Context, from, to string) error { return os.Rename(from, to) }

// removeLock removes a lock file while it is locked, so that whoever has opened it, and gets
// the lock afterwards, finds that it is not the file of that name any more.
func removeLock(path string, unlock func()) error {
	defer unlock()
	return os.Remove(path)
}

// syncDir waits until the disk has the renaming of a file in the folder.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
