package file

import (
	"bytes"
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// TryAcquire implements [driver.Locker].
func (l *Locker) TryAcquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	req.Data = bytes.Clone(req.Data) // the caller may return and change its data first
	return result(func(set func(driver.Lease)) error {
		return l.call(ctx, "acquire", req.Name, req.Validate(l.Info()), func(ctx context.Context) error {
			defer l.acquires.begin(req.ID)()
			return l.change(ctx, req.Name, func(lock *lockstate.Lock, now lockstate.Moment) (bool, error) {
				if !lock.Acquire(req, lockrecord.Digest(req.ID), now) {
					return false, &driver.HeldError{Record: lock.Record(req.Name, now)}
				}
				set(lock.Lease(req, lockrecord.Digest(req.ID)))
				return true, nil
			})
		})
	})
}

// Renew implements [driver.Locker].
func (l *Locker) Renew(ctx context.Context, lease driver.Lease) (driver.Lease, error) {
	invalid := driver.ValidateRenew(lease, limits)
	return lease, l.call(ctx, "renew", lease.Name, invalid, func(ctx context.Context) error {
		return l.change(ctx, lease.Name, func(lock *lockstate.Lock, now lockstate.Moment) (bool, error) {
			if !lock.Renew(lockrecord.Digest(lease.ID), lease.TTL, now) {
				return false, driver.ErrLost
			}
			return true, nil
		})
	})
}

// Release implements [driver.Locker].
func (l *Locker) Release(ctx context.Context, lease driver.Lease) error {
	return l.call(ctx, "release", lease.Name, driver.ValidateName(lease.Name, limits), func(ctx context.Context) error {
		// Promise 5: an acquire with this ID may still be under way although its caller has
		// returned. It ends first, so that it cannot write its record after the release.
		if err := l.acquires.wait(ctx, lease.ID); err != nil {
			return err
		}
		return l.change(ctx, lease.Name, func(lock *lockstate.Lock, now lockstate.Moment) (bool, error) {
			return lock.Release(lockrecord.Digest(lease.ID), now), nil
		})
	})
}

// Inspect implements [driver.Locker].
func (l *Locker) Inspect(ctx context.Context, name string) (driver.Record, error) {
	return result(func(set func(driver.Record)) error {
		return l.call(ctx, "inspect", name, driver.ValidateName(name, limits), func(ctx context.Context) error {
			rec, now, err := l.readName(ctx, name)
			if err != nil {
				return err
			}
			r := rec.Record(name, now)
			rec.History = rec.Tenures()
			r.ReadAt, r.History = now.Wall, rec.PastHolders(l.settings.history, now)
			set(r)
			return nil
		})
	})
}

// Break implements [driver.Breaker].
func (l *Locker) Break(ctx context.Context, name string, target driver.BreakTarget) error {
	return l.call(ctx, "break", name, driver.ValidateBreak(name, target, limits), func(ctx context.Context) error {
		return l.change(ctx, name, func(lock *lockstate.Lock, now lockstate.Moment) (bool, error) {
			if affects, err := lock.CheckTarget(name, target, now); !affects || err != nil {
				return false, err
			}
			return lock.Break(lock.Targets(target)...), nil
		})
	})
}

// BreakNow implements [driver.Breaker].
func (l *Locker) BreakNow(ctx context.Context, name string, target driver.BreakTarget) error {
	return l.call(ctx, "break", name, driver.ValidateBreak(name, target, limits), func(ctx context.Context) error {
		return l.change(ctx, name, func(lock *lockstate.Lock, now lockstate.Moment) (bool, error) {
			if affects, err := lock.CheckTarget(name, target, now); !affects || err != nil {
				return false, err
			}
			return lock.BreakNow(now, lock.Targets(target)...), nil
		})
	})
}

// ReadData implements [driver.DataStore].
func (l *Locker) ReadData(ctx context.Context, name string) ([]byte, driver.DataRevision, error) {
	type stored struct {
		data []byte
		at   driver.DataRevision
	}
	found, err := result(func(set func(stored)) error {
		return l.call(ctx, "read data", name, driver.ValidateName(name, limits), func(ctx context.Context) error {
			return l.change(ctx, name, func(lock *lockstate.Lock, _ lockstate.Moment) (bool, error) {
				out := stored{at: lock.DataRevision()}
				if len(lock.Data) > 0 {
					out.data = lock.Data
				}
				set(out)
				return false, nil
			})
		})
	})
	return found.data, found.at, err
}

// WriteData implements [driver.DataStore]. It refuses a lease that has expired.
func (l *Locker) WriteData(ctx context.Context, lease driver.Lease, data []byte, at driver.DataRevision) error {
	data = bytes.Clone(data)
	invalid := driver.ValidateWriteData(lease, data, limits)
	return l.call(ctx, "write data", lease.Name, invalid, func(ctx context.Context) error {
		return l.change(ctx, lease.Name, func(lock *lockstate.Lock, now lockstate.Moment) (bool, error) {
			err := lock.Write(lockrecord.Digest(lease.ID), data, at, now)
			return err == nil, err
		})
	})
}

// result runs a call and returns the value that it set last. If the call goes on after its
// caller has returned, the value stays in a channel that nobody reads.
func result[T any](call func(set func(T)) error) (T, error) {
	values := make(chan T, 1)
	err := call(func(v T) {
		select {
		case <-values:
		default:
		}
		values <- v
	})
	var v T
	if err == nil {
		select {
		case v = <-values:
		default:
		}
	}
	return v, err
}
