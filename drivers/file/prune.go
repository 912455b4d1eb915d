package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/lockstate"
)

const (
	defaultRetention = 24 * time.Hour
	minRetention     = time.Hour
	// pruneEvery is how often the processes of a folder together look for records to remove.
	pruneEvery = time.Hour
	// pruned, in the folder, is the file of the highest token that was removed: no lock's stem
	// begins with a dot. It was written when a process last looked for records to remove.
	pruned = ".pruned"
	// inUse is how long a prune waits for a lock file: who has it uses the lock.
	inUse = 50 * time.Millisecond
)

// pruneSoon prunes in the background if no process has done so for an hour. A failure is left
// to the next: nothing depends on it.
func (l *Locker) pruneSoon() {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.nextPrune) || l.closed {
		return
	}
	l.nextPrune = now.Add(pruneEvery)
	l.calls++ // Close waits for it
	go func() {
		defer l.leave()
		if info, err := os.Lstat(filepath.Join(l.dir, pruned)); err == nil && age(info) < pruneEvery {
			return
		}
		_, _ = l.prune(l.closing)
	}()
}

// age is how long ago a file was written, by the wall clock.
func age(info fs.FileInfo) time.Duration { return time.Since(info.ModTime()) }

// prune removes the records that nobody used for the retention, with their lock files, and
// returns how many. First the highest of their tokens is written down, so that later grants of
// these names have higher ones, whatever the clock does.
func (l *Locker) prune(ctx context.Context) (removed int, err error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return 0, fmt.Errorf("reading the folder: %w", err)
	}
	var idle []string
	var highest uint64
	for _, entry := range entries {
		if ctx.Err() != nil {
			return 0, ended(ctx)
		}
		base, ok := strings.CutSuffix(entry.Name(), ".json")
		if !ok {
			continue
		}
		if token, ok := l.unused(base); ok {
			idle, highest = append(idle, base), max(highest, token)
		}
	}
	if err := l.notePruned(ctx, highest); err != nil {
		return 0, err
	}
	var failed []error
	for _, base := range idle {
		if ctx.Err() != nil {
			return removed, ended(ctx)
		}
		done, err := l.remove(ctx, base, highest)
		if done {
			removed++
		}
		failed = append(failed, err)
	}
	return removed, errors.Join(failed...)
}

// unused reports whether nobody used a lock for the retention: its record was not written, and
// its lease, if it was not released, has ended that long ago. What cannot be read is no record
// of a lock, as far as anybody knows.
func (l *Locker) unused(base string) (token uint64, ok bool) {
	info, err := os.Lstat(filepath.Join(l.dir, base+".json"))
	if err != nil || age(info) < l.settings.retention {
		return 0, false
	}
	_, lock, err := l.loadStem(base)
	if err != nil {
		return 0, false
	}
	now, err := l.clock.now()
	if err != nil || lock.Held(now) || lock.Holder != "" && lock.Held(lockstate.Moment{Elapsed: now.Elapsed - l.settings.retention}) {
		return 0, false
	}
	return lock.Token, true
}

// remove removes the files of a lock, unless it is used meanwhile.
func (l *Locker) remove(ctx context.Context, base string, highest uint64) (removed bool, err error) {
	path := filepath.Join(l.dir, base)
	limited, cancel := context.WithTimeout(ctx, inUse)
	defer cancel()
	unlock, err := l.lockFile(limited, path+".lock")
	if err != nil {
		return false, err
	}
	if token, ok := l.unused(base); !ok || token > highest {
		unlock()
		return false, nil
	}
	if err := os.Remove(path + ".json"); err != nil {
		unlock()
		return false, err
	}
	_ = os.Remove(path + ".tmp") // of a crash, if there is one
	_ = removeLock(path+".lock", unlock)
	return true, nil
}

// notePruned writes down a token that is about to be removed, unless a higher one was.
func (l *Locker) notePruned(ctx context.Context, token uint64) error {
	base := filepath.Join(l.dir, pruned)
	unlock, err := l.lockFile(ctx, base+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	last, err := l.lastPruned()
	if err != nil {
		return err
	}
	return l.replace(ctx, base, "", strconv.AppendUint(nil, max(token, last), 10), true)
}

// lastPruned is the highest token that was ever removed from the folder.
func (l *Locker) lastPruned() (uint64, error) {
	path := filepath.Join(l.dir, pruned)
	content, err := l.read(path, 20)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	token, err := strconv.ParseUint(string(bytes.TrimSpace(content)), 10, 63)
	if err != nil {
		return 0, fmt.Errorf("the file %s is damaged: it should hold the highest token that was removed: "+
			"write a number in it that is as high as every token so far", path)
	}
	return token, nil
}
