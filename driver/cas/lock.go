package cas

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// TryAcquire implements [driver.Locker].
func (l *Locker) TryAcquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if !l.ordered() {
		req.QueueFor, req.Waiter = 0, ""
	}
	var lease driver.Lease
	var refusal error
	var granted *state
	err := l.call(ctx, "acquire", req.Name, req.Validate(l.config.Info), func(ctx context.Context) error {
		if err := l.stopped(); err != nil {
			return err
		}
		holder := lockrecord.Digest(req.ID)
		err := l.change(ctx, req.Name, nil, func(s *state) (write bool, err error) {
			lease, refusal = driver.Lease{}, nil
			queue, token := slices.Clone(s.Queue), s.Token
			if !s.AcquireInTurn(req, holder, string(req.Waiter), s.now) {
				held := s.refusal(l, req.Waiter)
				refusal = held
				// A position that is not changed is not written: that would cost the holder's next renewal a read.
				if s.service = !slices.Equal(queue, s.Queue) && s.writes < maxJoins; s.service {
					return true, nil
				}
				// That of the stored queue: a waiter with one that is not stored would rest, and nothing would wake it.
				held.Record.Position = (&lockstate.Lock{Queue: queue}).Position(string(req.Waiter))
				return false, refusal
			}
			if s.Removed {
				s.Removed = false
				s.History = nil // the tenure of a removed record
			}
			if s.Token != token { // else the holder has repeated its request
				s.Grants++
			}
			l.raiseToken(s)
			l.lengthen(s, holder, req.TTL)
			granted, s.grants = s, true
			lease = s.Lease(req, holder)
			return true, nil
		})
		switch {
		case err == nil:
			err = refusal
		case errors.Is(err, ErrNotSafe):
			err = l.undo(ctx, req.Name, holder, err)
		}
		return err
	})
	l.noteAnswer(req, err)
	if err != nil {
		return driver.Lease{}, err
	}
	lease.State = granted.leaseState()
	return lease, nil
}

// undo releases a grant that is not safe, and returns the request's error. The outcome counts as unknown: a fail-over may forget the
// release, and not the grant.
//
// Promise 1: a grant that the next primary does not know would be another's, too.
func (l *Locker) undo(ctx context.Context, name, holder string, notSafe error) error {
	if err := l.change(ctx, name, nil, func(s *state) (bool, error) { return s.release(holder), nil }); err != nil {
		return fmt.Errorf("the grant is not safe, and could not be undone (%s): %w", err.Error(), notSafe)
	}
	return fmt.Errorf("the grant was undone: %w", notSafe)
}

// release ends a lease, if the record has it.
func (s *state) release(holder string) (write bool) {
	if write = s.Release(holder, s.now); write {
		s.freed()
	}
	s.mayBeForgotten = true // the lease then ends by its TTL
	return write
}

// refusal is the error for a request that was not granted the lock.
func (s *state) refusal(l *Locker, waiter driver.WaiterID) *driver.HeldError {
	e := s.Refusal(s.Name, string(waiter), s.now)
	l.trim(&e.Record)
	return e
}

// trim leaves out what the Locker does not know.
//
// A lease that is lengthened by a step of the clock has its TTL left at most.
func (l *Locker) trim(r *driver.Record) {
	if l.config.Info.Expiry == driver.ByObservation {
		r.Remaining, r.RemainingKnown = 0, false
		return
	}
	r.Remaining = l.trimmed(r.Remaining, r.TTL)
	for i, h := range r.Holders {
		r.Holders[i].Remaining = l.trimmed(h.Remaining, h.TTL)
	}
}

func (l *Locker) trimmed(remaining, ttl time.Duration) time.Duration {
	if over := remaining - ttl; ttl > 0 && over > 0 && over <= l.config.ClockStep {
		return ttl
	}
	return remaining
}

// view is the record of a state, as a waiter gets it, or a caller without a position.
func (s *state) view(l *Locker, waiter driver.WaiterID) driver.Record {
	if s.Removed {
		return driver.Record{Name: s.Name, State: driver.StateFree}
	}
	r := s.RecordFor(s.Name, string(waiter), s.now)
	l.trim(&r)
	return r
}

// Renew implements [driver.Locker].
func (l *Locker) Renew(ctx context.Context, lease driver.Lease) (driver.Lease, error) {
	invalid := driver.ValidateRenew(lease, l.config.Info.Limits)
	var renewed *state
	err := l.call(ctx, "renew", lease.Name, invalid, func(ctx context.Context) (err error) {
		if err := l.lostByVerdict(); err != nil {
			return err
		}
		if lease.Mode == driver.Shared {
			var next driver.LeaseState
			if next, err = l.renewReader(ctx, lease); err == nil {
				lease.State = next
			}
			return err
		}
		return l.change(ctx, lease.Name, l.recall(lease), func(s *state) (bool, error) {
			holder := lockrecord.Digest(lease.ID)
			if !s.Renew(holder, lease.TTL, s.now) {
				return false, l.lost(s, lease)
			}
			l.lengthen(s, holder, lease.TTL)
			renewed = s
			return true, nil
		})
	})
	if renewed != nil && err == nil {
		lease.State = renewed.leaseState()
	}
	return lease, err
}

