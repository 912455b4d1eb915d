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

// pruneSoon prunes in the background if no process has done so for an hour, and if no prune of
// this Locker is at work. A failure is left to the next: nothing depends on it.
func (l *Locker) pruneSoon() {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.nextPrune) || l.pruning || l.closed {
		return
	}
	l.nextPrune, l.pruning = now.Add(pruneEvery), true
	l.calls++ // Close waits for it
	go func() {
		defer l.leave()
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.pruning = false
		}()
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
// these names have higher ones, whatever the clock does. Lock files without a record, which a
// crash leaves or an acquire that failed, go too.
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
		if base, ok := strings.CutSuffix(entry.Name(), ".json"); ok {
			if token, ok := l.unused(base); ok {
				idle, highest = append(idle, base), max(highest, token)
			}
		} else if base, ok := strings.CutSuffix(entry.Name(), ".lock"); ok && l.orphan(base, entry) {
			idle = append(idle, base)
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

// unused reports whether nobody used a lock for the retention, the record's or this process's,
// whichever is longer: its record was not written, and its lease, if it was not released, ended
// that long ago. The wall clock tells how old the file is; for a record of this boot the clock
// that nobody sets must agree. What cannot be read may be no record at all, and stays.
func (l *Locker) unused(base string) (token uint64, ok bool) {
	info, err := os.Lstat(filepath.Join(l.dir, base+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, true // removed meanwhile
	}
	if err != nil || age(info) < l.settings.retention {
		return 0, false
	}
	rec, err := l.loadStem(base)
	if err != nil {
		return 0, false
	}
	now, err := l.now()
	if err != nil {
		return 0, false
	}
	retention := max(rec.Retention, l.settings.retention)
	last := rec.Used
	if rec.Holder != "" {
		last = max(last, rec.Expires)
	}
	if age(info) < retention || rec.Boot == l.clock.boot && now.Elapsed-last < retention {
		return 0, false
	}
	return rec.Token, true
}

// orphan reports whether a lock file has no record, and had none for the retention. A lock file
// is empty: the folder may hold those of other programs. A temporary file without a lock file
// is not the driver's, which removes the lock file last.
func (l *Locker) orphan(base string, entry fs.DirEntry) bool {
	info, err := entry.Info()
	if err != nil || info.Size() > 0 || age(info) < l.settings.retention || !isStem(base) {
		return false
	}
	return !exists(filepath.Join(l.dir, base+".json"))
}

// exists is false only if there certainly is no such file.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
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
	err = os.Remove(path + ".json")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		unlock()
		return false, err
	}
	_ = os.Remove(path + ".tmp") // of a crash, if there is one
	_ = removeLock(path+".lock", unlock)
	return err == nil, nil
}

// notePruned writes down a token that is about to be removed, unless a higher one was.
func (l *Locker) notePruned(ctx context.Context, token uint64) error {
	ctx, cancel := context.WithTimeout(ctx, ownLimit)
	defer cancel()
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
