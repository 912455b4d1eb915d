//go:build !unix

package file

import (
	"io/fs"
	"os"
)

// openOnly is empty, for want of a flag with which open fails for a symbolic link.
const openOnly = 0

// refuseLink looks before the file is opened: somebody who may write the folder could put a
// link there in between.
func refuseLink(path string) error {
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return &os.PathError{Op: "open", Path: path, Err: errLink}
	}
	return nil
}

func openFile(path string, flag int) (*os.File, error) {
	if err := refuseLink(path); err != nil {
		return nil, err
	}
	return os.OpenFile(path, flag, 0o600)
}

// checkPath checks nothing: see owner.
func checkPath(string) error { return nil }

// owner is unknown: the permissions of these systems are not those of a mode and an owner.
func owner(fs.FileInfo) (uid int, known bool) { return 0, false }

// removeLock first gives the lock back, since a file that is open cannot be removed. If
// another process has opened it meanwhile the removal fails for the same reason.
func removeLock(path string, unlock func()) error {
	unlock()
	return os.Remove(path)
}

// syncDir does nothing: Windows has no call for it, and NTFS journals renames.
func syncDir(string) error { return nil }