// Release implements [driver.Locker].
func (l *Locker) Release(ctx context.Context, lease driver.Lease) error {
	return l.call(ctx, "release", lease.Name, driver.ValidateName(lease.Name, l.config.Info.Limits), func(ctx context.Context) error {
		return l.change(ctx, lease.Name, l.recall(lease), func(s *state) (bool, error) {
			if !s.release(lockrecord.Digest(lease.ID)) {
				_ = l.lost(s, lease)
				return false, nil // it was released, perhaps by a write of this call
			}
			return true, nil
		})
	})
}

// freed notes when the lock became free, if its last holder has ended: the turns of the waiters count from there.
func (s *state) freed() {
	if s.Holder == "" {
		s.Expires = s.now.Elapsed
	}
}

// Inspect implements [driver.Locker].
func (l *Locker) Inspect(ctx context.Context, name string) (driver.Record, error) {
	var r driver.Record
	err := l.call(ctx, "inspect", name, driver.ValidateName(name, l.config.Info.Limits), func(ctx context.Context) error {
		s, err := l.load(ctx, name)
		if err != nil {
			return err
		}
		r = s.view(l, "")
		r.ReadAt = s.now.Wall
		if !s.Removed {
			s.History = s.Tenures()
			r.History = s.PastHolders(l.config.Info.History, s.now)
		}
		return nil
	})
	return r, err
}

// Break implements [driver.Breaker].
func (l *Locker) Break(ctx context.Context, name string, target driver.BreakTarget) error {
	return l.breakLock(ctx, name, target, func(s *state, tokens []uint64) (bool, error) {
		if isOther(s.Holder) {
			return false, errOther
		}
		return s.Break(tokens...), nil
	})
}

// BreakNow implements [driver.Breaker].
func (l *Locker) BreakNow(ctx context.Context, name string, target driver.BreakTarget) error {
	return l.breakLock(ctx, name, target, func(s *state, tokens []uint64) (bool, error) {
		if !s.BreakNow(s.now, tokens...) {
			return false, nil
		}
		s.freed()
		return true, nil
	})
}

func (l *Locker) breakLock(ctx context.Context, name string, target driver.BreakTarget, apply func(*state, []uint64) (bool, error)) error {
	return l.call(ctx, "break", name, driver.ValidateBreak(name, target, l.config.Info.Limits), func(ctx context.Context) error {
		var tokens []uint64
		return l.change(ctx, name, nil, func(s *state) (bool, error) {
			if s.writes == 0 {
				if affects, err := s.checkTarget(l, target); !affects || err != nil {
					return false, err
				}
				tokens = s.Targets(target) // only the holders at the time of the call are affected
			}
			return apply(s, tokens)
		})
	})
}

// checkTarget is [lockstate.Lock.CheckTarget], with the record as this Locker shows it.
func (s *state) checkTarget(l *Locker, target driver.BreakTarget) (affects bool, err error) {
	if affects, err = s.CheckTarget(s.Name, target, s.now); err != nil {
		_, err = s.view(l, "").CheckTarget(target)
	}
	return affects, err
}

// ReadData implements [driver.DataStore].
func (l *Locker) ReadData(ctx context.Context, name string) (data []byte, at driver.DataRevision, err error) {
	err = l.call(ctx, "read data", name, driver.ValidateName(name, l.config.Info.Limits), func(ctx context.Context) error {
		s, err := l.load(ctx, name)
		if err != nil || s.Removed {
			return err
		}
		if at = s.DataRevision(); len(s.Data) > 0 {
			data = s.Data
		}
		return nil
	})
	return data, at, err
}

// WriteData implements [driver.DataStore]. It refuses a lease that has expired.
func (l *Locker) WriteData(ctx context.Context, lease driver.Lease, data []byte, at driver.DataRevision) error {
	invalid := driver.ValidateWriteData(lease, data, l.config.Info.Limits)
	return l.call(ctx, "write data", lease.Name, invalid, func(ctx context.Context) error {
		if err := l.lostByVerdict(); err != nil {
			return err
		}
		return l.change(ctx, lease.Name, l.recall(lease), func(s *state) (bool, error) {
			holder := lockrecord.Digest(lease.ID)
			if s.writes > 0 && s.Holder == holder && s.DataRevision() == at.Next() && string(s.Data) == string(data) {
				return false, nil // this call wrote it
			}
			err := s.Write(holder, data, at, s.now)
			if err != nil && s.inDoubt { // the data may have been written, and then the lock was lost, or they were replaced
				return false, errors.New("the write may have been done: " + driver.ErrorText(err))
			}
			return err == nil, err
		})
	})
}
