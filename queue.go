package holdfast

import (
	"slices"
	"sync"
)

// queues lines up one process's waiters for each name, first-in-first-out, so that
// only the first of them asks the backend, and none does while the lock is
// held by this process itself.
type queues struct {
	mu     sync.Mutex
	byName map[string]*queue
}

type queue struct {
	waiters []*waiter // in order of arrival
	holder  *Hold     // this process's own live hold, or nil
	kept    error     // what last kept the first waiter from the lock
}

// waiter is one place in a queue. turn is closed when it may ask the backend.
type waiter struct {
	name string
	turn chan struct{}
	up   bool // turn is closed
	// nudge gets a value when this process frees the lock while the waiter asks.
	nudge chan struct{}
}

// join takes the last place.
func (s *queues) join(name string) *waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &waiter{name: name, turn: make(chan struct{}), nudge: make(chan struct{}, 1)}
	q := s.of(name)
	q.waiters = append(q.waiters, w)
	s.settle(name, q)
	return w
}

// leave gives up a place, wherever it is.
func (s *queues) leave(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.of(w.name)
	if i := slices.Index(q.waiters, w); i >= 0 {
		q.waiters = slices.Delete(q.waiters, i, i+1)
	}
	s.settle(w.name, q)
}

// took notes that this process holds the lock, before its waiter leaves.
func (s *queues) took(h *Hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.of(h.Name())
	q.holder, q.kept = h, nil
}

// freed notes that a hold is lost, or that it is released; the first waiter may ask.
func (s *queues) freed(h *Hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.of(h.Name())
	if q.holder == h {
		q.holder = nil
	}
	if len(q.waiters) > 0 && q.waiters[0].up {
		select {
		case q.waiters[0].nudge <- struct{}{}:
		default:
		}
	}
	s.settle(h.Name(), q)
}

// note keeps what the asking waiter met, for the errors of those behind it.
func (s *queues) note(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(name).kept = err
}

// reason tells what keeps the waiters of a name from the lock.
func (s *queues) reason(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.byName[name]
	switch {
	case q == nil:
		return nil
	case q.holder != nil:
		return q.holder.heldError()
	default:
		return q.kept
	}
}

// of finds or makes a queue; settle drops it again when nothing needs it.
func (s *queues) of(name string) *queue {
	q := s.byName[name]
	if q == nil {
		if s.byName == nil {
			s.byName = map[string]*queue{}
		}
		q = &queue{}
		s.byName[name] = q
	}
	return q
}

func (s *queues) settle(name string, q *queue) {
	switch {
	case q.holder != nil:
	case len(q.waiters) == 0:
		delete(s.byName, name)
	case !q.waiters[0].up:
		q.waiters[0].up = true
		close(q.waiters[0].turn)
	}
}
