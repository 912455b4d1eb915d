package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/holdfast-go/holdfast"
)

// makeFolder makes the folder, for its owner alone, if it is missing.
func makeFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("holdfast: file: making the folder: %w", err)
	}
	for _, look := range []func(string) (fs.FileInfo, error){os.Lstat, os.Stat} { // a link, and where it leads
		info, err := look(dir)
		if err != nil {
			return fmt.Errorf("holdfast: file: %w", err)
		}
		if uid, known := owner(info); known {
			if err := checkFolder(dir, uid, os.Geteuid(), info.Mode()); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkFolder refuses a folder in which somebody else may remove or replace the driver's
// files: that would end exclusion. Who may write it by its group counts as trusted, since
// many systems give each user a group and let it write. In a folder like /tmp (mode 1777)
// everybody may make files, but only remove their own: the owner of each file is checked.
func checkFolder(dir string, uid, me int, mode fs.FileMode) error {
	switch {
	case uid != me && uid != 0:
		return &holdfast.InvalidError{Field: "folder", Value: fmt.Sprintf("%s of user %d", dir, uid),
			Rule: fmt.Sprintf("one that belongs to this process's user, %d, or to root: use another, or run the process as user %d", me, uid)}
	case mode.IsDir() && mode.Perm()&0o002 != 0 && mode&fs.ModeSticky == 0:
		return &holdfast.InvalidError{Field: "folder", Value: fmt.Sprintf("%s with mode %04o", dir, mode.Perm()),
			Rule: "one in which other users cannot replace files: chmod o-w, or chmod +t, helps"}
	}
	return nil
}

var errLink = errors.New("it is a symbolic link")

// explain says of an error in opening a file whether a link is in the way: systems differ in
// what they call that.
func explain(path string, err error) error {
	if info, e := os.Lstat(path); e == nil && info.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("%w: %s, not followed, since somebody else may have made it: remove it (%w)", errLink, path, err)
	}
	return err
}

// checkFile wants a file of the driver's own kind, made by the user of this process: in a
// folder like /tmp somebody else may have been quicker.
func checkFile(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file", path)
	}
	if uid, known := owner(info); known && uid != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d, and this process runs as user %d: all processes that use a folder run as one user", path, uid, os.Geteuid())
	}
	return nil
}
