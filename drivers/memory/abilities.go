package memory

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast"
)

// watch is one waiter's channel; wake is buffered so that values coalesce.
type watch struct {
	locker *Locker
	wake   chan struct{}
}

// Watch implements [holdfast.Watcher]. It is in effect when it returns.
func (l *Locker) Watch(name string) (wake <-chan struct{}, stop func()) {
	w := &watch{locker: l, wake: make(chan struct{}, 1)}
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.closed.Load() {
		return w.wake, func() {}
	}
	if s.watches[name] == nil {
		s.watches[name] = make(map[*watch]struct{})
	}
	s.watches[name][w] = struct{}{}
	w.wake <- struct{}{}
	return w.wake, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unwatch(name, w)
	}
}

func (s *Store) unwatch(name string, w *watch) {
	delete(s.watches[name], w)
	if len(s.watches[name]) == 0 {
		delete(s.watches, name)
	}
}

// wake wakes the watchers of a name; the caller has locked the store.
func (s *Store) wake(name string) {
	for w := range s.watches[name] {
		select {
		case w.wake <- struct{}{}:
		default: // it has one waiting
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

// RenewBatch implements [holdfast.BatchRenewer].
func (l *Locker) RenewBatch(ctx context.Context, leases []holdfast.Lease) []error {
	errs := make([]error, len(leases))
	for i, lease := range leases {
		errs[i] = l.Renew(ctx, lease)
	}
	return errs
}

// List implements [holdfast.Lister] on a snapshot of the store.
func (l *Locker) List(ctx context.Context, prefix string) iter.Seq2[holdfast.Record, error] {
	return func(yield func(holdfast.Record, error) bool) {
		var found []holdfast.Record
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
			yield(holdfast.Record{}, err)
			return
		}
		slices.SortFunc(found, func(a, b holdfast.Record) int { return strings.Compare(a.Name, b.Name) })
		for _, r := range found {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// Break implements [holdfast.Breaker].
func (l *Locker) Break(ctx context.Context, name string) error {
	return l.do(ctx, "break", name, holdfast.ValidateName(name, limits), func(s *Store) error {
		s.lock(name).Break()
		return nil
	})
}

// BreakNow implements [holdfast.Breaker].
func (l *Locker) BreakNow(ctx context.Context, name string) error {
	return l.do(ctx, "break", name, holdfast.ValidateName(name, limits), func(s *Store) error {
		if s.lock(name).BreakNow() {
			s.wake(name)
		}
		return nil
	})
}

// ReadData implements [holdfast.DataStore].
func (l *Locker) ReadData(ctx context.Context, name string) ([]byte, error) {
	var data []byte
	err := l.do(ctx, "read data", name, holdfast.ValidateName(name, limits), func(s *Store) error {
		if stored := s.lock(name).Data; len(stored) > 0 {
			data = bytes.Clone(stored)
		}
		return nil
	})
	return data, err
}

// WriteData implements [holdfast.DataStore]. An expired lease does not hold.
func (l *Locker) WriteData(ctx context.Context, lease holdfast.Lease, data []byte) error {
	invalid := holdfast.ValidateName(lease.Name, limits)
	if invalid == nil {
		invalid = holdfast.ValidateData(data, limits)
	}
	return l.do(ctx, "write data", lease.Name, invalid, func(s *Store) error {
		if !s.lock(lease.Name).Write(lease.ID, data, s.moment()) {
			return holdfast.ErrLost
		}
		return nil
	})
}
