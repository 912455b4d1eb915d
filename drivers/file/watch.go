package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
	"github.com/holdfast-go/holdfast/driver/waitqueue"
)

// longestRetry is the longest backoff: a failed attempt to watch a folder disturbs nobody.
const longestRetry = 5 * time.Second

// watcher is the [driver.Waker] of a Locker: one watch of the system on the folder, for all
// names, while there are waiters.
//
// An event of the system says that a file has changed, and not how. So the record is read after
// its file has changed, and waiters are woken only if the lock is not held. The record of a name
// for which nobody waits is not read.
type watcher struct {
	*waitqueue.Follower // its names are stems
	locker              *Locker
	logger              *slog.Logger
	open                openFunc      // tests replace it
	limit               int           // maxWatchedFiles, lower in tests
	check               time.Duration // how often the folder is checked, and whether it is still needed; shorter in tests
	warned              bool          // whether the present failure was logged; used by the Follower's goroutine only
	head                []byte        // the beginning of a record; used by the goroutine that reports changes
}

func newWatcher(l *Locker, logger *slog.Logger) *watcher {
	return newWatcherWith(l, logger, waitqueue.Linger)
}

func newWatcherWith(l *Locker, logger *slog.Logger, linger time.Duration) *watcher {
	w := &watcher{locker: l, logger: logger, open: openWatch, limit: maxWatchedFiles, check: linger, head: make([]byte, headSize)}
	w.Follower = waitqueue.NewFollower(l.calls.Context(), waitqueue.Source{
		Open:   func(context.Context) (waitqueue.Events, error) { return w.openFolder() },
		Opened: w.report,
		Go:     l.calls.Go,
	}, waitqueue.Settings{LongestRetry: longestRetry, Linger: linger})
	return w
}

// Wake implements [driver.Waker]. A folder has no queues, so each release wakes every waiter.
func (w *watcher) Wake(name string, _ driver.WaiterID, wake func(driver.Wakeup)) (stop func()) {
	return w.Follower.Wake(stem(name), "", wake)
}

var errFolderReplaced = errors.New("the folder was removed or replaced")

// folderEvents are the changes in a folder that is watched.
type folderEvents struct {
	*folderWatch
	watcher *watcher
	before  os.FileInfo
}

func (w *watcher) openFolder() (waitqueue.Events, error) {
	dir := w.locker.dir
	before, err := os.Stat(dir)
	if err == nil {
		err = w.checkSize()
	}
	if err != nil {
		return nil, err
	}
	shared := map[string]uint64{}
	folder, err := w.open(dir, func(file string, freed bool) { w.fileChanged(file, freed, shared) }, w.Gap)
	if err != nil {
		return nil, err
	}
	return folderEvents{folder, w, before}, nil
}

// Next implements [waitqueue.Events]. The changes come from a goroutine of the folder's watch.
func (e folderEvents) Next(ctx context.Context) error {
	check := time.NewTimer(e.watcher.check)
	defer check.Stop()
	select {
	case err := <-e.ended:
		return err
	case <-check.C:
	case <-ctx.Done():
		return nil
	}
	// The system reports neither an unmount nor that a folder above was renamed.
	if now, err := os.Stat(e.watcher.locker.dir); err != nil || !os.SameFile(e.before, now) {
		return errFolderReplaced
	}
	return e.watcher.checkSize()
}

// Close implements [waitqueue.Events].
func (e folderEvents) Close() { e.close() }

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

// fileChanged wakes the waiters of the lock to which a file belongs, if a request may be granted. shared has the locks that had
// readers when their records were last read, each with its token then.
func (w *watcher) fileChanged(file string, freed bool, shared map[string]uint64) {
	base, isRecord := strings.CutSuffix(file, ".json")
	if !isRecord {
		return
	}
	if !w.Watched(base) {
		delete(shared, base)
		return
	}
	holder, token := w.holder(base)
	if holder == lockstate.Shared {
		// Readers who have waited for a writer may join the first one who was faster. Each change of a lock that stays shared would wake all.
		if before, stays := shared[base]; freed || !stays || token != before && w.readersFollow(base, before) {
			holder = ""
		}
		shared[base] = token
	} else {
		delete(shared, base)
	}
	if holder == "" {
		w.Event(base, "", 0)
	}
}

// readersFollow reports whether none of the readers of a lock is among those who had it when its token was this one. Then a writer
// can have had it in between, for less time than an event takes.
func (w *watcher) readersFollow(base string, token uint64) bool {
	rec, err := w.locker.readRecord(w.locker.calls.Context(), filepath.Join(w.locker.dir, base+".json"))
	return err == nil && len(rec.Readers) > 0 && rec.Readers[0].Token > token
}

// A record of this driver has the holder within its first headSize bytes, as a line of its own. No
// text in a record has a line break or a quotation mark as it is.
const headSize = 16 << 10

var (
	holderLine  = []byte("\n  \"holder\": \"")
	expiresLine = []byte("\n  \"expiresNanoseconds\": ")
	tokenLine   = []byte("\n  \"token\": ")
)

// holder returns what the beginning of a record names as the holder of its lock, or "" if a request is worth
// sending: the lock is free, also if readers whose leases have expired are still named, or the file is no record, and the request
// returns the error to its caller. It also returns the token. This costs a fraction of decoding the record, whose data may be large.
func (w *watcher) holder(base string) (holder string, token uint64) {
	f, err := w.locker.disk.open(w.locker.calls.Context(), filepath.Join(w.locker.dir, base+".json"), os.O_RDONLY)
	if err != nil {
		return "", 0
	}
	defer func() { _ = f.Close() }() // nothing was written
	n, err := io.ReadFull(f, w.head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", 0
	}
	value := func(line []byte, end string) string {
		_, value, _ := bytes.Cut(w.head[:n], line)
		value, _, _ = bytes.Cut(value, []byte(end))
		return string(value)
	}
	token, _ = strconv.ParseUint(value(tokenLine, ","), 10, 64) // 0 in what is no record
	ends, err := strconv.ParseInt(value(expiresLine, ","), 10, 64)
	if now, failed := w.locker.now(); err == nil && failed == nil && int64(now.Elapsed) >= ends {
		return "", token
	}
	return value(holderLine, `"`), token
}

// report logs once that the folder cannot be watched, and once that it is watched again.
func (w *watcher) report(err error) {
	switch {
	case err == nil && w.warned:
		w.warned = false
		w.logger.Info("holdfast: the folder is watched again", "folder", w.locker.dir)
	case errors.Is(err, fs.ErrNotExist) && w.locker.absent.Load(): // it is not gone: nobody has made it yet
	case err != nil && !w.warned && w.locker.calls.Context().Err() == nil:
		w.warned = true
		w.logger.Warn("holdfast: the folder cannot be watched, waiters poll for released locks", "folder", w.locker.dir, "error",
			explainWatch(err))
	}
}
