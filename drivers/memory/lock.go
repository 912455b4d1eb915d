package memory

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// TryAcquire implements [driver.Locker].
func (l *Locker) TryAcquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	var lease driver.Lease
	err := l.do(ctx, "acquire", req.Name, req.Validate(l.Info()), func(s *Store) error {
		lock, now := s.lock(req.Name), s.moment()
		if !lock.AcquireInTurn(req, req.ID.Reveal(), string(req.Waiter), now) {
			return lock.Refusal(req.Name, string(req.Waiter), now)
		}
		if s.locks[req.Name] == nil {
			lock.RaiseToken(s.removed + 1) // Promise 3: the clock may not have passed the token of a removed record
		}
		lock.KeepHistory(s.history)
		s.locks[req.Name] = lock
		lease = lock.Lease(req, req.ID.Reveal())
		return nil
	})
	return lease, err
}

// Renew implements [driver.Locker].
func (l *Locker) Renew(ctx context.Context, lease driver.Lease) (driver.Lease, error) {
	invalid := driver.ValidateRenew(lease, limits)
	return lease, l.do(ctx, "renew", lease.Name, invalid, func(s *Store) error {
		if !s.lock(lease.Name).Renew(lease.ID.Reveal(), lease.TTL, s.moment()) {
			return driver.ErrLost
		}
		return nil
	})
}

// Release implements [driver.Locker].
func (l *Locker) Release(ctx context.Context, lease driver.Lease) error {
	return l.do(ctx, "release", lease.Name, driver.ValidateName(lease.Name, limits), func(s *Store) error {
		if lock, now := s.lock(lease.Name), s.moment(); lock.Release(lease.ID.Reveal(), now) {
			s.freed(lease.Name, lock, now)
		}
		return nil
	})
}

// Inspect implements [driver.Locker].
func (l *Locker) Inspect(ctx context.Context, name string) (driver.Record, error) {
	var out driver.Record
	err := l.do(ctx, "inspect", name, driver.ValidateName(name, limits), func(s *Store) error {
		lock, now := s.lock(name), s.moment()
		out = lock.RecordFor(name, "", now)
		out.ReadAt, out.History = now.Wall, lock.PastHolders(s.history, now)
		return nil
	})
	return out, err
}

// lock returns the state of a name. Without a record it is a new state that is not stored.
func (s *Store) lock(name string) *lockstate.Lock {
	if lock := s.locks[name]; lock != nil {
		return lock
	}
	return &lockstate.Lock{}
}

// freed notes that a lock was released, by all of its holders or by one, and marks those that wait for it. The store
// is locked.
func (s *Store) freed(name string, lock *lockstate.Lock, now lockstate.Moment) {
	if lock.Holder == "" {
		lock.Expires = now.Elapsed // the turns of the waiters count from here
	}
	lock.KeepHistory(s.history)
	s.wake(name)
	s.wakeWaiters(name, lock, now)
}

// moment reads the clock.
func (s *Store) moment() lockstate.Moment {
	now := s.now()
	// Promise 8: Sub uses the monotonic readings if there are any, so setting the wall clock
	// changes nothing.
	return lockstate.Moment{Elapsed: now.Sub(s.epoch), Wall: now}
}
