package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/holdfast-go/holdfast/driver"
)

// openForReading makes a Locker on a folder that may be missing, or belong to another user. What another
// user could replace there can only be shown wrongly.
func openForReading(_ context.Context, rawURL string) (driver.Locker, error) {
	l, err := openBare(rawURL)
	if err != nil {
		return nil, err
	}
	l.forReading = true
	l.absent.Store(true) // until something was read
	return l, nil
}

// openBare makes a Locker on the folder of a URL, and changes nothing there.
func openBare(rawURL string) (*Locker, error) {
	dir, opts, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	clock, err := systemClock()
	if err != nil {
		return nil, driver.Errorf("file: reading the system's clock: %w", err)
	}
	return bareLocker(dir, clock, opts...)
}

// MissingStore says which folder does not exist, for [driver.MissingStore].
func (l *Locker) MissingStore(ctx context.Context) (string, error) {
	missing := ""
	found, err := result(func(set func(bool)) error {
		return l.call(ctx, "look for the folder", "", nil, func(context.Context) error {
			_, err := os.Stat(l.dir)
			set(!errors.Is(err, fs.ErrNotExist))
			return nil
		})
	})
	if err == nil && !found {
		missing = "the folder " + l.dir
	}
	return missing, err
}

// checkReadable refuses a file that is not a regular file, and one of another user, unless this Locker
// only reads.
func (l *Locker) checkReadable(path string, info fs.FileInfo) error {
	if l.forReading && info.Mode().IsRegular() {
		return nil
	}
	return checkFile(path, info)
}

// explainUnreadable adds to the error of a Locker that only reads why its folder may not be used. Another has been told by [New].
func (l *Locker) explainUnreadable(err error) error {
	if !l.forReading {
		return err
	}
	return explainDenied(l.dir, err)
}

// folderGone is the error if there is no folder any more. For a Locker that only reads, there may never
// have been one: its locks are free. A folder that it has seen must not look empty when it is gone.
func (l *Locker) folderGone() error {
	_, err := os.Stat(l.dir)
	switch {
	case err == nil:
		l.absent.Store(false)
		return nil
	case l.absent.Load() && errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return fmt.Errorf("the folder is gone: %s", driver.ErrorText(err)) // must not match fs.ErrNotExist
}
