// Package gooselock makes database migrations of github.com/pressly/goose/v3 run on one instance at a
// time, with a lock of a Holdfast backend. It serves databases that goose itself cannot lock, and
// several databases that one lock is to protect. It needs no dependency: goose's interfaces are
// met structurally.
//
//	locker, err := gooselock.NewLocker(client, "migrations")
//	provider, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithLocker(locker))
//	ctx, stop := locker.Context(ctx)
//	defer stop()
//	_, err = provider.Up(ctx)
//
// # What the lock guarantees
//
// goose waits for the lock, runs what is still to be migrated, and unlocks, even if its context
// has ended. An instance that waited finds nothing left to do. A migration may take any length of
// time: the lock is renewed in the background. After a crash the next instance continues within
// one TTL.
//
// If the lock is lost, Unlock returns an error that matches [holdfast.ErrLost], which goose
// returns, too. With [Locker.Context] also the context of the migration ends, before another
// instance can begin: database/sql then rolls back its transaction. A migration without a
// transaction may still leave half of its work, as after any crash. The database does not check
// the fencing token, so an instance that is paused for longer than its lease can commit late.
package gooselock

import (
	"context"
	"database/sql"
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/internal/namedlock"
)

// Locker is goose's Locker and SessionLocker, for goose.WithLocker or goose.WithSessionLocker.
// Both do the same: the lock belongs to no database connection. All methods are safe for
// concurrent use.
type Locker struct {
	locks *namedlock.Set
	name  string
}

// NewLocker makes a Locker for the lock of this name. It starts nothing. The error is an
// *[holdfast.InvalidError] if the backend does not allow the name.
func NewLocker(client *holdfast.Client, name string, opts ...holdfast.Option) (*Locker, error) {
	locks, err := namedlock.New(client, 0, opts...)
	if err != nil {
		return nil, err
	}
	if err := locks.CheckName(name); err != nil {
		return nil, err
	}
	return &Locker{locks, name}, nil
}

// Lock waits until it has the lock. ctx bounds only the waiting. goose calls it.
func (l *Locker) Lock(ctx context.Context, _ *sql.DB) error { return l.lock(ctx) }

// Unlock releases the lock. The error matches [holdfast.ErrLost] if it was lost before. A
// release that fails is repeated in the background and reported to the Client's observers.
func (l *Locker) Unlock(ctx context.Context, _ *sql.DB) error { return l.locks.Unlock(ctx, l.name) }

// SessionLock is Lock.
func (l *Locker) SessionLock(ctx context.Context, _ *sql.Conn) error { return l.lock(ctx) }

// SessionUnlock is Unlock.
func (l *Locker) SessionUnlock(ctx context.Context, _ *sql.Conn) error {
	return l.locks.Unlock(ctx, l.name)
}

func (l *Locker) lock(ctx context.Context) error {
	held, err := l.locks.Lock(ctx, l.name)
	if err != nil {
		return err
	}
	cancel, watched := ctx.Value(watchKey{l}).(context.CancelCauseFunc)
	if !watched {
		return nil
	}
	hold := held.Context()
	context.AfterFunc(hold, func() {
		if err := context.Cause(hold); !errors.Is(err, holdfast.ErrReleased) {
			cancel(err)
		}
	})
	return nil
}

type watchKey struct{ locker *Locker }

// Context returns a context for the calls of a goose Provider. It ends when the lock that such a
// call has taken is lost, or the Client is shut down, with that cause. It descends from ctx. Call
// stop when the calls are over.
func (l *Locker) Context(ctx context.Context) (watched context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	return context.WithValue(ctx, watchKey{l}, cancel), func() { cancel(nil) }
}
