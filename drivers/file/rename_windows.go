package file

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/windows"
)

// A file that is in use is tried again after inUseBackoff. Another process needs a record for a
// moment at a time, to read or to replace it.
const (
	inUseBackoff = 2 * time.Millisecond
	maxOpen      = 2 * time.Second        // how long opening is tried
	maxDenied    = 500 * time.Millisecond // the same, if access is denied: it may be forbidden
)

// inUse reports whether a call failed because of what another process does with the file.
func inUse(err error) bool {
	return errors.Is(err, syscall.ERROR_ACCESS_DENIED) || errors.Is(err, windows.ERROR_SHARING_VIOLATION)
}

// rename tries again while another process has the file open, even for reading: Windows does
// not replace an open file.
func rename(ctx context.Context, from, to string) error {
	for {
		err := os.Rename(from, to)
		if !inUse(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(inUseBackoff):
		}
	}
}

// openInUse tries again while another process replaces the file: Windows does not open a file that
// is being renamed.
func openInUse(ctx context.Context, path string, flag int, perm os.FileMode) (*os.File, error) {
	for start := time.Now(); ; {
		f, err := os.OpenFile(path, flag, perm)
		limit := maxOpen
		if errors.Is(err, syscall.ERROR_ACCESS_DENIED) {
			limit = maxDenied
		}
		if !inUse(err) || time.Since(start) > limit {
			return f, noteDenied(err)
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(inUseBackoff):
		}
	}
}
