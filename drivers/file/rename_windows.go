package file

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/windows"
)

// rename tries again while another process has the file open, even for reading: Windows does
// not replace an open file.
func rename(ctx context.Context, from, to string) error {
	for {
		err := os.Rename(from, to)
		if !errors.Is(err, syscall.ERROR_ACCESS_DENIED) && !errors.Is(err, windows.ERROR_SHARING_VIOLATION) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(2 * time.Millisecond):
		}
	}
}
