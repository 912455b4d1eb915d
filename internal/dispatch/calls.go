// Package dispatch makes calls to a backend for what is due: a limited number at a time, one for many entries
// where the backend can, and without waiting forever for a call that hangs.
package dispatch

import (
	"sync"
	"time"
)

// Calls makes calls for entries that are due. The entries of one class share a limit.
//
// Retries use at most half of a limit; under a limit of 1 they take turns with first attempts. A call that has not returned
// within its patience no longer counts towards the limit, so that another can begin.
//
// All methods must be called with Rules.Mu held.
type Calls[E any] struct {
	rules Rules[E]
	lanes map[int]*lane[E] // by class
}

// Rules say how entries become calls.
type Rules[E any] struct {
	Mu      *sync.Mutex // guards the Calls and their entries; never held during a call
	Workers Workers     // counts the goroutines of the calls

	Limit  int // of the calls under way in each class
	Batch  int // the most entries of one call
	Weight int // what a call for several entries counts towards the limit
	// RetriesFirst makes retries come before first attempts. Otherwise first attempts come first; but while no retry
	// is under way, and the call before was none, the first of them comes by its order, so that a steady flow of first
	// attempts does not keep it waiting forever.
	RetriesFirst bool

	// Before is the order in which entries get a call. Moved is called with an entry's index among those of its kind,
	// and with -1 when it no longer waits.
	Before func(x, y E) bool
	Moved  func(e E, index int)
	// Class is optional: without it all entries are of one class.
	Class func(e E) int
	// Stale is optional. It reports that an entry needs its call no more.
	Stale func(e E) bool
	// Share is optional. It is called before first attempts of a class get a call for several entries, and may Add others.
	Share func(class int)
	// Begin makes a call for entries that no longer wait. Mu is held.
	Begin func(entries []E) Call
}

// Workers is a worker.Group, or what is as good. Once Start returns false, no call begins.
type Workers interface {
	Start() bool
	Done()
}

// Call is one call.
type Call struct {
	Do       func()
	Patience time.Duration // how long it counts towards the limit
	Hung     func()        // optional: called if it has not returned by then
}

// lane has the entries of one class that wait for a call.
type lane[E any] struct {
	class          int
	first, retries *Queue[E]
	limit          limit
}

// running is a call under way.
type running struct {
	Call
	use use
}

// NewCalls makes Calls without entries.
func NewCalls[E any](rules Rules[E]) *Calls[E] {
	return &Calls[E]{rules: rules, lanes: map[int]*lane[E]{}}
}

// lane finds or makes that of an entry.
func (c *Calls[E]) lane(e E) *lane[E] {
	class := 0
	if c.rules.Class != nil {
		class = c.rules.Class(e)
	}
	if c.lanes[class] == nil {
		c.lanes[class] = &lane[E]{
			class: class, limit: limit{max: c.rules.Limit},
			first: NewQueue(c.rules.Before, c.rules.Moved), retries: NewQueue(c.rules.Before, c.rules.Moved),
		}
	}
	return c.lanes[class]
}

func (l *lane[E]) waiting(retry bool) *Queue[E] {
	if retry {
		return l.retries
	}
	return l.first
}

// Add makes an entry wait for a call, which Start makes.
func (c *Calls[E]) Add(e E, retry bool) { c.lane(e).waiting(retry).Push(e) }

// Remove takes an entry out that waits at an index.
func (c *Calls[E]) Remove(e E, retry bool, index int) { c.lane(e).waiting(retry).Remove(index) }

// Start begins calls, as far as the limits allow.
func (c *Calls[E]) Start() {
	for _, l := range c.lanes {
		c.start(l)
	}
}

func (c *Calls[E]) start(l *lane[E]) {
	for c.rules.Workers.Start() {
		r := c.next(l)
		if r == nil {
			c.rules.Workers.Done()
			return
		}
		go c.run(l, r)
	}
}

// next begins the next call; nil if no entry waits, or the limit is reached.
func (c *Calls[E]) next(l *lane[E]) *running {
	for _, q := range []*Queue[E]{l.first, l.retries} {
		for q.Len() > 0 && c.rules.Stale != nil && c.rules.Stale(q.First()) {
			q.Remove(0)
		}
	}
	if n := l.first.Len(); c.rules.Share != nil && n > 0 && n < c.rules.Batch && l.limit.free(false) >= c.rules.Weight {
		c.rules.Share(l.class)
	}
	for _, retry := range []bool{c.retryFirst(l), !c.retryFirst(l)} {
		if r := c.take(l, retry); r != nil {
			return r
		}
	}
	return nil
}

// retryFirst reports whether the next call is one for retries, if there may be one.
func (c *Calls[E]) retryFirst(l *lane[E]) bool {
	switch {
	case c.rules.RetriesFirst || l.first.Len() == 0 || l.retries.Len() == 0:
		return true
	default:
		return l.limit.retrying == 0 && !l.limit.retried && c.rules.Before(l.retries.First(), l.first.First())
	}
}

// take takes entries for one call from a queue, if what the call counts for is free.
func (c *Calls[E]) take(l *lane[E], retry bool) *running {
	q, weight, most := l.waiting(retry), 1, 1
	if c.rules.Batch > 1 && q.Len() > 1 {
		weight, most = c.rules.Weight, c.rules.Batch
	}
	if q.Len() == 0 || l.limit.free(retry) < weight {
		return nil
	}
	var entries []E
	for q.Len() > 0 && len(entries) < most {
		e := q.First()
		q.Remove(0)
		if c.rules.Stale == nil || !c.rules.Stale(e) {
			entries = append(entries, e)
		}
	}
	return &running{c.rules.Begin(entries), l.limit.take(weight, retry)}
}

// run makes one call after another, until none is left to begin.
func (c *Calls[E]) run(l *lane[E], r *running) {
	defer c.rules.Workers.Done()
	for r != nil {
		this := r // the timer may fire when r is the next call
		timer := time.AfterFunc(r.Patience, func() { c.giveUp(l, this) })
		r.Do()
		timer.Stop()
		c.rules.Mu.Lock()
		if r.use.end() {
			r = c.next(l)
			c.start(l)
		} else { // other calls have begun in its place
			r = nil
		}
		c.rules.Mu.Unlock()
	}
}

// giveUp lets other calls begin in the place of one that has not returned.
func (c *Calls[E]) giveUp(l *lane[E], r *running) {
	c.rules.Mu.Lock()
	hung := r.use.end()
	c.start(l)
	c.rules.Mu.Unlock()
	if hung && r.Hung != nil {
		r.Hung()
	}
}
