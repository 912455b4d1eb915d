package file

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

func openWatch(dir string) (*fsnotify.Watcher, error) { return openSystemWatch(dir) }

// explainWatch adds to an error of inotify which limit was reached; see inotify(7).
func explainWatch(err error) error {
	switch {
	case errors.Is(err, syscall.EMFILE):
		return fmt.Errorf("%w (the limit of open files, or of inotify instances of this user: sysctl fs.inotify.max_user_instances)", err)
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w (the limit of inotify watches of this user: sysctl fs.inotify.max_user_watches)", err)
	}
	return err
}
