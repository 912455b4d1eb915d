package memory

import (
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// watch is one call of Watch or of Wait.
type watch struct {
	locker  *Locker
	queued  bool // of Wait
	wake    func(turn time.Duration)
	stopped atomic.Bool
}

// Watch implements [driver.Watcher]. The watch is in effect when Watch returns.
func (l *Locker) Watch(name string, wake func()) (stop func()) {
	return l.watch(name, &watch{locker: l, wake: func(time.Duration) { wake() }})
}

// Wait implements [driver.Queue].
func (l *Locker) Wait(name string, wake func(turn time.Duration)) (stop func()) {
	return l.watch(name, &watch{locker: l, queued: true, wake: wake})
}

func (l *Locker) watch(name string, w *watch) (stop func()) {
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
	s.due = append(s.due, call{w, driver.MaybeMissed})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unwatch(name, w)
	}
}

func (s *Store) unwatch(name string, w *watch) {
	w.stopped.Store(true)
	delete(s.watches[name], w)
	if w.queued && !s.waits(name, w.locker) {
		s.lock(name).Leave(w.locker.id)
	}
	if len(s.watches[name]) == 0 {
		delete(s.watches, name)
	}
}

// wake marks the watches of a name, so that unlock wakes them. The store is locked.
func (s *Store) wake(name string) {
	for w := range s.watches[name] {
		if !w.queued {
			s.due = append(s.due, call{w, 0})
		}
	}
}

// wakeWaiters marks the watches of those that a release wakes. The store is locked.
func (s *Store) wakeWaiters(name string, lock *lockstate.Lock) {
	for i, waiter := range lock.Woken() {
		for w := range s.watches[name] {
			if w.queued && w.locker.id == waiter.ID {
				s.due = append(s.due, call{w, driver.Turn(i + 1)})
			}
		}
	}
}

// call is a wake-up that is due.
type call struct {
	*watch
	turn time.Duration
}

// unlock unlocks the store and then wakes the marked watches. They are woken afterwards
// because a wake function may stop its watch, which locks the store.
func (s *Store) unlock() {
	due := s.due
	s.due = nil
	s.mu.Unlock()
	for _, c := range due {
		if !c.stopped.Load() {
			c.wake(c.turn)
		}
	}
}

// waits reports whether a Locker waits for a name. The store is locked.
func (s *Store) waits(name string, l *Locker) bool {
	for w := range s.watches[name] {
		if w.queued && w.locker == l {
			return true
		}
	}
	return false
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
