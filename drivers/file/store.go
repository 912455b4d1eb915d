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

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/lockstate"
	"github.com/holdfast-go/holdfast/driver/retry"
)

// A locked NAME.lock is tried again with a backoff that doubles. It stays locked for a few
// milliseconds at a time, unless the process that locked it was stopped. The first retry follows
// soon: where the replacement of the record wakes the waiter, it often comes just before the releaser
// has unlocked the file. A blocking flock could not be interrupted when the context ends.
const (
	minLockBackoff = 50 * time.Microsecond
	maxLockBackoff = 32 * time.Millisecond
)

// disk has the calls of the file system that tests replace.
type disk struct {
	open    func(ctx context.Context, path string, flag int) (*os.File, error)
	sync    func(*os.File) error
	syncDir func(dir string) error
	lock    func(*flock.Flock) (bool, error)
	unlock  func(*flock.Flock) error
}

func systemDisk() disk {
	return disk{open: openFile, sync: (*os.File).Sync, syncDir: syncDir, lock: (*flock.Flock).TryLock, unlock: (*flock.Flock).Unlock}
}

// change lets fn read or change the state of a name. fn reports whether it changed the state.
//
// fn runs first on the record as it is, without the lock file. A record is always whole, so a
// call that changes nothing needs no lock, and a stopped process cannot delay it. If fn
// changed the state, it runs again, on a record that is read while the lock file is locked, and
// the result is stored.
//
// Without the lock file the clock is read before the record. The process may be paused in
// between: with a later reading, a lease that was renewed in the meantime would look expired.
func (l *Locker) change(ctx context.Context, name string, fn func(*lockstate.Lock, lockstate.Moment) (bool, error)) (err error) {
	writes := false // it has begun to write the record: only then can anything have changed
	defer func() {
		if !writes {
			err = driverutil.Unsent(err)
		}
	}()
	base := filepath.Join(l.dir, stem(name))
	now, err := l.now()
	if err != nil {
		return err
	}
	rec, err := l.load(ctx, base+".json", name)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	if changed, err := fn(&rec.Lock, now); err != nil || !changed {
		return err
	}
	if missing { // a grant would fail without this token, and leave a lock file behind
		if _, err := l.prunedToken(ctx); err != nil {
			return err
		}
	}
	// Promise 1: one process at a time reads and replaces the record.
	unlock, err := l.lockFile(ctx, base+".lock")
	if err != nil {
		return err
	}
	freed := false
	defer func() {
		unlock()
		if freed { // the waiter comes at once, and finds the lock file unlocked
			signalFree(base + ".json")
		}
	}()
	rec, err = l.load(ctx, base+".json", name)
	missing = errors.Is(err, fs.ErrNotExist)
	if missing {
		// Promise 3: without a record, the next token is above all removed ones.
		rec.Token, err = l.prunedToken(ctx)
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
	// Promise 3: a token is on disk before its grant is reported. So are data. A renewal or a
	// release may get lost in a crash of the machine, which ends every lease.
	granted := rec.Token != before.Token
	if granted {
		rec.Retention = l.settings.retention
	}
	rec.Used = now.Elapsed
	if missing {
		rec.History = nil // the token is that of a removed record, perhaps of another lock
	}
	rec.KeepTenures(l.settings.history)
	writes = true
	if err := l.store(ctx, base, name, rec, granted || string(rec.Data) != string(before.Data)); err != nil {
		return err
	}
	freed = before.Holder != "" && !rec.Held(now) // readers whose leases have expired may still be there
	if granted {
		l.pruneSoon()
	}
	return nil
}

// now reads the clock.
func (l *Locker) now() (lockstate.Moment, error) {
	now, err := l.clock.now()
	if err != nil {
		return lockstate.Moment{}, fmt.Errorf("reading the clock: %w", err)
	}
	return now, nil
}

// lockFile locks the file at path until unlock is called or the process ends.
func (l *Locker) lockFile(ctx context.Context, path string) (unlock func(), err error) {
	if err := refuseLink(path); err != nil {
		return nil, explain(path, err)
	}
	f := flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR|openOnly), flock.SetPermissions(0o600))
	for tries := 0; ; tries++ {
		locked, err := l.disk.lock(f)
		if errors.Is(err, errors.ErrUnsupported) { // such as Lustre without the mount option flock
			return nil, driver.Denied(fmt.Errorf("locking %s: its file system has no file locks: use a folder on a local disk (%w)", path, err))
		}
		if err != nil {
			return nil, fmt.Errorf("locking %s: %w", path, explain(path, err))
		}
		if locked {
			current, err := isCurrent(f, path)
			if current {
				return func() { l.unlock(f) }, nil
			}
			l.unlock(f)
			if err != nil {
				return nil, fmt.Errorf("locking %s: %w", path, err)
			}
		}
		if !retry.Wait(ctx, retry.Delay(tries, minLockBackoff, maxLockBackoff)) {
			return nil, driver.Errorf("%s is locked by other calls, of this process or another; each takes milliseconds, unless its process is "+
				"stopped or its disk hangs: %w", path, ended(ctx))
		}
	}
}

