package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// A taken NAME.lock is tried again after a rest, which doubles: it is taken for a few
// milliseconds at a time, unless the process that has it was stopped. A blocking flock could
// not be given up when the context ends.
const (
	firstRest   = time.Millisecond
	longestRest = 32 * time.Millisecond
)

// disk is what is asked of the file system. Tests have it hang, and see what it is asked for.
type disk struct {
	open    func(path string, flag int) (*os.File, error)
	sync    func(*os.File) error
	syncDir func(dir string) error
}

func systemDisk() disk { return disk{open: openFile, sync: (*os.File).Sync, syncDir: syncDir} }

// change lets fn read or change the state of a name, and reports what it did. First fn sees
// the record as it is: a record is always whole, so that what changes nothing needs no lock,
// and no process can keep it from reading. What changes something is done again while no
// other process does. The first time the clock is read before the record: a process may be
// paused in between, and with a late reading a lease that is renewed meanwhile would look expired.
func (l *Locker) change(ctx context.Context, name string, fn func(*lockstate.Lock, lockstate.Moment) (bool, error)) error {
	base := filepath.Join(l.dir, stem(name))
	now, err := l.now()
	if err != nil {
		return err
	}
	rec, err := l.load(base+".json", name)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	if changed, err := fn(&rec.Lock, now); err != nil || !changed {
		return err
	}
	if missing { // without this token nothing is granted, and no lock file should be left
		if _, err := l.lastPruned(); err != nil {
			return err
		}
	}
	unlock, err := l.lockFile(ctx, base+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	rec, err = l.load(base+".json", name)
	if errors.Is(err, fs.ErrNotExist) {
		rec.Token, err = l.lastPruned()
	}
	if err != nil {
		return err
	}
	if now, err = l.now(); err != nil {
		return err
	}
	before := rec.Lock
	if changed, err := fn(&rec.Lock, now); err != nil || !changed {
		return err
	}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	// A crash of the machine ends every lease, so that a lost renewal or release
	// does no harm; a token or data must not get lost.
	granted := rec.Token != before.Token
	if granted {
		rec.Retention = l.settings.retention
	}
	rec.Used = now.Elapsed
	if err := l.store(ctx, base, name, rec, granted || string(rec.Data) != string(before.Data)); err != nil {
		return err
	}
	if granted {
		l.pruneSoon()
	}
	return nil
}

func (l *Locker) now() (lockstate.Moment, error) {
	now, err := l.clock.now()
	if err != nil {
		return lockstate.Moment{}, fmt.Errorf("reading the clock: %w", err)
	}
	return now, nil
}

// lockFile takes the flock on path, which is released by unlock or by the end of the process.
func (l *Locker) lockFile(ctx context.Context, path string) (unlock func(), err error) {
	if err := refuseLink(path); err != nil {
		return nil, explain(path, err)
	}
	f := flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR|openOnly), flock.SetPermissions(0o600))
	for rest := firstRest; ; {
		locked, err := f.TryLock()
		if err != nil {
			return nil, fmt.Errorf("locking %s: %w", path, explain(path, err))
		}
		if locked {
			current, err := isCurrent(f, path)
			if current {
				return func() { _ = f.Unlock() }, nil // closing the file releases it in any case
			}
			_ = f.Unlock()
			if err != nil {
				return nil, fmt.Errorf("locking %s: %w", path, err)
			}
			continue
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("another process has %s locked, for milliseconds unless it is stopped or its disk hangs: %w", path, ended(ctx))
		case <-time.After(rest):
			rest = min(2*rest, longestRest)
		}
	}
}

// isCurrent reports whether the locked file still is the one with that name. It may have been
// removed after it was opened and before it was locked (see prune): then others lock another.
func isCurrent(f *flock.Flock, path string) (bool, error) {
	locked, err := f.Stat()
	if err != nil {
		return false, err
	}
	if err := checkFile(path, locked); err != nil {
		return false, err
	}
	now, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(locked, now), err
}

// load reads the record of a name. Without one it is an error that matches fs.ErrNotExist.
func (l *Locker) load(path, name string) (record, error) {
	rec, err := l.readRecord(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(l.dir); err != nil {
			return record{}, fmt.Errorf("the folder is gone: %s", err.Error()) // which is more than a missing record
		}
	}
	if err != nil {
		return record{}, err
	}
	if rec.Name != name {
		return record{}, fmt.Errorf("the record %s is that of lock %q, not of %q: was it copied?", path, rec.Name, name)
	}
	return l.here(path, rec)
}

// here judges a record by where and when it was written.
func (l *Locker) here(path string, rec record) (record, error) {
	switch {
	case rec.Boot == l.clock.boot:
	case rec.Machine == l.clock.machine:
		rec.Holder, rec.Broken = "", false // of an earlier boot: its holder is gone
	default:
		return record{}, fmt.Errorf("the record %s was written on another machine (%.40q, this is %s): "+
			"a folder serves the processes of one machine only; if that machine is gone, delete the record", path, rec.Machine, l.clock.machine)
	}
	return rec, nil
}

// store replaces the record.
func (l *Locker) store(ctx context.Context, base, name string, rec record, durable bool) error {
	rec.Version, rec.Name, rec.Machine, rec.Boot = version, name, l.clock.machine, l.clock.boot
	content, err := rec.encode()
	if err != nil {
		return err
	}
	return l.replace(ctx, base, ".json", content, durable)
}

// replace replaces a file as a whole. The temporary file has a fixed name: it is written under
// the flock only, and the next writer replaces what a crash left.
func (l *Locker) replace(ctx context.Context, base, ending string, content []byte, durable bool) error {
	tmp := base + ".tmp"
	if err := l.writeSynced(tmp, content); err != nil {
		_ = os.Remove(tmp) // the error that counts is the first
		return fmt.Errorf("writing the record: %w", err)
	}
	if err := rename(ctx, tmp, base+ending); err != nil {
		_ = os.Remove(tmp)
		return fmt.Errorf("replacing the record: %w", err)
	}
	if durable {
		if err := l.disk.syncDir(l.dir); err != nil {
			return fmt.Errorf("saving the folder: %w", err)
		}
	}
	return nil
}

// writeSynced makes a file and waits until the disk has it, before it is renamed: otherwise a
// crash of the machine could leave it empty. What is there already is removed, never
// written: it may be a link that somebody else made.
func (l *Locker) writeSynced(path string, content []byte) (err error) {
	const only = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	f, err := l.disk.open(path, only)
	if errors.Is(err, fs.ErrExist) {
		if err := os.Remove(path); err != nil {
			return err
		}
		f, err = l.disk.open(path, only)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(content); err != nil {
		return err
	}
	return l.disk.sync(f)
}
