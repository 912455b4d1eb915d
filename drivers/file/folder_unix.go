//go:build unix

package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// maxLinks is how many symbolic links a path may lead through.
const maxLinks = 40

// checkPath refuses a folder, given as an absolute path, if another user may replace it or its
// files. It goes down from the root of the file system as far as the folders exist. It checks
// each folder and each link on the way, since a user who may rename one of them replaces all
// that is below it.
func checkPath(dir string) error {
	const root = string(filepath.Separator)
	at, rest, links := root, strings.TrimPrefix(filepath.Clean(dir), root), 0
	info, err := os.Lstat(at)
	if err != nil {
		return driver.Errorf("file: checking the folder: %w", err)
	}
	rootUser, _ := owner(info)
	for {
		if uid, known := owner(info); known {
			if err := checkFolder(dir, at, uid, os.Geteuid(), rootUser, info.Mode()); err != nil {
				return err
			}
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			if links++; links > maxLinks {
				return driver.Errorf("file: checking the folder: %s leads through more than %d symbolic links", dir, maxLinks)
			}
			target, err := os.Readlink(at)
			if err != nil {
				return driver.Errorf("file: checking the folder: %w", err)
			}
			at, rest = filepath.Dir(at), target+root+rest
			if filepath.IsAbs(target) {
				at = root
			}
		}
		var next string
		if next, rest = cutFirst(rest); next == "" {
			return nil
		}
		at = filepath.Join(at, next) // resolves ".." too, since at has no links by now
		info, err = os.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return driver.Errorf("file: checking the folder: %w", err)
		}
	}
}

// cutFirst splits a path after its first name, which is empty if there is none.
func cutFirst(path string) (name, rest string) {
	path = strings.TrimLeft(path, string(filepath.Separator))
	name, rest, _ = strings.Cut(path, string(filepath.Separator))
	return name, rest
}

// checkFolder refuses the folder dir if at lets another user remove or replace files, which
// would end exclusion. at is dir itself or a folder or link on the way to it.
//
//   - Members of a folder's group are trusted, since many systems give each user a group that
//     may write.
//   - In a folder like /tmp (mode 1777) all users may create files but remove only their own.
//     The driver checks the owner of each file there.
//   - root is trusted, and also the owner of the root folder: in a user namespace root may
//     have no user number.
func checkFolder(dir, at string, uid, me, rootUser int, mode fs.FileMode) error {
	// Promise 1: a user who can replace lock files could let two processes hold one lock.
	place, end := dir, ""
	if at != dir {
		place, end = dir+", by way of "+at, ","
	}
	switch {
	case uid != me && uid != 0 && uid != rootUser:
		return refuseFolder(fmt.Sprintf("chown %d %s", me, quoteShell(at)), fmt.Sprintf("%s of user %d%s", place, uid, end),
			fmt.Sprintf("owned by user %d, who runs this process, or by root, and so must the folders above it, since the owner of a folder can "+
				"replace what is in it: "+
				"use another folder, chown %s, or run the process as user %d", me, at, uid))
	case mode.IsDir() && mode.Perm()&0o002 != 0 && mode&fs.ModeSticky == 0:
		return refuseFolder("chmod o-w "+quoteShell(at), fmt.Sprintf("%s with mode %04o%s", place, mode.Perm(), end),
			fmt.Sprintf("one in which other users cannot replace files, and so must the folders above it: chmod o-w %s, or chmod +t, helps", at))
	}
	return nil
}
