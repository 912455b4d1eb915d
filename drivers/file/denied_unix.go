//go:build unix

package file

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// isDenied reports whether the system refuses a call until a person changes something.
func isDenied(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.ENOSPC) ||
		errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) || errors.Is(err, syscall.EMFILE)
}

// withAdvice says which limit of the process an error is about.
func withAdvice(err error) error {
	switch {
	case errors.Is(err, syscall.EFBIG):
		return fmt.Errorf("%w; raise this process's limit of file sizes (ulimit -f)", err)
	case errors.Is(err, syscall.EMFILE):
		return fmt.Errorf("%w; raise this process's limit of open files (ulimit -n)", err)
	}
	return err
}
