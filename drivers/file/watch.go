package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// watchLinger is how long the folder stays watched after its last watch ends. Where waiters
	// of one process follow each other, the next one finds it watched.
	watchLinger = 5 * time.Second

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
	open   openFunc      // tests replace it
	limit  int           // maxWatchedFiles, lower in tests
	linger time.Duration // watchLinger, shorter in tests
	warned bool          // whether the present failure was logged; used by run only
	head   []byte        // the beginning of a record; used by the goroutine that reports changes

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
	return &watcher{
		locker: l, logger: logger, open: openWatch, limit: maxWatchedFiles, linger: watchLinger, head: make([]byte, headSize),
		watches: map[string]map[*watch]struct{}{},
	}
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
	if err == nil {
		err = w.checkSize()
	}
	var folder *folderWatch
	if err == nil {
		folder, err = w.open(dir, w.fileChanged, w.missedChanges)
	}
	w.report(err)
	if err != nil {
		return err
	}
	defer folder.close()
	w.setInEffect(true)
	defer w.setInEffect(false)
	wakeAll(w.allWatches())
	check := time.NewTicker(w.linger)
	defer check.Stop()
	for {
		select {
		case err := <-folder.ended:
			return err
		case <-check.C:
			if w.idle() {
				return nil
			}
			// The system reports neither an unmount nor that a folder above was renamed.
			if now, err := os.Stat(dir); err != nil || !os.SameFile(before, now) {
				return errFolderReplaced
			}
			if err := w.checkSize(); err != nil {
				return err
			}
		case <-w.locker.closing.Done():
			return nil
		}
	}
}

// checkSize returns an error if the folder has more files than this system can watch: its waiters
// poll.
func (w *watcher) checkSize() error {
	if w.limit == 0 {
		return nil
	}
	folder, err := os.Open(w.locker.dir)
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }() // nothing was written
	names, err := folder.Readdirnames(w.limit + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if len(names) > w.limit {
		return fmt.Errorf("the folder has more than %d files, and this system would need to open each of them", w.limit)
	}
	return nil
}

// missedChanges wakes every waiter, since any name's change may not have been reported.
func (w *watcher) missedChanges() { wakeAll(w.allWatches()) }

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
	f, err := w.locker.disk.open(w.locker.closing, filepath.Join(w.locker.dir, base+".json"), os.O_RDONLY)
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
