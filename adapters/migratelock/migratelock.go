// Package migratelock makes database migrations of github.com/golang-migrate/migrate/v4 run on one
// instance at a time, with a lock of a Holdfast backend. It serves databases that golang-migrate
// does not lock for several processes, such as SQLite, and several databases that one lock is to
// protect. It needs no dependency: golang-migrate's interface is met structurally.
//
//	driver, err := sqlite3.WithInstance(db, &sqlite3.Config{})
//	locked, err := migratelock.New[database.Driver](client, "migrations", driver, 10*time.Minute)
//	m, err := migrate.NewWithInstance("iofs", files, "sqlite3", locked)
//	m.LockTimeout = 11 * time.Minute // longer than the wait
//	err = m.Up()
//	_, _ = m.Close()
//
// # What the lock guarantees
//
// Instances that start together wait for each other, and find nothing left to do
// (migrate.ErrNoChange). A migration may take any length of time: the lock is renewed in the
// background. After a crash the next instance goes on within one TTL; as after any crash,
// golang-migrate may then find the database dirty, and refuse to work until its version was
// forced.
//
// golang-migrate passes no context to a migration, so a loss of the lock cannot stop one that
// runs. No further migration begins: the error matches [holdfast.ErrLost]. If golang-migrate had
// recorded the next version as dirty already, the error names the version to force, unless another
// instance has run that migration meanwhile. If the loss came in the last migration, the
// migrate.Migrate cannot lock again: make a new one after this error. The database does not check
// the fencing token, so an instance that is paused for longer than its lease can go on with one
// migration.
package migratelock

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/internal/namedlock"
	"github.com/holdfast-go/holdfast/driver"
)

// Driver is golang-migrate's database.Driver, if D is database.Driver.
type Driver[D any] interface {
	Open(url string) (D, error)
	Close() error
	Lock() error
	Unlock() error
	Run(migration io.Reader) error
	SetVersion(version int, dirty bool) error
	Version() (version int, dirty bool, err error)
	Drop() error
}

// Locked is a Driver whose Lock and Unlock are those of a Holdfast lock. It passes everything
// else on.
type Locked[D Driver[D]] struct {
	driver D
	locks  *namedlock.Set
	name   string
	wait   time.Duration
	closed context.Context // ends with Close
	end    context.CancelFunc

	mu       sync.Mutex      // never held across I/O
	held     *namedlock.Held // nil unless this database has the lock
	reported bool            // Run, SetVersion or Drop has returned its loss
	clean    *int            // the version that was recorded as clean last; nil if that is not known
	planned  bool            // a version is recorded as dirty, and its migration has not begun
}

// unlockLimit bounds how long Unlock waits for the release, which goes on without it.
const unlockLimit = 30 * time.Second

// New makes a Locked for a driver, with the lock of this name. Lock waits for up to wait. The
// LockTimeout of migrate.Migrate, 15 s by default, must be longer than wait. Otherwise
// golang-migrate can give up while Lock still waits. If Lock then gets the lock, nobody releases it
// before Close. New starts nothing. The error is an *[holdfast.InvalidError] if the backend does
// not allow the name, or wait is not positive.
func New[D Driver[D]](client *holdfast.Client, name string, database D, wait time.Duration, opts ...holdfast.Option) (*Locked[D], error) {
	if any(database) == nil {
		return nil, driver.Invalid("database", "nil", "a database.Driver")
	}
	if wait <= 0 {
		return nil, driver.Invalid("wait", driver.FormatDuration(wait), "more than 0")
	}
	locks, err := namedlock.New(client, 0, opts...)
	if err != nil {
		return nil, err
	}
	if err := locks.CheckName(name); err != nil {
		return nil, err
	}
	return newLocked(database, locks, name, wait), nil
}

func newLocked[D Driver[D]](database D, locks *namedlock.Set, name string, wait time.Duration) *Locked[D] {
	closed, end := context.WithCancel(context.Background())
	return &Locked[D]{driver: database, locks: locks, name: name, wait: wait, closed: closed, end: end}
}

// Open opens another database with the driver. It has the same lock, so one of the two waits for
// the other.
func (l *Locked[D]) Open(url string) (D, error) {
	opened, err := l.driver.Open(url)
	if err != nil {
		return opened, err
	}
	locked, ok := any(newLocked(opened, l.locks, l.name, l.wait)).(D)
	if !ok {
		return opened, driver.Invalid("type of the driver", "concrete", "database.Driver, so that Open can return a Locked")
	}
	return locked, nil
}

