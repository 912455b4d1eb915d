package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/waitqueue"
	"github.com/holdfast-go/holdfast/test/locktest"
)

const waitLimit = time.Minute

// watchName counts the calls of wake, and has a channel that gets a value for the latest of them.
func watchName(l *Locker, name string) (woken <-chan struct{}, calls *atomic.Int64, stop func()) {
	c, calls := make(chan struct{}, 1), new(atomic.Int64)
	return c, calls, l.watcher.Wake(name, "", func(up driver.Wakeup) {
		if up.Kind == driver.WakingEnded {
			return
		}
		calls.Add(1)
		select {
		case c <- struct{}{}:
		default:
		}
	})
}

func awaitWake(t *testing.T, woken <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-woken:
	case <-time.After(waitLimit):
		t.Fatalf("no wake: %s", what)
	}
}

var eventually = locktest.Eventually

// watchedLocker returns a Locker of a folder, what it logs, and the watches of the system that it
// opened.
func watchedLocker(t *testing.T, dir string) (l *Locker, log *locktest.Log, opened *openedWatches) {
	t.Helper()
	logger, log := locktest.NewLog()
	opened = &openedWatches{}
	l, err := New(dir, WithLogger(logger))
	if err != nil {
		t.Fatal(err)
	}
	l.watcher.open = opened.open
	t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) }) // waits for a prune, which writes to the folder
	return l, log, opened
}

// lingering changes how long a folder that nobody needs stays watched.
func lingering(l *Locker, linger time.Duration) {
	open := l.watcher.open
	l.watcher = newWatcherWith(l, l.watcher.logger, linger)
	l.watcher.open = open
}

// openedWatches opens watches of the system, or fails with err.
type openedWatches struct {
	mu     sync.Mutex
	all    []*folderWatch
	missed func() // of the last one
	err    error
}

func (o *openedWatches) open(dir string, changed changedFunc, missed func()) (*folderWatch, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return nil, o.err
	}
	w, err := openWatch(dir, changed, missed)
	o.all, o.missed = append(o.all, w), missed
	return w, err
}

func (o *openedWatches) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
}

func (o *openedWatches) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.all)
}

func (o *openedWatches) last() (w *folderWatch, missed func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all[len(o.all)-1], o.missed
}

// awaitServed returns when a Locker has served all changes of its folder so far: the wake-up for a later change of a name of its own
// comes after theirs.
func awaitServed(t *testing.T, l *Locker, name string) {
	t.Helper()
	path := filepath.Join(l.dir, name+".json")
	write(t, path, "no record")
	later, _, stop := watchName(l, name)
	defer stop()
	awaitWake(t, later, "the watch is in effect")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	awaitWake(t, later, "a later change of another name")
}

// A waiter is woken by a release, a break, a removal and the first of the readers, whom others may join, and not by renewals, written
// data, grants, or what happens to other locks.
func TestWatchWakesWhenALockMayBeFree(t *testing.T) {
	t.Parallel()
	// Both on Linux, so that the one of the other systems is tested there, too.
	for way, open := range map[string]openFunc{"this system's way": openWatch, "fsnotify": openSystemWatch} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			testWatchWakes(t, open, way == "fsnotify")
		})
	}
}

