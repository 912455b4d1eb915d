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

	"github.com/holdfast-go/holdfast/internal/lockstate"
)

// retryFlock is how often a taken NAME.lock is tried again. It is taken for a
// few milliseconds at a time. A blocking flock could not be given up when the
// context ends.
const retryFlock = 2 * time.Millisecond

// change lets fn read or change the state of a name while no other process does.
// fn reports whether it changed it.
func (l *Locker) change(ctx context.Context, name string, fn func(*lockstate.Lock, lockstate.Moment) (bool, error)) error {
	base := filepath.Join(l.dir, stem(name))
	unlock, err := lockFile(ctx, base+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	lock, err := l.load(base+".json", name)
	if err != nil {
		return err
	}
	now, err := l.clock.now()
	if err != nil {
		return fmt.Errorf("reading the clock: %w", err)
	}
	before := lock
	changed, err := fn(&lock, now)
	if err != nil || !changed {
		return err
	}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	// A crash of the machine ends every lease, so that a lost renewal or release
	// does no harm; a token or data must not get lost.
	durable := lock.Token != before.Token || string(lock.Data) != string(before.Data)
	return l.store(base, name, lock, durable)
}

// lockFile takes the flock on path, which is released by unlock or by the end
// of the process.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f := flock.New(path)
	switch _, err := f.TryLockContext(ctx, retryFlock); {
	case ctx.Err() != nil && err != nil:
		return nil, fmt.Errorf("waiting for %s: %w", path, ended(ctx))
	case err != nil:
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return func() { _ = f.Unlock() }, nil // closing the file releases it in any case
}

// load reads the state of a name; no record is the state of a free lock.
func (l *Locker) load(path, name string) (lockstate.Lock, error) {
	rec, err := readRecord(path)
	if errors.Is(err, fs.ErrNotExist) {
		return lockstate.Lock{}, nil
	}
	if err != nil {
		return lockstate.Lock{}, err
	}
	if rec.Name != name {
		return lockstate.Lock{}, fmt.Errorf("the record %s is that of lock %q, not of %q: was it copied?", path, rec.Name, name)
	}
	return l.here(path, rec)
}

// here judges a record by where and when it was written.
func (l *Locker) here(path string, rec record) (lockstate.Lock, error) {
	switch {
	case rec.Boot == l.clock.boot:
	case rec.Machine == l.clock.machine:
		rec.Holder, rec.Broken = "", false // of an earlier boot: its holder is gone
	default:
		return lockstate.Lock{}, fmt.Errorf("the record %s was written on another machine (%.40q, this is %s): "+
			"a folder serves the processes of one machine only; if that machine is gone, delete the record", path, rec.Machine, l.clock.machine)
	}
	return rec.Lock, nil
}

// store replaces the record. The temporary file has a fixed name: it is written
// under the flock only, and the next writer replaces what a crash left.
func (l *Locker) store(base, name string, lock lockstate.Lock, durable bool) error {
	content, err := record{Version: version, Name: name, Machine: l.clock.machine, Boot: l.clock.boot, Lock: lock}.encode()
	if err != nil {
		return err
	}
	tmp := base + ".tmp"
	if err := writeSynced(tmp, content); err != nil {
		_ = os.Remove(tmp) // the error that counts is the first
		return fmt.Errorf("writing the record: %w", err)
	}
	if err := os.Rename(tmp, base+".json"); err != nil {
		_ = os.Remove(tmp)
		return fmt.Errorf("replacing the record: %w", err)
	}
	if durable {
		if err := syncDir(l.dir); err != nil {
			return fmt.Errorf("saving the folder: %w", err)
		}
	}
	return nil
}

// writeSynced writes a file and waits until the disk has it, before it is
// renamed: otherwise a crash of the machine could leave it empty.
func writeSynced(path string, content []byte) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(content); err != nil {
		return err
	}
	return f.Sync()
}
