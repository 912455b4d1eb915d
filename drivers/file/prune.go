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

	"github.com/holdfast-go/holdfast/driver"
)

const (
	defaultRetention = 24 * time.Hour
	minRetention     = time.Hour
	// pruneEvery is how often the processes of a folder prune, all of them together.
	pruneEvery = time.Hour
	// prunedFile has the highest token that was removed from the folder. Each prune writes it.
	// Its name begins with a dot, which no lock's stem does.
	prunedFile = ".pruned"
	// pruneLockWait is how long a prune waits for a lock file. A file that stays locked longer
	// belongs to a lock in use.
	pruneLockWait = 50 * time.Millisecond
)

// pruneSoon prunes in the background, unless a process has done so within the last hour or this
// Locker is pruning already. A failure is ignored: nothing depends on a prune, and the next one
// tries again.
func (l *Locker) pruneSoon() {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.nextPrune) || l.pruning {
		return
	}
	l.nextPrune = now.Add(pruneEvery)
	l.pruning = l.calls.Go(func() {
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.pruning = false
		}()
		if info, err := os.Lstat(filepath.Join(l.dir, prunedFile)); err == nil && age(info) < pruneEvery {
			return
		}
		_, _ = l.prune(l.calls.Context())
	})
}

// age returns how long ago a file was written, by the wall clock.
func age(info fs.FileInfo) time.Duration { return time.Since(info.ModTime()) }

// prune removes the records that were not used for the retention, with their lock files, and
// returns how many it removed. It also removes lock files without a record, which a crash or a
// failed acquire leaves.
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
			if token, ok := l.isUnused(ctx, base); ok {
				idle, highest = append(idle, base), max(highest, token)
			}
		} else if base, ok := strings.CutSuffix(entry.Name(), ".lock"); ok && l.isOrphan(base, entry) {
			idle = append(idle, base)
		}
	}
	// Promise 3: the highest token is stored before its record is removed, so later grants of
	// these names get higher tokens, whatever the clock does.
	if err := l.storePrunedToken(ctx, highest); err != nil {
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

// isUnused reports whether a lock was not used for the retention, the record's or this
// process's, whichever is longer. This means all of the following:
//
//   - The record was written that long ago, by the wall clock.
//   - For a record of this boot, the clock that judges expiry agrees.
//   - For a record of this boot, a lease that was not released expired that long ago.
//
// A file that cannot be read may not be a record at all, and counts as used.
func (l *Locker) isUnused(ctx context.Context, base string) (token uint64, ok bool) {
	info, err := os.Lstat(filepath.Join(l.dir, base+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, true // removed in the meantime
	}
	if err != nil || age(info) < l.settings.retention {
		return 0, false
	}
	rec, err := l.loadStem(ctx, base)
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

// isOrphan reports whether a file is a lock file that is older than the retention and has no
// record. A lock file is empty: the folder may have files of other programs that end with
// .lock. The driver removes a lock file last, so a temporary file without one is not the
// driver's.
func (l *Locker) isOrphan(base string, entry fs.DirEntry) bool {
	info, err := entry.Info()
	if err != nil || info.Size() > 0 || age(info) < l.settings.retention || !isStem(base) {
		return false
	}
	return !exists(filepath.Join(l.dir, base+".json"))
}

// exists reports false only if there certainly is no such file.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// remove removes the files of a lock, unless the lock is in use again.
func (l *Locker) remove(ctx context.Context, base string, highest uint64) (removed bool, err error) {
	path := filepath.Join(l.dir, base)
	limited, cancel := context.WithTimeout(ctx, pruneLockWait)
	defer cancel()
	unlock, err := l.lockFile(limited, path+".lock")
	if err != nil {
		return false, err
	}
	if token, ok := l.isUnused(ctx, base); !ok || token > highest {
		unlock()
		return false, nil
	}
	err = os.Remove(path + ".json")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		unlock()
		return false, err
	}
	_ = os.Remove(path + ".tmp") // a crash may have left it
	_ = removeLock(path+".lock", unlock)
	return err == nil, nil
}

// storePrunedToken stores a token that is about to be removed, unless a higher one is stored.
func (l *Locker) storePrunedToken(ctx context.Context, token uint64) error {
	ctx, cancel := context.WithTimeout(ctx, l.callLimit)
	defer cancel()
	base := filepath.Join(l.dir, prunedFile)
	unlock, err := l.lockFile(ctx, base+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	last, err := l.prunedToken(ctx)
	if err != nil {
		return err
	}
	return l.replace(ctx, base, "", strconv.AppendUint(nil, max(token, last), 10), true)
}

// prunedToken returns the highest token that was ever removed from the folder.
func (l *Locker) prunedToken(ctx context.Context) (uint64, error) {
	path := filepath.Join(l.dir, prunedFile)
	content, err := l.read(ctx, path, 20)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	token, err := strconv.ParseUint(string(bytes.TrimSpace(content)), 10, 63)
	if err != nil {
		return 0, driver.Damaged(fmt.Errorf("the file %s is damaged, which should contain the highest token that was removed: "+
			"write a number into it that is at least as high as every token so far", path))
	}
	return token, nil
}
