package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// makeFolder makes the folder, for its owner alone, if it is missing. It checks the folders above
// before, so that nothing is made where another user decides, and all of them afterwards.
func makeFolder(dir string) error {
	if err := checkPath(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("holdfast: file: making the folder: %w", err)
	}
	if err := checkPath(dir); err != nil {
		return err
	}
	for _, name := range []string{pruned, pruned + ".lock"} { // which every lock of the folder needs
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		if err == nil {
			err = checkOwner(path, info)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("holdfast: file: %w", err)
		}
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
	return checkOwner(path, info)
}

func checkOwner(path string, info fs.FileInfo) error {
	if uid, known := owner(info); known && uid != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d, and this process runs as user %d: all processes that use a folder run as one user", path, uid, os.Geteuid())
	}
	return nil
}
