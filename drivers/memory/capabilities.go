package memory

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver"
)

// watch is one call of Watch.
type watch struct {
	locker  *Locker
	wake    func()
	stopped atomic.Bool
}

// Watch implements [driver.Watcher]. The watch is in effect when Watch returns.
func (l *Locker) Watch(name string, wake func()) (stop func()) {
	w := &watch{locker: l, wake: wake}
	s := l.store
	s.mu.Lock()
	defer s.unlock()
	if l.closed.Load() {
		return func() {}
	}
	if s.watches[name] == nil {
		s.watches[name] = make(map[*watch]struct{})
	}
	s.watches[name][w] = struct{}{}
	s.due = append(s.due, w)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unwatch(name, w)
	}
}

func (s *Store) unwatch(name string, w *watch) {
	w.stopped.Store(true)
	delete(s.watches[name], w)
	if len(s.watches[name]) == 0 {
		delete(s.watches, name)
	}
}

// wake marks the watches of a name, so that unlock wakes them. The store is locked.
func (s *Store) wake(name string) {
	for w := range s.watches[name] {
		s.due = append(s.due, w)
	}
}

// unlock unlocks the store and then wakes the marked watches. They are woken afterwards
// because a wake function may stop its watch, which locks the store.
func (s *Store) unlock() {
	due := s.due
	s.due = nil
	s.mu.Unlock()
	for _, w := range due {
		if !w.stopped.Load() {
			w.wake()
		}
	}
}

func (s *Store) stopWatches(l *Locker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, watches := range s.watches {
		for w := range watches {
			if w.locker == l {
				s.unwatch(name, w)
			}
		}
	}
}

// RenewBatch implements [driver.BatchRenewer].
func (l *Locker) RenewBatch(ctx context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	for i, lease := range leases {
		errs[i] = l.Renew(ctx, lease)
	}
	return errs
}

// InspectBatch implements [driver.BatchInspector]. All records are of the same moment.
func (l *Locker) InspectBatch(ctx context.Context, names []string) ([]driver.Record, []error) {
	records, errs := make([]driver.Record, len(names)), make([]error, len(names))
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	now := l.store.moment()
	for i, name := range names {
		if err := l.checkCall(ctx, driver.ValidateName(name, limits)); err != nil {
			errs[i] = &driver.OpError{Op: "inspect", Backend: backend, Name: name, Err: err}
			continue
		}
		records[i] = l.store.lock(name).Record(name, now)
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
					found = append(found, lock.Record(name, now))
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
func (l *Locker) Break(ctx context.Context, name string, token uint64) error {
	return l.do(ctx, "break", name, driver.ValidateName(name, limits), func(s *Store) error {
		lock := s.lock(name)
		if err := lock.Record(name, s.moment()).CheckToken(token); err != nil {
			return err
		}
		lock.Break()
		return nil
	})
}

// BreakNow implements [driver.Breaker].
func (l *Locker) BreakNow(ctx context.Context, name string, token uint64) error {
	return l.do(ctx, "break", name, driver.ValidateName(name, limits), func(s *Store) error {
		lock := s.lock(name)
		if err := lock.Record(name, s.moment()).CheckToken(token); err != nil {
			return err
		}
		if lock.BreakNow() {
			s.wake(name)
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
	invalid := driver.ValidateName(lease.Name, limits)
	if invalid == nil {
		invalid = driver.ValidateData(data, limits)
	}
	return l.do(ctx, "write data", lease.Name, invalid, func(s *Store) error {
		return s.lock(lease.Name).Write(lease.ID.Reveal(), data, at, s.moment())
	})
}
