package file

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// openFunc watches a folder. From one goroutine it calls changed with the name of each file that has
// changed, and missed after a gap.
type openFunc func(dir string, changed changedFunc, missed func()) (*folderWatch, error)

// changedFunc takes the name of a file that has changed. freed says that the lock became free, perhaps only for a moment: other
// changes are not reported this way.
type changedFunc func(file string, freed bool)

// folderWatch is a watch in effect.
type folderWatch struct {
	ended chan error // has a value when the watch has ended by itself; capacity 1
	close func()     // ends it, and waits for its goroutine
}

// eventBuffer is the number of events that wait to be served.
const eventBuffer = 256

// openSystemWatch watches a folder on any system that fsnotify knows.
func openSystemWatch(dir string, changed changedFunc, missed func()) (*folderWatch, error) {
	events, err := fsnotify.NewBufferedWatcher(eventBuffer)
	if err != nil {
		return nil, err
	}
	if err := events.Add(dir); err != nil {
		return nil, errors.Join(&fs.PathError{Op: "watch", Path: dir, Err: err}, events.Close())
	}
	w := &folderWatch{ended: make(chan error, 1)}
	var reporting sync.WaitGroup
	reporting.Go(func() {
		if err := reportEvents(dir, events, changed, missed); err != nil {
			w.ended <- err
		}
	})
	w.close = func() {
		_ = events.Close() // waits for its goroutine
		reporting.Wait()
	}
	return w, nil
}

// reportEvents returns when the folder is gone, after a failure, or, without an error, when events is
// closed.
func reportEvents(dir string, events *fsnotify.Watcher, changed changedFunc, missed func()) error {
	for {
		select {
		case e, open := <-events.Events:
			switch {
			case !open:
				return nil
			case e.Name == dir && (e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)):
				return errFolderReplaced
			}
			changed(filepath.Base(e.Name), false)
		case err, open := <-events.Errors:
			switch {
			case !open:
				return nil
			case !errors.Is(err, fsnotify.ErrEventOverflow):
				return fmt.Errorf("watching the folder: %w", err)
			}
			missed()
		}
	}
}
