package engine

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/settings"
)

// queues has one queue for each name that this process waits for or holds. Waiters are served
// first-in-first-out, and only the first sends requests to the backend. None does while this
// process itself holds the lock, or every slot that the first waiter may take.
type queues struct {
	mu     sync.Mutex
	byName map[string]*queue
}

// queue is small as long as nobody waits: a process may hold very many locks.
type queue struct {
	holder       *Hold // of this process, live, or nil; those of other slots follow it, in the order of their grants
	*waiterQueue       // nil until a waiter joins
}

// waiterQueue is the part of a queue that only waiters need.
type waiterQueue struct {
	waiters     []*localWaiter // in order of arrival
	ownReported bool           // that the present holds keep a waiter waiting
	lastErr     error          // what last kept the first waiter from the lock
	yieldUntil  time.Duration  // until when the first waiter lets other processes send their requests
}

// first returns the first waiter, or nil. q may be nil.
func (q *queue) first() *localWaiter {
	if q == nil || q.waiterQueue == nil || len(q.waiters) == 0 {
		return nil
	}
	return q.waiters[0]
}

// holders ranges over the live holds of this process. q may be nil.
func (q *queue) holders(yield func(*Hold) bool) {
	if q == nil {
		return
	}
	for h := q.holder; h != nil && yield(h); h = h.nextHolder {
	}
}

// addHolder adds a hold at the end.
func (q *queue) addHolder(h *Hold) {
	end := &q.holder
	for *end != nil {
		end = &(*end).nextHolder
	}
	*end = h
}

// dropHolder removes a hold, if it is there.
func (q *queue) dropHolder(h *Hold) {
	for at := &q.holder; *at != nil; at = &(*at).nextHolder {
		if *at == h {
			*at, h.nextHolder = h.nextHolder, nil
			return
		}
	}
}

// localWaiter is a caller in a queue of this process.
type localWaiter struct {
	name       string
	slots      int
	admitted   chan struct{} // closed when the waiter may send requests
	isAdmitted bool          // admitted is closed
	slotFreed  chan struct{} // has a value after this process freed a slot since the waiter was admitted
	freed      []int         // those slots
}

// beginTurn lets the waiter send requests.
func (w *localWaiter) beginTurn() {
	w.isAdmitted = true
	close(w.admitted)
}

// join adds a waiter at the end of a queue.
func (qs *queues) join(name string, s settings.Settings) *localWaiter {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	w := &localWaiter{name: name, slots: s.Slots, admitted: make(chan struct{}), slotFreed: make(chan struct{}, 1)}
	q := qs.of(name)
	if q.waiterQueue == nil {
		q.waiterQueue = &waiterQueue{yieldUntil: math.MinInt64} // a clock may be below zero
	}
	q.waiters = append(q.waiters, w)
	qs.advance(name, q)
	return w
}

// awaited reports whether this process waits for one of the names.
func (qs *queues) awaited(names []string) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return slices.ContainsFunc(names, func(name string) bool { return qs.byName[name].first() != nil })
}

// leave removes a waiter, wherever in the queue it is.
func (qs *queues) leave(w *localWaiter) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.of(w.name) // its waiterQueue is not nil, since w has joined
	if i := slices.Index(q.waiters, w); i >= 0 {
		q.waiters = slices.Delete(q.waiters, i, i+1)
	}
	qs.advance(w.name, q)
}

// took notes a hold of this process, before its waiter leaves.
func (qs *queues) took(h *Hold, now time.Duration) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.of(lockOf(h.Name(), h.Slot()))
	q.addHolder(h)
	h.takenAt = now
	if q.waiterQueue != nil {
		q.ownReported, q.lastErr = false, nil
	}
}

// freed notes that a hold is lost or released. The first waiter may now send requests. If its turn
// begins only now, it first waits until yieldUntil.
func (qs *queues) freed(h *Hold, yieldUntil time.Duration) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	name := lockOf(h.Name(), h.Slot())
	q := qs.of(name)
	q.dropHolder(h)
	if q.waiterQueue != nil {
		q.yieldUntil = yieldUntil
	}
	if w := q.first(); w != nil && w.isAdmitted {
		w.freed = append(w.freed, h.Slot())
		notify(w.slotFreed)
	}
	qs.advance(name, q)
}

// asksAgain has the first waiter for a lock without slots send a request: one of this process that is in doubt may have been
// granted, and a grant ends the position that all its waiters of one mode share.
func (qs *queues) asksAgain(name string) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if w := qs.byName[name].first(); w != nil && w.isAdmitted && w.slots == 1 {
		w.freed = append(w.freed, 0)
		notify(w.slotFreed)
	}
}

// yieldUntil is until when a waiter whose turn it is lets other processes send their requests.
func (qs *queues) yieldUntil(w *localWaiter) time.Duration {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return qs.of(w.name).yieldUntil
}

// takeFreed returns the slots that this process freed since the waiter was admitted or since the last
// call.
func (qs *queues) takeFreed(w *localWaiter) []int {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	freed := w.freed
	w.freed = nil
	return freed
}

// heldSlots lists the slots that this process holds alone.
func (qs *queues) heldSlots(name string) (slots []int) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for h := range qs.byName[name].holders {
		if h.Mode() == driver.Exclusive {
			slots = append(slots, h.Slot())
		}
	}
	return slots
}

// note keeps what the first waiter's request met, for the errors of those behind it.
func (qs *queues) note(name string, err error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.byName[name]; q.first() != nil {
		q.lastErr = err
	}
}

// reason is what keeps a waiter from the lock, or nil if that is unknown.
func (qs *queues) reason(w *localWaiter) error {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byName[w.name]
	switch {
	case q == nil:
		return nil
	case q.holdsAll(w):
		return driver.Errorf("this process itself holds it: %w", allHeld(w.name, w.slots, q.holder.heldError()))
	default:
		return q.lastErr
	}
}

// longOwnHold returns a hold of this process if such holds have kept a waiter from the lock for
// as long as patience, but to one waiter only. again is how long to wait before the next call.
func (qs *queues) longOwnHold(w *localWaiter, now, patience time.Duration) (h *Hold, again time.Duration) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byName[w.name]
	if q == nil || q.ownReported || !q.holdsAll(w) {
		return nil, patience
	}
	var lastTaken time.Duration
	for h := range q.holders {
		lastTaken = max(lastTaken, h.takenAt)
	}
	if left := lastTaken + patience - now; left > 0 {
		return nil, left
	}
	q.ownReported = true
	return q.holder, patience
}

// holdsAll reports whether this process holds every slot that the waiter may take. A lock that it holds shared does not
// count: a reader may be granted it, too, and a writer needs a position in the queue that all processes share.
func (q *queue) holdsAll(w *localWaiter) bool {
	var own int
	for h := range q.holders {
		if h.Slot() < w.slots && h.Mode() == driver.Exclusive {
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

// advance admits the first waiter if it may take a slot, and drops a queue that nothing
// needs any more.
func (qs *queues) advance(name string, q *queue) {
	switch w := q.first(); {
	case w == nil:
		if q.holder == nil {
			delete(qs.byName, name)
		}
	case !w.isAdmitted && !q.holdsAll(w):
		w.beginTurn()
	}
}
