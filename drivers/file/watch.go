package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// watchLinger is how long the folder stays watched after its last watch ends. Where waiters
	// of one process follow each other, the next one finds it watched.
	watchLinger = 5 * time.Second

	// eventBuffer is the number of events that wait for run: it serves many at a time.
	eventBuffer = 256

	firstRetry   = 100 * time.Millisecond
	longestRetry = 5 * time.Second
)

// watcher is the [driver.Watcher] of a Locker: one watch of the system on the folder, for all
// names, while there are waiters. Waiters poll as well, so it only makes them faster.
//
// An event of the system says that a file has changed, and not how. So the record is read after
// its file has changed, and waiters are woken only if the lock is not held. The record of a name
// for which nobody waits is not read.
type watcher struct {
	locker *Locker
	logger *slog.Logger
	open   func(dir string) (*fsnotify.Watcher, error) // tests replace it
	linger time.Duration                               // watchLinger, shorter in tests
	warned bool                                        // whether the present failure was logged; used by run only
	head   []byte                                      // the beginning of a record; used by run only

	mu        sync.Mutex                     // guards the fields below; never held across I/O
	watches   map[string]map[*watch]struct{} // by stem
	idleSince time.Time                      // when the last watch ended
	running   bool                           // whether the goroutine of run exists
	inEffect  bool                           // whether the folder is watched
}

// watch is one waiter's.
type watch struct {
	wake    func()
	stopped atomic.Bool
}

// wakeAll must be called without the watcher's mutex, since a waiter may stop its watch.
func wakeAll(watches []*watch) {
	for _, one := range watches {
		if !one.stopped.Load() {
			one.wake()
		}
	}
}

func newWatcher(l *Locker, logger *slog.Logger) *watcher {
	return &watcher{locker: l, logger: logger, open: openWatch, linger: watchLinger, head: make([]byte, headSize), watches: map[string]map[*watch]struct{}{}}
}

// Watch implements [driver.Watcher].
func (w *watcher) Watch(name string, wake func()) (stop func()) {
	base, one := stem(name), &watch{wake: wake}
	if w.add(base, one) {
		wake()
	}
	return func() { w.remove(base, one) }
}

// add reports whether the folder is watched already.
func (w *watcher) add(base string, one *watch) (inEffect bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.running {
		if !w.locker.enter() { // Close waits for run
			return false
		}
		w.running = true
		go w.run()
	}
	if w.watches[base] == nil {
		w.watches[base] = map[*watch]struct{}{}
	}
	w.watches[base][one] = struct{}{}
	return w.inEffect
}

func (w *watcher) remove(base string, one *watch) {
	one.stopped.Store(true)
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, there := w.watches[base][one]; !there {
		return
	}
	delete(w.watches[base], one)
	if len(w.watches[base]) == 0 {
		delete(w.watches, base)
	}
	if len(w.watches) == 0 {
		w.idleSince = time.Now()
	}
}

func (w *watcher) watchesOf(base string) []*watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.watches[base]))
}

func (w *watcher) allWatches() (all []*watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, watches := range w.watches {
		all = slices.AppendSeq(all, maps.Keys(watches))
	}
	return all
}

// setInEffect records whether the folder is watched.
func (w *watcher) setInEffect(inEffect bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inEffect = inEffect
}

// isIdle reports whether the folder need not be watched any more; mu is held.
func (w *watcher) isIdle() bool {
	return w.locker.closing.Err() != nil || len(w.watches) == 0 && time.Since(w.idleSince) > w.linger
}

// idle is isIdle without mu.
func (w *watcher) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isIdle()
}

// keepRunning reports whether run continues. After false, the next watch starts another
// goroutine.
func (w *watcher) keepRunning() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = !w.isIdle()
	return w.running
}

