package file

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// makeFolder creates the folder if it is missing, accessible to its owner only. It checks the
// path before, so that nothing is created in a folder that another user controls, and again
// afterwards. Another folder is another set of locks, so none is made without a word.
func makeFolder(dir string, logger *slog.Logger) error {
	if err := checkPath(dir); err != nil {
		return err
	}
	err := os.MkdirAll(filepath.Dir(dir), 0o700)
	if err == nil {
		if err = os.Mkdir(dir, 0o700); err == nil {
			logger.Info("holdfast: there was no folder for locks, it was made", "backend", backend, "folder", dir)
		} else {
			err = os.MkdirAll(dir, 0o700) // succeeds if it is there
		}
	}
	if err != nil {
		return driver.Errorf("file: making the folder: %w", err)
	}
	if err := checkPath(dir); err != nil {
		return err
	}
	for _, name := range []string{prunedFile, prunedFile + ".lock"} { // every lock of the folder needs them
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		if err == nil {
			err = checkOwner(path, info)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return driver.Errorf("file: %w", explainDenied(dir, err))
		}
	}
	return nil
}

// explainDenied names the owner of a folder that this process's user may not use, such as one that root made, or the mode of its
// own folder.
func explainDenied(dir string, err error) error {
	if errors.Is(err, driver.ErrDenied) || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	info, statErr := os.Stat(dir)
	if statErr != nil {
		return err
	}
	uid, known := owner(info)
	if !known {
		return err
	}
	if uid == os.Geteuid() {
		if info.Mode().Perm()&0o700 == 0o700 { // another reason, such as the mode of the file
			return err
		}
		return driver.Denied(fmt.Errorf("the folder %s has mode %04o, which does not let its owner use it: chmod 700 %s (%w)", dir,
			info.Mode().Perm(), quoteShell(dir), err))
	}
	return driver.Denied(fmt.Errorf("the folder %s belongs to user %d (mode %04o), but this process runs as user %d, who may not use it: all "+
		"processes that use a folder must run as one user (%w)", dir, uid, info.Mode().Perm(), os.Geteuid(), err))
}

var errLink = errors.New("it is a symbolic link")

// explain adds to the error of opening a file that the file is a symbolic link, if it is one.
// The systems' own errors differ.
func explain(path string, err error) error {
	if info, e := os.Lstat(path); e == nil && info.Mode()&fs.ModeSymlink != 0 {
		return driver.Damaged(fmt.Errorf("%w: %s, which is not followed, since another user may have made it: remove it (%w)", errLink, path,
			err))
	}
	return err
}

// checkFile refuses a file that is not a regular file of this process's user. In a folder
// like /tmp another user may have made it first.
func checkFile(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return driver.Damaged(fmt.Errorf("%s is not a regular file", path))
	}
	return checkOwner(path, info)
}

// checkOwner refuses a file of another user.
func checkOwner(path string, info fs.FileInfo) error {
	if uid, known := owner(info); known && uid != os.Geteuid() {
		return driver.Denied(fmt.Errorf("%s belongs to user %d, but this process runs as user %d: all processes that use a folder must run as "+
			"one user", path, uid, os.Geteuid()))
	}
	return nil
}

// folderError is the error for a folder that other users could replace.
type folderError struct {
	*driver.InvalidError
	fix string // a command that helps
}

func refuseFolder(fix, value, rule string) error {
	return &folderError{driver.Invalid("folder", value, rule), fix}
}

func (e *folderError) Unwrap() error { return e.InvalidError }

// quoteShell quotes a path for a command that a person copies.
func quoteShell(path string) string {
	if strings.ContainsFunc(path, func(c rune) bool {
		return !strings.ContainsRune("/._-+@%:,", c) && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	}) {
		return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return path
}