func testWatchWakes(t *testing.T, open openFunc, anyChange bool) {
	dir := t.TempDir()
	holder, _, _ := watchedLocker(t, dir)
	l, _, _ := watchedLocker(t, dir)
	l.watcher.open = open
	lease := mustAcquire(t, holder, request("first"))
	woken, calls, stop := watchName(l, lease.Name)
	defer stop()
	awaitWake(t, woken, "the watch is in effect")
	names := 0
	served := func() {
		t.Helper()
		names++
		awaitServed(t, l, fmt.Sprint("later-", names))
	}
	reads := func(id string) driver.Request {
		req := request(id)
		req.Mode, req.Data = driver.Shared, nil
		return req
	}
	var reader driver.Lease
	unseen := func() error { // the record of a reader comes at once in place of what is there
		elsewhere, file := t.TempDir(), stem(lease.Name)+".json"
		other, _, _ := watchedLocker(t, elsewhere)
		reader = mustAcquire(t, other, reads("reader"))
		err := os.Rename(filepath.Join(elsewhere, file), filepath.Join(dir, file))
		signalFree(filepath.Join(dir, file)) // of the release
		return err
	}
	steps := []struct {
		what  string
		wakes bool
		do    func() error
	}{
		{"renewal", false, func() error { return errOf(holder.Renew(t.Context(), lease)) }},
		{"data", false, func() error {
			return holder.WriteData(t.Context(), lease, bytes.Repeat([]byte("x"), limits.MaxData), driver.DataRevision{Token: lease.Token})
		}},
		{"renewal with much data", false, func() error { return errOf(holder.Renew(t.Context(), lease)) }},
		{"break", false, func() error { return holder.Break(t.Context(), lease.Name, driver.BreakAnybody()) }},
		{"release", true, func() error { return holder.Release(t.Context(), lease) }},
		{"grant", false, func() (err error) { lease, err = holder.TryAcquire(t.Context(), request("second")); return err }},
		{"break, now", true, func() error { return holder.BreakNow(t.Context(), lease.Name, driver.BreakAnybody()) }},
		{"grant", false, func() (err error) { lease, err = holder.TryAcquire(t.Context(), request("third")); return err }},
		{"removal", true, func() error { return os.Remove(filepath.Join(dir, stem(lease.Name)+".json")) }},
		{"grant", false, func() (err error) { lease, err = holder.TryAcquire(t.Context(), request("fourth")); return err }},
		{"a reader, when the release before it was not seen", true, unseen},
		{"renewal of the reader", false, func() error { return errOf(holder.Renew(t.Context(), reader)) }},
		{"another reader", false, func() error { return errOf(holder.TryAcquire(t.Context(), reads("joins"))) }},
		{"release of one reader", false, func() error { return holder.Release(t.Context(), reader) }},
		{"a reader, when a writer before it was not seen", true, unseen},
		{"release of the last reader", true, func() error { return holder.Release(t.Context(), reader) }},
		{"reader", runtime.GOOS != "linux" || anyChange, func() (err error) {
			reader, err = holder.TryAcquire(t.Context(), reads("next"))
			return err
		}},
		{"release of the reader", true, func() error { return holder.Release(t.Context(), reader) }},
		{"grant", false, func() (err error) { lease, err = holder.TryAcquire(t.Context(), request("fifth")); return err }},
		{"damage", runtime.GOOS != "linux" || anyChange, func() error {
			return os.WriteFile(filepath.Join(dir, stem(lease.Name)+".json"), []byte("no record"), 0o600)
		}},
	}
	for _, step := range steps {
		served()
		before := calls.Load()
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		served()
		if wakes := calls.Load() != before; wakes != step.wakes {
			t.Errorf("%s: the waiter was woken: %t, want %t", step.what, wakes, step.wakes)
		}
	}
}

// All waiters of a Locker share one watch of the system. It is closed after the last of them, by a
// goroutine that Close waits for.
func TestWatchSharesOneWatchOfTheSystem(t *testing.T) {
	t.Parallel()
	l, _, opened := watchedLocker(t, t.TempDir())
	lingering(l, 20*time.Millisecond)
	added := make(chan struct{}) // only a watch that was there before is woken once when the folder is watched
	l.watcher.open = func(dir string, changed changedFunc, missed func()) (*folderWatch, error) {
		<-added
		return opened.open(dir, changed, missed)
	}
	const names = 2000
	var all []<-chan struct{}
	var stops []func()
	for i := range names {
		woken, _, stop := watchName(l, fmt.Sprint("name-", i))
		all, stops = append(all, woken), append(stops, stop)
	}
	close(added)
	for _, woken := range all {
		awaitWake(t, woken, "the watch is in effect")
	}
	req := request("x")
	req.Name = "name-1234"
	mustRelease(t, l, mustAcquire(t, l, req))
	awaitWake(t, all[1234], "release")
	for i, woken := range all {
		select {
		case <-woken:
			if i != 1234 { // whose grant and release may wake it once more
				t.Errorf("the waiter for name-%d was woken", i)
			}
		default:
		}
	}
	if n := opened.count(); n != 1 {
		t.Errorf("%d watches of the system for %d names", n, names)
	}
	running := l.watcher.Running
	if !running() {
		t.Error("the goroutine has ended while there are waiters")
	}
	for _, stop := range stops {
		stop()
		stop()
	}
	eventually(t, "the watch of the system is closed", func() bool { return !running() })
	woken, _, stop := watchName(l, "again")
	awaitWake(t, woken, "the watch is in effect again")
	if n := opened.count(); n != 2 {
		t.Errorf("%d watches of the system, want a second one", n)
	}
	if err := l.Close(t.Context()); err != nil || running() {
		t.Errorf("Close with a waiter: %v; the goroutine runs: %v", err, running())
	}
	stop()
	_, calls, stop := watchName(l, "late")
	stop()
	if calls.Load() > 0 || running() {
		t.Error("a closed Locker watches")
	}
}

