package holdfast

import (
	"cmp"
	"container/heap"
	"sync"
	"time"
)

// agenda has calls made when they are due, and no more at once than its limit. However
// many wait, there is one timer, and a goroutine only for a call under way: it goes on
// with what is due next, and ends when nothing is.
//
// What comes for the first time goes before retries, and those may take at most half
// of the limit, so that what fails again and again does not delay the rest. One place, of
// several, they have in their turn, so that they are not kept waiting for ever by what
// comes for the first time again and again. A call that
// has not returned within its patience keeps no place.
type agenda struct {
	now      func() time.Duration
	limit    int
	patience time.Duration // with entries that have none of their own
	workers  *tasks

	mu       sync.Mutex // never held across a call
	waiting  entryHeap  // not due yet, by time
	ready    entryHeap  // due, for the first time, in the order to go by
	again    entryHeap  // due, retries
	arrived  uint64     // counts what became ready
	running  int
	retrying int // how many of those that run are retries
	timer    *time.Timer
	rings    time.Duration // when the timer rings, if armed
	armed    bool
}

// entry is one call on an agenda.
type entry struct {
	do       func()
	patience time.Duration // how long a call may keep its place; 0: as the agenda has it
	at       time.Duration
	retry    bool
	order    uint64     // among those that are ready
	in       *entryHeap // nil: on neither heap
	index    int
}

func newAgenda(now func() time.Duration, limit int, patience time.Duration, workers *tasks) *agenda {
	a := &agenda{now: now, limit: limit, patience: patience, workers: workers}
	a.waiting.before = func(x, y *entry) bool { return x.at < y.at }
	a.ready.before = func(x, y *entry) bool { return x.order < y.order }
	a.again.before = a.ready.before
	return a
}

// set plans the call of an entry, or plans it anew. A call under way is not affected.
func (a *agenda) set(e *entry, at time.Duration, retry bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.in == a.line(retry) && at <= a.now() {
		return // it keeps its place
	}
	e.out()
	e.at, e.retry = at, retry
	heap.Push(&a.waiting, e)
	a.settle()
}

// unset takes an entry off. Its call may be under way, or about to begin.
func (a *agenda) unset(e *entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e.out()
	a.settle()
}

// hurry makes everything due now.
func (a *agenda) hurry() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.waiting.entries) > 0 {
		a.promote()
	}
	a.settle()
}

// free reports whether a call that is due would begin at once.
func (a *agenda) free() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.running < a.limit && len(a.ready.entries) == 0
}

// settle sees to it that what is due is begun, and that the timer rings for the rest.
func (a *agenda) settle() {
	now := a.now()
	for len(a.waiting.entries) > 0 && a.waiting.entries[0].at <= now {
		a.promote()
	}
	for j := a.next(); j != nil; j = a.next() {
		a.workers.run(func() { a.work(j) })
	}
	switch {
	case len(a.waiting.entries) == 0:
		if a.armed {
			a.timer.Stop()
			a.armed = false
		}
	case !a.armed || a.waiting.entries[0].at < a.rings:
		a.rings, a.armed = a.waiting.entries[0].at, true
		if a.timer == nil {
			a.timer = time.AfterFunc(a.rings-now, a.ring)
		} else {
			a.timer.Reset(a.rings - now)
		}
	}
}

func (a *agenda) ring() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.armed = false
	a.settle()
}

// promote makes what is first among the waiting ready.
func (a *agenda) promote() {
	e := a.waiting.entries[0]
	e.out()
	a.arrived++
	e.order = a.arrived
	heap.Push(a.line(e.retry), e)
}

// line is where those wait that are due.
func (a *agenda) line(retry bool) *entryHeap {
	if retry {
		return &a.again
	}
	return &a.ready
}

// job is a call that has a place.
type job struct {
	do       func()
	patience time.Duration
	retry    bool
	left     bool // its place is given back
}

// next gives a place to what is to be called next; nil if there is none.
func (a *agenda) next() *job {
	if a.running >= a.limit {
		return nil
	}
	e := a.first()
	if e == nil {
		return nil
	}
	if e.retry {
		a.retrying++
	}
	a.running++
	e.out()
	return &job{do: e.do, patience: cmp.Or(e.patience, a.patience), retry: e.retry}
}

// first is what is to be called next, if there is a place; nil if nothing is.
func (a *agenda) first() *entry {
	var fresh, again *entry
	if len(a.ready.entries) > 0 {
		fresh = a.ready.entries[0]
	}
	if len(a.again.entries) > 0 && a.retrying < max(a.limit/2, 1) {
		again = a.again.entries[0]
	}
	if fresh == nil || again != nil && a.limit > 1 && a.retrying == 0 && again.order < fresh.order {
		return again
	}
	return fresh
}

// work makes calls until there is none to make.
func (a *agenda) work(j *job) {
	for j != nil {
		late := j // the timer may ring when the next job is j
		timer := time.AfterFunc(late.patience, func() { a.giveUp(late) })
		j.do()
		timer.Stop()
		a.mu.Lock()
		if a.leave(j) {
			j = a.next()
		} else { // another has its place
			j = nil
		}
		a.mu.Unlock()
	}
}

// giveUp lets others have the place of a job that has not returned.
func (a *agenda) giveUp(j *job) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leave(j)
	a.settle()
}

// leave gives the place of a job back, once.
func (a *agenda) leave(j *job) bool {
	if j.left {
		return false
	}
	j.left = true
	a.running--
	if j.retry {
		a.retrying--
	}
	return true
}

// out takes an entry off whatever heap it is on.
func (e *entry) out() {
	if e.in != nil {
		heap.Remove(e.in, e.index)
	}
}

// entryHeap is for container/heap.
type entryHeap struct {
	entries []*entry
	before  func(x, y *entry) bool
}

func (h *entryHeap) Len() int           { return len(h.entries) }
func (h *entryHeap) Less(i, j int) bool { return h.before(h.entries[i], h.entries[j]) }
func (h *entryHeap) Swap(i, j int) {
	h.entries[i], h.entries[j] = h.entries[j], h.entries[i]
	h.entries[i].index, h.entries[j].index = i, j
}

// Push and Pop are for container/heap.
func (h *entryHeap) Push(x any) {
	e := x.(*entry) //nolint:forcetypeassert // container/heap gives back what set gave it
	e.in, e.index = h, len(h.entries)
	h.entries = append(h.entries, e)
}

func (h *entryHeap) Pop() any {
	last := len(h.entries) - 1
	e := h.entries[last]
	h.entries[last] = nil
	h.entries = h.entries[:last]
	e.in = nil
	return e
}