// unlock unlocks a lock file and closes it. flock leaves the file open and locked if the system refuses, as FUSE does when a signal
// interrupts it. Then only the garbage collector would close it.
func (l *Locker) unlock(f *flock.Flock) {
	for range 3 {
		if l.disk.unlock(f) == nil {
			return
		}
	}
}

// isCurrent reports whether the locked file still is the one at path. A prune may have removed
// it after it was opened and before it was locked. Other processes then lock a new file.
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

// load reads the record of a name. If there is none, the error matches fs.ErrNotExist.
func (l *Locker) load(ctx context.Context, path, name string) (record, error) {
	rec, err := l.readRecord(ctx, path)
	if errors.Is(err, fs.ErrNotExist) {
		if gone := l.folderGone(); gone != nil {
			return record{}, gone
		}
	}
	if err != nil {
		return record{}, err
	}
	if rec.Name != name {
		return record{}, driver.Damaged(fmt.Errorf("the record %s is that of lock %q, not of %q: was it copied?", path, rec.Name, name))
	}
	return l.checkOrigin(path, rec)
}

// checkOrigin refuses a record of another machine, and frees one that is certainly of an earlier boot.
//
// Containers may have boot IDs of their own, so another boot ID does not prove that the holder's boot has ended. A reading of the clock
// that is still ahead proves it: the clock starts at 0 with the kernel. Without that proof the record is judged like one of this boot: the
// lease of a holder that lives is respected, and one of an earlier boot delays others for its TTL at most.
func (l *Locker) checkOrigin(path string, rec record) (record, error) {
	switch {
	case rec.Boot == l.clock.boot:
	case rec.Machine == l.clock.machine:
		now, err := l.now() // after the record was read, so that a holder that lives cannot be ahead
		if err != nil {
			return record{}, err
		}
		if rec.Used > now.Elapsed || rec.Holder != "" && rec.Expires < now.Elapsed-time.Minute {
			// Also a lease that is long over by its reading: nobody knows on which boot's clock, so nobody knows when.
			rec.End(driver.EndExpired, time.Time{})
		} else {
			rec.Boot = l.clock.boot
		}
	case l.clock.byHostName && rec.Holder == "": // the name may have changed, and there is no lease to judge
	default:
		// Promise 1: the clock of another machine cannot judge the lease, so nothing is granted.
		return record{}, driver.Damaged(fmt.Errorf("the record %s was written on another machine (%.40q, this is %s): a folder serves the "+
			"processes of one machine only, whose containers need its /etc/machine-id; if that machine is gone or was renamed, delete the record",
			path, rec.Machine, l.clock.machine))
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

// replace replaces a file as a whole. The temporary file has a fixed name, since only the
// process that has the lock file locked writes it. The next writer replaces what a crash left.
func (l *Locker) replace(ctx context.Context, base, ending string, content []byte, durable bool) error {
	tmp := base + ".tmp"
	if err := l.writeSynced(ctx, tmp, content); err != nil {
		_ = os.Remove(tmp) // only the first error matters
		return fmt.Errorf("writing the record: %w", err)
	}
	if err := rename(ctx, tmp, base+ending); err != nil {
		_ = os.Remove(tmp)
		return fmt.Errorf("replacing the record: %w", err)
	}
	if durable {
		if err := l.disk.syncDir(l.dir); err != nil {
			return &unsavedError{err}
		}
	}
	return nil
}

// unsavedError: the record is replaced, but a crash of the machine may undo it. So the outcome is
// unknown, whatever the cause.
type unsavedError struct{ cause error }

func (e *unsavedError) Error() string { return "saving the folder: " + e.cause.Error() }
func (e *unsavedError) Unwrap() error { return e.cause }

// writeSynced creates a file and waits until it is on disk. Without waiting, a crash of the
// machine after the rename could leave an empty file. An existing file is removed and never
// written to: it may be a link that another user made.
func (l *Locker) writeSynced(ctx context.Context, path string, content []byte) (err error) {
	const createNew = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	f, err := l.disk.open(ctx, path, createNew)
	if errors.Is(err, fs.ErrExist) {
		if err := os.Remove(path); err != nil {
			return err
		}
		f, err = l.disk.open(ctx, path, createNew)
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