// If the system's queue of events overflows, events are lost, and every waiter is woken. So is
// every waiter after another failure, as soon as the folder is watched again.
func TestWatchWakesEverybodyAfterAGap(t *testing.T) {
	t.Parallel()
	for what, gap := range map[string]struct {
		happen func(w *folderWatch, missed func())
		opened int
	}{
		"overflow":      {func(_ *folderWatch, missed func()) { missed() }, 1},
		"other failure": {func(w *folderWatch, _ func()) { w.ended <- errors.New("broken by the test") }, 2},
	} {
		l, log, opened := watchedLocker(t, t.TempDir())
		a, _, stopA := watchName(l, "a")
		b, _, stopB := watchName(l, "b")
		awaitWake(t, a, "the watch is in effect")
		awaitWake(t, b, "the watch is in effect")
		gap.happen(opened.last())
		awaitWake(t, a, what)
		awaitWake(t, b, what)
		if n := opened.count(); n != gap.opened {
			t.Errorf("%s: %d watches of the system, want %d", what, n, gap.opened)
		}
		if strings.Count(log.String(), "\n") > 0 {
			t.Errorf("%s was logged although the folder is watched again", what)
		}
		stopA()
		stopB()
	}
}

// A folder that is removed or replaced is watched again once it is there.
func TestWatchOfAFolderThatIsReplaced(t *testing.T) {
	t.Parallel()
	for what, replace := range map[string]func(dir string) error{
		"removed":         os.RemoveAll,
		"renamed":         func(dir string) error { return os.Rename(dir, dir+".old") },
		"renamed far up":  func(dir string) error { return os.Rename(filepath.Dir(dir), filepath.Dir(dir)+".old") },
		"removed, far up": func(dir string) error { return os.RemoveAll(filepath.Dir(dir)) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "up", "locks")
			l, log, _ := watchedLocker(t, dir)
			lingering(l, 20*time.Millisecond) // how often the folder is compared
			woken, calls, stop := watchName(l, "n")
			defer stop()
			awaitWake(t, woken, "the watch is in effect")
			if err := replace(dir); err != nil {
				t.Fatal(err)
			}
			eventually(t, "a warning", func() bool { return strings.Count(log.String(), "level=WARN") == 1 })
			before := calls.Load()
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			eventually(t, "a wake after the gap", func() bool { return calls.Load() > before })
			eventually(t, "a line that all is well", func() bool { return strings.Count(log.String(), "watched again") == 1 })
			lease := mustAcquire(t, l, request("first"))
			before = calls.Load()
			mustRelease(t, l, lease)
			eventually(t, "a wake by a release", func() bool { return calls.Load() > before })
			if strings.Count(log.String(), "level=WARN") != 1 {
				t.Error("more than one warning")
			}
		})
	}
}

// Where the folder cannot be watched, waiters are not told that it is, and one warning names the
// limit of the system. Tries to watch keep to a backoff, however often waiters come.
func TestWatchThatFails(t *testing.T) {
	t.Parallel()
	l, log, opened := watchedLocker(t, t.TempDir())
	opened.fail(os.NewSyscallError("inotify_init1", syscall.EMFILE))
	tries := atomic.Int64{}
	l.watcher.open = func(dir string, changed changedFunc, missed func()) (*folderWatch, error) {
		tries.Add(1)
		return opened.open(dir, changed, missed)
	}
	began := time.Now()
	woken, calls, stop := watchName(l, "n")
	defer stop()
	eventually(t, "a warning", func() bool { return strings.Count(log.String(), "level=WARN") == 1 })
	for busy := time.Now(); time.Since(busy) < 500*time.Millisecond; {
		_, _, stop := watchName(l, "m")
		stop()
		time.Sleep(time.Millisecond)
	}
	n, took := tries.Load(), time.Since(began)
	most := int64(1)
	for backoff, sum := waitqueue.FirstRetry/2, waitqueue.FirstRetry/2; sum <= took; most++ {
		backoff = min(2*backoff, longestRetry)
		sum += backoff
	}
	if n > most {
		t.Errorf("%d tries within %v, want at most %d", n, took, most)
	}
	if calls.Load() > 0 || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("%d calls of wake, %d lines of log", calls.Load(), strings.Count(log.String(), "\n"))
	}
	opened.fail(nil)
	awaitWake(t, woken, "the watch is in effect after all")
}

// Where a watch needs an open file for each file of the folder, a folder that grows too large is no
// longer watched, and is watched again once it is small.
func TestWatchOfAFolderThatGrows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, log, opened := watchedLocker(t, dir)
	lingering(l, 20*time.Millisecond)
	l.watcher.limit = 10
	woken, _, stop := watchName(l, "n")
	defer stop()
	awaitWake(t, woken, "the watch is in effect")
	file := func(i int) string { return filepath.Join(dir, fmt.Sprint("file", i)) }
	for i := range 11 {
		write(t, file(i), "")
	}
	eventually(t, "a warning", func() bool { return strings.Count(log.String(), "more than 10 files") == 1 })
	inEffect := func() bool { return !l.watcher.OpenSince().IsZero() }
	if n := opened.count(); inEffect() || n != 1 {
		t.Errorf("the folder is watched: %v, by %d watches", inEffect(), n)
	}
	if err := os.Remove(file(0)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the watch is in effect again", inEffect)
}
