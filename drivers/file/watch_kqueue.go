//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package file

import (
	"fmt"
	"os"

	"github.com/fsnotify/fsnotify"
)

// maxWatchedFiles bounds the files of a folder that is watched. kqueue needs an open file for each
// of them, and the program needs open files, too.
const maxWatchedFiles = 512

// openWatch refuses a folder with many files: its waiters poll.
func openWatch(dir string) (*fsnotify.Watcher, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	if len(entries) > maxWatchedFiles {
		return nil, fmt.Errorf("the folder has %d files, and this system would need to open each of them: at most %d are watched", len(entries), maxWatchedFiles)
	}
	return openSystemWatch(dir)
}

func explainWatch(err error) error { return err }
