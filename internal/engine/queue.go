package engine

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// queues lines up one process's waiters for each name, first-in-first-out, so that
// only the first of them asks the backend, and none does while the lock, or every slot
// that the first may take, is held by this process itself.
type queues struct {
	mu     sync.Mutex
	byName map[string]*queue
}

type queue struct {
	waiters  []*waiter     // in order of arrival
	holders  []*Hold       // this process's own live holds: one, or one of each slot
	took     time.Duration // when the last of them was taken
	reported bool          // since then: that somebody waits for them
	lastErr  error         // what last kept the first waiter from the lock
	yield    time.Duration // until when the first waiter lets other processes ask
}

// waiter is one place in a queue. turn is closed when it may ask the backend.
type waiter struct {
	name    string
	slots   int
	ttl     time.Duration
	turn    chan struct{}
	hasTurn bool // turn is closed
	// nudge gets a value when this process frees a slot while the waiter asks.
	slotFreed chan struct{}
	freed     []int  // those slots
	offer     *offer // what its turn came with, if anything
}

// call begins its turn.
func (w *waiter) beginTurn() {
	w.hasTurn = true
	close(w.turn)
}

// join takes the last place.
func (s *queues) join(name string, slots int, ttl time.Duration) *waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &waiter{name: name, slots: slots, ttl: ttl, turn: make(chan struct{}), slotFreed: make(chan struct{}, 1)}
	q := s.of(name)
	q.waiters = append(q.waiters, w)
	s.update(name, q)
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
	s.update(w.name, q)
	if w.offer != nil {
		w.offer.resolve(false)
	}
}

// took notes that this process holds the lock, before its waiter leaves.
func (s *queues) took(h *Hold, now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.of(lockOf(h.Name(), h.slot))
	q.holders, q.took, q.reported, q.lastErr = append(q.holders, h), now, false, nil
}

// freed notes that a hold is lost, or that it is released; the first waiter may ask, but not
// before the time of yield if it has not asked yet.
func (s *queues) freed(h *Hold, yield time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.of(lockOf(h.Name(), h.slot))
	if i := slices.Index(q.holders, h); i >= 0 {
		q.holders = slices.Delete(q.holders, i, i+1)
	}
	q.yield = yield
	if len(q.waiters) > 0 && q.waiters[0].hasTurn {
		w := q.waiters[0]
		w.freed = append(w.freed, h.slot)
		notify(w.slotFreed)
	}
	s.update(lockOf(h.Name(), h.slot), q)
}

// yield tells until when a waiter whose turn it is lets other processes ask.
func (s *queues) yield(w *waiter) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of(w.name).yield
}

// freedOf takes the slots that this process freed while the waiter asked.
func (s *queues) freedOf(w *waiter) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	freed := w.freed
	w.freed = nil
	return freed
}

// taken lists the slots that this process holds.
func (s *queues) taken(name string) (slots []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.byName[name]; q != nil {
		for _, h := range q.holders {
			slots = append(slots, h.slot)
		}
	}
	return slots
}

// note keeps what the asking waiter met, for the errors of those behind it.
func (s *queues) note(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(name).lastErr = err
}

// reason tells what keeps a waiter from the lock.
func (s *queues) reason(w *waiter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.byName[w.name]
	switch {
	case q == nil:
		return nil
	case q.holdsAll(w):
		return fmt.Errorf("this process itself holds it: %w", allHeld(w.name, w.slots, q.holders[0].heldError()))
	default:
		return q.lastErr
	}
}

// standstill is for a waiter that has been waiting for as long as patience. If this process has
// held all that the waiter may take for so long, it returns one of its holds, but only to one
// of the waiters. It also returns when to ask again.
func (s *queues) standstill(w *waiter, now, patience time.Duration) (h *Hold, again time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.byName[w.name]
	if q == nil || q.reported || !q.holdsAll(w) {
		return nil, patience
	}
	if left := q.took + patience - now; left > 0 {
		return nil, left
	}
	q.reported = true
	return q.holders[0], patience
}

// keeps reports whether this process holds all that the waiter may take.
func (q *queue) holdsAll(w *waiter) bool {
	var own int
	for _, h := range q.holders {
		if h.slot < w.slots {
			own++
		}
	}
	return own >= w.slots
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

func (s *queues) update(name string, q *queue) {
	switch {
	case len(q.waiters) == 0:
		if len(q.holders) == 0 {
			delete(s.byName, name)
		}
	case !q.waiters[0].hasTurn && !q.holdsAll(q.waiters[0]):
		q.waiters[0].beginTurn()
	}
}