// Close releases the lock, if this database has it, ends a Lock that waits, and closes the
// database.
func (l *Locked[D]) Close() error {
	l.end()
	if held := l.take(); held != nil {
		_ = release(held) // a loss was reported to the Client's observers
	}
	return l.driver.Close()
}

// Lock waits until it has the lock. The error matches [holdfast.ErrHeld] if another has it for
// longer than the wait given to New, and context.Canceled after Close.
func (l *Locked[D]) Lock() error {
	ctx, cancel := context.WithTimeout(l.closed, l.wait)
	defer cancel()
	held, err := l.locks.Lock(ctx, l.name)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.held, l.reported = held, false
	l.mu.Unlock()
	if l.closed.Err() == nil { // otherwise Close may have looked before the grant
		return nil
	}
	if held := l.take(); held != nil {
		_ = release(held)
	}
	return driver.Errorf("lock %q: %w", l.name, l.closed.Err())
}

// Unlock releases the lock. The error matches [holdfast.ErrLost] if it was lost before, unless Run,
// SetVersion or Drop has returned the loss: after an error of Unlock a migrate.Migrate returns
// migrate.ErrLocked forever. The error is an *[holdfast.InvalidError] if this database does not
// have the lock. A release that fails is repeated in the background and reported to the Client's
// observers.
func (l *Locked[D]) Unlock() error {
	l.mu.Lock()
	reported := l.reported
	l.mu.Unlock()
	held := l.take()
	if held == nil {
		return namedlock.NotLocked(l.name)
	}
	if err := release(held); !reported || !errors.Is(err, holdfast.ErrLost) {
		return err
	}
	return nil
}

// take returns this database's hold, which the caller releases.
func (l *Locked[D]) take() *namedlock.Held {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := l.held
	l.held = nil
	return held
}

func release(held *namedlock.Held) error {
	ctx, cancel := context.WithTimeout(context.Background(), unlockLimit)
	defer cancel()
	return held.Unlock(ctx)
}

// Run runs a migration, unless the lock was lost: another instance may be at it. If a version is
// recorded as dirty for it, the error says that it has not run here, which nobody can see in the database.
func (l *Locked[D]) Run(migration io.Reader) error {
	lost := l.stillHeld("run a migration")
	l.mu.Lock()
	clean, planned := l.clean, l.planned
	l.planned = false
	l.mu.Unlock()
	switch {
	case lost == nil:
		return l.driver.Run(migration)
	case planned && clean != nil: // -1 of none
		return driver.Errorf("%w; the database is marked as dirty, and this instance has not run the migration: unless another has, "+
			"force version %d", lost, *clean)
	}
	return lost
}

// SetVersion records a version. golang-migrate records it as dirty before a migration, and as
// clean after it. The first is refused if the lock was lost; the second records what was done.
func (l *Locked[D]) SetVersion(version int, dirty bool) error {
	if dirty {
		if err := l.stillHeld("begin a migration"); err != nil {
			return err
		}
	}
	err := l.driver.SetVersion(version, dirty)
	l.note(version, dirty, dirty, err)
	return err
}

// Version returns the version of the database.
func (l *Locked[D]) Version() (version int, dirty bool, err error) {
	version, dirty, err = l.driver.Version()
	l.note(version, dirty, false, err)
	return version, dirty, err
}

// note notes a version that was recorded or read.
func (l *Locked[D]) note(version int, dirty, planned bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.planned = planned; err == nil && !dirty {
		l.clean = &version
	}
}

// Drop deletes everything in the database, unless the lock was lost.
func (l *Locked[D]) Drop() error {
	if err := l.stillHeld("drop"); err != nil {
		return err
	}
	return l.driver.Drop()
}

// stillHeld returns an error if the lock was lost. Without a lock it returns nil: golang-migrate
// calls nothing that changes the database before Lock, but a program may.
func (l *Locked[D]) stillHeld(what string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		return nil
	}
	if hold, ok := holdfast.HoldFromContext(l.held.Context()); ok && hold.Err() != nil {
		l.reported = true
		return driver.Errorf("%s under %q: %w", what, l.name, hold.Err())
	}
	return nil
}
