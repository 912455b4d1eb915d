package file

import (
	"errors"
	"syscall"

	"golang.org/x/sys/windows"
)

// isDenied reports whether the system refuses a call until a person changes something. A file to which
// access is denied counts only after openInUse has tried for a while: another process may be about to
// replace or to delete it. A refused rename does not count, since any process that reads the record
// causes it.
func isDenied(err error) bool {
	var denied *deniedError
	return errors.As(err, &denied) || errors.Is(err, windows.ERROR_WRITE_PROTECT) || errors.Is(err, windows.ERROR_DISK_FULL) ||
		errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) || errors.Is(err, windows.ERROR_DISK_QUOTA_EXCEEDED)
}

// deniedError is the error of an open to which access was denied again and again.
type deniedError struct{ error }

func (e *deniedError) Unwrap() error { return e.error }

// noteDenied returns the error of the last of many attempts to open a file.
func noteDenied(err error) error {
	if errors.Is(err, syscall.ERROR_ACCESS_DENIED) {
		return &deniedError{err}
	}
	return err
}

func withAdvice(err error) error { return err }
