package engine

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// queues has one queue for each name that this process waits for or holds. Waiters are served
// first-in-first-out, and only the first sends requests to the backend. None does while this
// process itself holds the lock, or every slot that the first waiter may take.
type queues struct {
	mu     sync.Mutex
	byName map[string]*queue
}

type queue struct {
	waiters     []*waiter     // in order of arrival
	holders     []*Hold       // of this process, live: one, or one for each slot
	lastTaken   time.Duration // when the latest of them was taken
	ownReported bool          // that a waiter waits for them, since then
	lastErr     error         // what last kept the first waiter from the lock
	yieldUntil  time.Duration // until when the first waiter lets other processes send their requests
}

// waiter is a caller in a queue.
type waiter struct {
	name      string
	slots     int
	ttl       time.Duration
	turn      chan struct{} // closed when the waiter may send requests
	hasTurn   bool          // turn is closed
	slotFreed chan struct{} // has a value after this process freed a slot during the waiter's turn
	freed     []int         // those slots
	offer     *offer        // the handoff that its turn began with, or nil
}

// beginTurn lets the waiter send requests.
func (w *waiter) beginTurn() {
	w.hasTurn = true
	close(w.turn)
}

// join adds a waiter at the end of a queue.
func (qs *queues) join(name string, slots int, ttl time.Duration) *waiter {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	w := &waiter{name: name, slots: slots, ttl: ttl, turn: make(chan struct{}), slotFreed: make(chan struct{}, 1)}
	q := qs.of(name)
	q.waiters = append(q.waiters, w)
	qs.advance(name, q)
	return w
}

// leave removes a waiter, wherever in the queue it is. A lock that is offered to it is no
// longer.
func (qs *queues) leave(w *waiter) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.of(w.name)
	if i := slices.Index(q.waiters, w); i >= 0 {
		q.waiters = slices.Delete(q.waiters, i, i+1)
	}
	qs.advance(w.name, q)
	if w.offer != nil {
		w.offer.resolve(false)
	}
}

// took notes a hold of this process, before its waiter leaves.
func (qs *queues) took(h *Hold, now time.Duration) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.of(lockOf(h.Name(), h.slot))
	q.holders, q.lastTaken, q.ownReported, q.lastErr = append(q.holders, h), now, false, nil
}

// freed notes that a hold is lost or released. The first waiter may send requests then; if it
// has sent none yet, not before the time of yieldUntil.
func (qs *queues) freed(h *Hold, yieldUntil time.Duration) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	name := lockOf(h.Name(), h.slot)
	q := qs.of(name)
	if i := slices.Index(q.holders, h); i >= 0 {
		q.holders = slices.Delete(q.holders, i, i+1)
	}
	q.yieldUntil = yieldUntil
	if len(q.waiters) > 0 && q.waiters[0].hasTurn {
		w := q.waiters[0]
		w.freed = append(w.freed, h.slot)
		notify(w.slotFreed)
	}
	qs.advance(name, q)
}

// yieldUntil is until when a waiter whose turn it is lets other processes send their requests.
func (qs *queues) yieldUntil(w *waiter) time.Duration {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return qs.of(w.name).yieldUntil
}

// takeFreed returns the slots that this process freed during the waiter's turn, since the last
// call.
func (qs *queues) takeFreed(w *waiter) []int {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	freed := w.freed
	w.freed = nil
	return freed
}

// heldSlots lists the slots that this process holds.
func (qs *queues) heldSlots(name string) (slots []int) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.byName[name]; q != nil {
		for _, h := range q.holders {
			slots = append(slots, h.slot)
		}
	}
	return slots
}

// note keeps what the first waiter's request met, for the errors of those behind it.
func (qs *queues) note(name string, err error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.of(name).lastErr = err
}

// reason is what keeps a waiter from the lock, or nil if that is unknown.
func (qs *queues) reason(w *waiter) error {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byName[w.name]
	switch {
	case q == nil:
		return nil
	case q.holdsAll(w):
		return fmt.Errorf("this process itself holds it: %w", allHeld(w.name, w.slots, q.holders[0].heldError()))
	default:
		return q.lastErr
	}
}

// longOwnHold returns a hold of this process if such holds have kept a waiter from the lock for
// as long as patience, but to one waiter only. again is how long to wait before the next call.
func (qs *queues) longOwnHold(w *waiter, now, patience time.Duration) (h *Hold, again time.Duration) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byName[w.name]
	if q == nil || q.ownReported || !q.holdsAll(w) {
		return nil, patience
	}
	if left := q.lastTaken + patience - now; left > 0 {
		return nil, left
	}
	q.ownReported = true
	return q.holders[0], patience
}

// holdsAll reports whether this process holds every slot that the waiter may take.
func (q *queue) holdsAll(w *waiter) bool {
	var own int
	for _, h := range q.holders {
		if h.slot < w.slots {
			own++
		}
	}
	return own >= w.slots
}

// of returns the queue of a name, a new one if there is none. advance drops it again.
func (qs *queues) of(name string) *queue {
	q := qs.byName[name]
	if q == nil {
		if qs.byName == nil {
			qs.byName = map[string]*queue{}
		}
		q = &queue{}
		qs.byName[name] = q
	}
	return q
}

// advance begins the first waiter's turn if it may take a slot, and drops a queue that nothing
// needs any more.
func (qs *queues) advance(name string, q *queue) {
	switch {
	case len(q.waiters) == 0:
		if len(q.holders) == 0 {
			delete(qs.byName, name)
		}
	case !q.waiters[0].hasTurn && !q.holdsAll(q.waiters[0]):
		q.waiters[0].beginTurn()
	}
}
