//go:build !unix

package file

import (
	"context"
	"io/fs"
	"os"
)

// openOnly is empty, since these systems have no flag that makes open fail for a symbolic link.
const openOnly = 0

// refuseLink checks before the file is opened. A user who may write the folder could put a
// link there in between.
func refuseLink(path string) error {
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return &os.PathError{Op: "open", Path: path, Err: errLink}
	}
	return nil
}

func openFile(ctx context.Context, path string, flag int) (*os.File, error) {
	if err := refuseLink(path); err != nil {
		return nil, err
	}
	return openInUse(ctx, path, flag, 0o600)
}

// checkPath checks nothing, since owner is unknown.
func checkPath(string) error { return nil }

// owner is unknown, since these systems do not express permissions by a mode and an owner.
func owner(fs.FileInfo) (uid int, known bool) { return 0, false }

// removeLock unlocks the file first, since a file that is open cannot be removed. If another
// process has opened the file in the meantime, the removal fails for the same reason.
func removeLock(path string, unlock func()) error {
	unlock()
	return os.Remove(path)
}

// syncDir does nothing: Windows has no call for it, and NTFS journals renames.
func syncDir(string) error { return nil }

func (l *Locker) examineMode(f findings, _ fs.FileInfo) {
	f.Unchecked(subjectMode, "", "this system has no owners and modes: keep the folder where other users cannot write")
}
