// Package certmagiclock gives github.com/caddyserver/certmagic, and with it Caddy, the locks of a
// Holdfast backend: in a cluster one instance obtains each certificate. It needs no dependency:
// certmagic's interfaces are met structurally.
//
// A certmagic Storage stores certificates and also locks names. A [Storage] takes the storing
// from another Storage, such as certmagic.FileStorage on a shared volume or one for S3, and the
// locking from a [Locker]:
//
//	locker, err := certmagiclock.NewLocker(client)
//	certmagic.Default.Storage, err = certmagiclock.NewStorage(&certmagic.FileStorage{Path: "/shared"}, locker)
//
// # What the lock guarantees
//
// The lock is renewed in the background for as long as certmagic holds it. It is released by
// Unlock even if the context has ended, and after a crash it is free within one TTL. certmagic
// has no way to stop an attempt whose lock is lost. It asks for a renewal before each attempt
// to obtain a certificate: a lost lock is then acquired again, or the attempt fails while another
// has the lock. What an attempt stores in between is not fenced, whatever the Files are: Store
// does not say under which lock it is called, and some keys are written under no lock. certmagic
// expects that: its operations check first whether the work is done. An instance that was paused
// for longer than its lease can replace the next one's certificate with its own, which is also
// valid.
//
// The Client's Shutdown waits until certmagic has unlocked what it holds. Stop certmagic, or
// call certmagic.CleanUpOwnLocks, before it.
package certmagiclock

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/internal/namedlock"
	"github.com/holdfast-go/holdfast/driver"
)

// Locker is certmagic's Locker, TryLocker and LockLeaseRenewer. The locks have the names that
// certmagic gives them, such as "issue_cert_example.com". All methods are safe for concurrent
// use.
type Locker struct{ locks *namedlock.Set }

// NewLocker makes a Locker. It starts nothing.
func NewLocker(client *holdfast.Client, opts ...holdfast.Option) (*Locker, error) {
	locks, err := namedlock.New(client, 0, opts...)
	if err != nil {
		return nil, err
	}
	return &Locker{locks}, nil
}

// Lock waits until it has the lock. ctx bounds only the waiting.
func (l *Locker) Lock(ctx context.Context, name string) error {
	_, err := l.locks.Lock(ctx, name)
	return err
}

// TryLock makes one attempt, and reports false if the lock is held.
func (l *Locker) TryLock(ctx context.Context, name string) (bool, error) {
	_, err := l.locks.TryLock(ctx, name)
	if errors.Is(err, holdfast.ErrHeld) {
		return false, nil
	}
	return err == nil, err
}

// Unlock releases the lock. A lock that was lost before is no error. The error is an
// *[holdfast.InvalidError] if this Locker does not have the lock. A release that fails is
// repeated in the background and reported to the Client's observers.
func (l *Locker) Unlock(ctx context.Context, name string) error {
	if err := l.locks.Unlock(ctx, name); !errors.Is(err, holdfast.ErrLost) {
		return err
	}
	return nil
}

// RenewLockLease reports whether the lock is held; the renewal itself goes on in the background.
// So it does no I/O, and any lease duration is met. If the lock was lost, it makes one attempt to
// acquire it again: certmagic repeats a failed operation for up to 30 days, never locks again,
// and checks after each RenewLockLease what is left to do. The error matches [holdfast.ErrHeld] if
// another has the lock by then, and [holdfast.ErrLost] if this Locker never had it.
func (l *Locker) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	held, ok := l.locks.Context(name)
	if !ok {
		return driver.Errorf("renew %q: this process does not have the lock: %w", name, holdfast.ErrLost)
	}
	hold, ok := holdfast.HoldFromContext(held)
	switch {
	case !ok || hold.Err() == nil:
		return nil
	case errors.Is(hold.Err(), holdfast.ErrLost):
		return l.locks.Retake(ctx, name)
	}
	return driver.Errorf("renew %q: %w", name, hold.Err())
}

// Files is what a [Storage] needs of another Storage; Info is certmagic.KeyInfo.
type Files[Info any] interface {
	Store(ctx context.Context, key string, value []byte) error
	Load(ctx context.Context, key string) ([]byte, error)
	Delete(ctx context.Context, key string) error
	Exists(ctx context.Context, key string) bool
	List(ctx context.Context, path string, recursive bool) ([]string, error)
	Stat(ctx context.Context, key string) (Info, error)
}

// Storage is a certmagic Storage that stores in Files and locks with a Locker.
type Storage[Info any] struct {
	Files[Info]
	*Locker
}

// NewStorage makes a Storage. The locking of files itself, if it has any, is not used, so all
// instances of the cluster need this one.
func NewStorage[Info any](files Files[Info], locker *Locker) (*Storage[Info], error) {
	switch {
	case files == nil:
		return nil, driver.Invalid("files", "nil", "a Storage")
	case locker == nil:
		return nil, driver.Invalid("locker", "nil", "a Locker")
	}
	return &Storage[Info]{files, locker}, nil
}

// String names the Storage in certmagic's log, which would otherwise have its inner fields.
func (s *Storage[Info]) String() string {
	if named, ok := s.Files.(interface{ String() string }); ok {
		return named.String() + " with Holdfast's locks"
	}
	return "Storage with Holdfast's locks"
}