// run watches the folder while there are waiters. After a failure it always waits for the
// backoff, so that frequent waiters do not bypass it.
func (w *watcher) run() {
	defer w.locker.leave()
	for failures := 0; w.keepRunning(); {
		began := time.Now()
		err := w.watchFolder()
		if err == nil {
			continue // keepRunning decides
		}
		if time.Since(began) > 2*longestRetry {
			failures = 0
		}
		select {
		case <-time.After(min(firstRetry<<min(failures, 16), longestRetry)):
			failures++
		case <-w.locker.closing.Done():
		}
	}
}

var errFolderReplaced = errors.New("the folder was removed or replaced")

// watchFolder watches the folder until that fails or is not needed any more. An error that ends
// a watch in effect is logged only if the folder cannot be watched again.
func (w *watcher) watchFolder() error {
	dir := w.locker.dir
	before, err := os.Stat(dir)
	var events *fsnotify.Watcher
	if err == nil {
		events, err = w.open(dir)
	}
	w.report(err)
	if err != nil {
		return err
	}
	defer func() { _ = events.Close() }() // waits for its goroutine
	w.setInEffect(true)
	defer w.setInEffect(false)
	wakeAll(w.allWatches())
	check := time.NewTicker(w.linger)
	defer check.Stop()
	for {
		select {
		case e := <-events.Events:
			if e.Name == dir && (e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)) {
				return errFolderReplaced
			}
			w.fileChanged(filepath.Base(e.Name))
		case err := <-events.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watching the folder: %w", err)
			}
			wakeAll(w.allWatches()) // any name's event may be missing
		case <-check.C:
			if w.idle() {
				return nil
			}
			// The system reports neither an unmount nor that a folder above was renamed.
			if now, err := os.Stat(dir); err != nil || !os.SameFile(before, now) {
				return errFolderReplaced
			}
		case <-w.locker.closing.Done():
			return nil
		}
	}
}

// fileChanged wakes the waiters of the lock to which a file belongs, if the lock may be free.
func (w *watcher) fileChanged(file string) {
	base, isRecord := strings.CutSuffix(file, ".json")
	if !isRecord {
		return
	}
	if watches := w.watchesOf(base); len(watches) > 0 && w.mayBeFree(base) {
		wakeAll(watches)
	}
}

// A record of this driver has the holder within its first headSize bytes, as a line of its own. No
// text in a record has a line break or a quotation mark as it is.
const headSize = 16 << 10

var holderLine = []byte("\n  \"holder\": \"")

// mayBeFree reports whether a request for a lock is worth sending: unless the beginning of its
// record names a holder. This costs a fraction of decoding the record, whose data may be large. A
// lease that has expired needs no wake-up, and any other file that is no record with a holder
// leads to a request, which returns the error to its caller.
func (w *watcher) mayBeFree(base string) bool {
	f, err := w.locker.disk.open(filepath.Join(w.locker.dir, base+".json"), os.O_RDONLY)
	if err != nil {
		return true
	}
	defer func() { _ = f.Close() }() // nothing was written
	n, err := io.ReadFull(f, w.head)
	return err != nil && !errors.Is(err, io.ErrUnexpectedEOF) || !bytes.Contains(w.head[:n], holderLine)
}

// report logs once that the folder cannot be watched, and once that it is watched again.
func (w *watcher) report(err error) {
	switch {
	case err == nil && w.warned:
		w.warned = false
		w.logger.Info("holdfast: the folder is watched again", "folder", w.locker.dir)
	case err != nil && !w.warned && w.locker.closing.Err() == nil:
		w.warned = true
		w.logger.Warn("holdfast: the folder cannot be watched, waiters poll for released locks", "folder", w.locker.dir, "error", explainWatch(err))
	}
}

// openSystemWatch watches a folder by the means of the system.
func openSystemWatch(dir string) (*fsnotify.Watcher, error) {
	events, err := fsnotify.NewBufferedWatcher(eventBuffer)
	if err != nil {
		return nil, err
	}
	if err := events.Add(dir); err != nil {
		return nil, errors.Join(&fs.PathError{Op: "watch", Path: dir, Err: err}, events.Close())
	}
	return events, nil
}
