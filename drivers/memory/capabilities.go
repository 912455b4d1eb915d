package memory

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// RenewBatch implements [driver.BatchRenewer].
func (l *Locker) RenewBatch(ctx context.Context, leases []driver.Lease) ([]driver.Lease, []error) {
	errs := make([]error, len(leases))
	for i, lease := range leases {
		_, errs[i] = l.Renew(ctx, lease)
	}
	return leases, errs
}

// ReleaseBatch implements [driver.BatchReleaser].
func (l *Locker) ReleaseBatch(ctx context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	for i, lease := range leases {
		errs[i] = l.Release(ctx, lease)
	}
	return errs
}

// InspectBatch implements [driver.BatchInspector]. All records are of the same moment.
func (l *Locker) InspectBatch(ctx context.Context, waiter driver.WaiterID, names []string) ([]driver.Record, []error) {
	records, errs := make([]driver.Record, len(names)), make([]error, len(names))
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	now := l.store.moment()
	for i, name := range names {
		if err := l.checkCall(ctx, driver.ValidateName(name, limits)); err != nil {
			errs[i] = &driver.OpError{Op: "inspect", Backend: backend, Name: name, Err: err}
			continue
		}
		records[i] = l.store.lock(name).RecordFor(name, string(waiter), now)
		records[i].Data = nil
	}
	return records, errs
}

// List implements [driver.Lister] on a snapshot of the store.
func (l *Locker) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		var found []driver.Record
		err := l.do(ctx, "list", prefix, nil, func(s *Store) error {
			now := s.moment()
			for name, lock := range s.locks {
				if strings.HasPrefix(name, prefix) {
					found = append(found, lock.RecordFor(name, "", now))
				}
			}
			return nil
		})
		if err != nil {
			yield(driver.Record{}, err)
			return
		}
		slices.SortFunc(found, func(a, b driver.Record) int { return strings.Compare(a.Name, b.Name) })
		for _, r := range found {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// Break implements [driver.Breaker].
func (l *Locker) Break(ctx context.Context, name string, target driver.BreakTarget) error {
	return l.do(ctx, "break", name, driver.ValidateBreak(name, target, limits), func(s *Store) error {
		lock := s.lock(name)
		if affects, err := lock.CheckTarget(name, target, s.moment()); !affects || err != nil {
			return err
		}
		lock.Break(lock.Targets(target)...)
		return nil
	})
}

// BreakNow implements [driver.Breaker].
func (l *Locker) BreakNow(ctx context.Context, name string, target driver.BreakTarget) error {
	return l.do(ctx, "break", name, driver.ValidateBreak(name, target, limits), func(s *Store) error {
		lock, now := s.lock(name), s.moment()
		if affects, err := lock.CheckTarget(name, target, now); !affects || err != nil {
			return err
		}
		if lock.BreakNow(now, lock.Targets(target)...) {
			s.freed(name, lock, now)
		}
		return nil
	})
}

// ReadData implements [driver.DataStore].
func (l *Locker) ReadData(ctx context.Context, name string) (data []byte, at driver.DataRevision, err error) {
	err = l.do(ctx, "read data", name, driver.ValidateName(name, limits), func(s *Store) error {
		lock := s.lock(name)
		at = lock.DataRevision()
		if len(lock.Data) > 0 {
			data = bytes.Clone(lock.Data)
		}
		return nil
	})
	return data, at, err
}

// WriteData implements [driver.DataStore]. It refuses a lease that has expired.
func (l *Locker) WriteData(ctx context.Context, lease driver.Lease, data []byte, at driver.DataRevision) error {
	invalid := driver.ValidateWriteData(lease, data, limits)
	return l.do(ctx, "write data", lease.Name, invalid, func(s *Store) error {
		return s.lock(lease.Name).Write(lease.ID.Reveal(), data, at, s.moment())
	})
}
