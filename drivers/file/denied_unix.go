//go:build unix

package file

import (
	"errors"
	"io/fs"
	"syscall"
)

// isDenied reports whether the system refuses a call until a person changes something.
func isDenied(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.ENOSPC) ||
		errors.Is(err, syscall.EDQUOT)
}
