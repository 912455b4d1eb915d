package memory

import (
	"context"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
	"github.com/holdfast-go/holdfast/driver/waitqueue"
)

// watch is one call of Wake.
type watch struct {
	locker  *Locker
	wake    func(driver.Wakeup)
	stopped atomic.Bool
}

// Wake implements [driver.Waker]. Waking is in effect when Wake returns.
func (l *Locker) Wake(name string, waiter driver.WaiterID, wake func(driver.Wakeup)) (stop func()) {
	s, w := l.store, &watch{locker: l, wake: wake}
	s.mu.Lock()
	defer s.unlock()
	if l.closed.Load() {
		return func() {}
	}
	key := waitqueue.Key{Name: name, Waiter: waiter}
	s.watches.Add(key, w)
	s.due = append(s.due, call{w, driver.Wakeup{Kind: driver.WakingBegan}})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		w.stopped.Store(true)
		s.watches.Remove(key, w)
	}
}

// wake marks the watches of a name, so that unlock wakes them. The store is locked.
func (s *Store) wake(name string) {
	for _, w := range s.watches.For(waitqueue.Key{Name: name}) {
		s.due = append(s.due, call{w, driver.Wakeup{}})
	}
}

// wakeWaiters marks the watches of those that a release wakes. The store is locked.
func (s *Store) wakeWaiters(name string, lock *lockstate.Lock, now lockstate.Moment) {
	for _, waiter := range lock.Woken(now) {
		for _, w := range s.watches.For(waitqueue.Key{Name: name, Waiter: driver.WaiterID(waiter.ID)}) {
			s.due = append(s.due, call{w, driver.Wakeup{After: lock.Turn(waiter.ID)}})
		}
	}
}

// call is a wake-up that is due.
type call struct {
	*watch
	up driver.Wakeup
}

// unlock unlocks the store and then wakes the marked watches. They are woken afterwards
// because a wake function may stop its watch, which locks the store.
func (s *Store) unlock() {
	due := s.due
	s.due = nil
	s.mu.Unlock()
	for _, c := range due {
		if !c.stopped.Load() {
			c.wake(c.up)
		}
	}
}

// Leave implements [driver.Queue].
func (l *Locker) Leave(ctx context.Context, waiter driver.WaiterID, names []string) error {
	return l.do(ctx, "leave queues", "", driver.ValidateLeave(waiter, names, limits), func(s *Store) error {
		for _, name := range names {
			lock := s.lock(name)
			if lock.Position(string(waiter)) == 0 {
				continue
			}
			if lock.Leave(string(waiter)); len(lock.Readers) > 0 { // readers may have waited behind it
				s.wakeWaiters(name, lock, s.moment())
			}
		}
		return nil
	})
}

func (s *Store) stopWatches(l *Locker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := map[*watch]waitqueue.Key{}
	for key, w := range s.watches.All {
		if w.locker == l {
			of[w] = key
		}
	}
	for w, key := range of {
		w.stopped.Store(true)
		s.watches.Remove(key, w)
	}
}
