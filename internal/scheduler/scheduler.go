// Package scheduler runs calls when they are due, a limited number at a time.
package scheduler

import (
	"cmp"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/priority"
	"github.com/holdfast-go/holdfast/internal/worker"
)

// Scheduler runs calls when they are due, up to a concurrency limit. However many calls wait,
// there is one timer; a goroutine exists only while calls are due.
//
// First attempts come before retries, and retries use at most half of the limit. While no retry
// is running, the first of them takes its turn by its arrival, so that a steady flow of first
// attempts does not starve the retries. A call that has not returned within its patience no
// longer counts towards the limit.
//
// All methods are safe for concurrent use.
type Scheduler struct {
	now      func() time.Duration
	patience time.Duration // for entries that have none of their own
	workers  *worker.Group

	mu      sync.Mutex              // never held during a call
	limit   worker.Limit            // of running calls
	waiting *priority.Queue[*Entry] // not due yet, by time
	first   *priority.Queue[*Entry] // due first attempts, in order of arrival
	retries *priority.Queue[*Entry] // due retries, in order of arrival
	arrived uint64                  // counts the entries that became due
	timer   *time.Timer             // nil until it is needed
	firesAt time.Duration           // when the timer fires, if armed
	armed   bool
}

// Entry is one call. Do is called again whenever Set has planned it.
type Entry struct {
	Do       func()
	Patience time.Duration // how long a call counts towards the limit; 0: the scheduler's

	at    time.Duration
	retry bool
	order uint64                  // of arrival, once it is due
	in    *priority.Queue[*Entry] // nil: in no queue
	index int                     // in that queue
}

// New makes a scheduler with the clock now. Its calls run in workers, at most limit at a time.
func New(now func() time.Duration, limit int, patience time.Duration, workers *worker.Group) *Scheduler {
	byTime := func(x, y *Entry) bool { return x.at < y.at }
	byArrival := func(x, y *Entry) bool { return x.order < y.order }
	moved := func(e *Entry, index int) { e.index = index }
	return &Scheduler{
		now: now, limit: worker.Limit{Max: limit}, patience: patience, workers: workers,
		waiting: priority.New(byTime, moved), first: priority.New(byArrival, moved), retries: priority.New(byArrival, moved),
	}
}

// Set plans the call of an entry for a time, in place of an earlier plan. A running call is not
// affected.
func (s *Scheduler) Set(e *Entry, at time.Duration, retry bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(e, at, retry)
}

// Hasten is Set, except that an earlier plan is kept.
func (s *Scheduler) Hasten(e *Entry, at time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.in == nil || e.in == s.waiting && at < e.at {
		s.set(e, at, false)
	}
}

func (s *Scheduler) set(e *Entry, at time.Duration, retry bool) {
	if e.in == s.due(retry) && at <= s.now() {
		return // it keeps its position
	}
	e.leaveQueue()
	e.at, e.retry = at, retry
	e.enter(s.waiting)
	s.update()
}

// Cancel removes an entry. Its call may be running, or about to begin.
func (s *Scheduler) Cancel(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.leaveQueue()
	s.update()
}

// RunAllNow makes every entry due.
func (s *Scheduler) RunAllNow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.waiting.Len() > 0 {
		s.makeDue(s.waiting.First())
	}
	s.update()
}

// Idle reports whether a first attempt that is due would begin at once.
func (s *Scheduler) Idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit.Free(false) > 0 && s.first.Len() == 0
}

// update begins the calls that are due and arms the timer for the next one.
func (s *Scheduler) update() {
	now := s.now()
	for s.waiting.Len() > 0 && s.waiting.First().at <= now {
		s.makeDue(s.waiting.First())
	}
	for c := s.begin(); c != nil; c = s.begin() {
		s.workers.Go(func() { s.run(c) })
	}
	if s.waiting.Len() == 0 {
		if s.armed {
			s.timer.Stop()
			s.armed = false
		}
		return
	}
	at := s.waiting.First().at
	if s.armed && at >= s.firesAt {
		return
	}
	s.firesAt, s.armed = at, true
	if s.timer == nil {
		s.timer = time.AfterFunc(at-now, s.onTimer)
	} else {
		s.timer.Reset(at - now)
	}
}

func (s *Scheduler) onTimer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	s.update()
}

func (s *Scheduler) makeDue(e *Entry) {
	e.leaveQueue()
	s.arrived++
	e.order = s.arrived
	e.enter(s.due(e.retry))
}

// due is the queue of first attempts or of retries that are due.
func (s *Scheduler) due(retry bool) *priority.Queue[*Entry] {
	if retry {
		return s.retries
	}
	return s.first
}

// call is a running call.
type call struct {
	do       func()
	patience time.Duration
	use      worker.Use // of the limit
}

// begin takes the next call off its queue; nil if there is none, or the limit is reached.
func (s *Scheduler) begin() *call {
	e := s.next()
	if e == nil {
		return nil
	}
	e.leaveQueue()
	return &call{do: e.Do, patience: cmp.Or(e.Patience, s.patience), use: s.limit.Take(1, e.retry)}
}

// next is the entry whose call comes next; nil if there is none, or the limit is reached.
func (s *Scheduler) next() *Entry {
	var first, retry *Entry
	if s.first.Len() > 0 && s.limit.Free(false) > 0 {
		first = s.first.First()
	}
	if s.retries.Len() > 0 && s.limit.Free(true) > 0 {
		retry = s.retries.First()
	}
	if first == nil || retry != nil && s.limit.Max > 1 && !s.limit.Retrying() && retry.order < first.order {
		return retry
	}
	return first
}

// run runs one call after another, until none is due.
func (s *Scheduler) run(c *call) {
	for c != nil {
		current := c // the timer may fire when c is the next call
		timer := time.AfterFunc(c.patience, func() { s.giveUp(current) })
		c.do()
		timer.Stop()
		s.mu.Lock()
		if c.use.End() {
			c = s.begin()
		} else { // another call has begun in its place
			c = nil
		}
		s.mu.Unlock()
	}
}

// giveUp lets another call begin in the place of one that has not returned.
func (s *Scheduler) giveUp(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.use.End()
	s.update()
}

func (e *Entry) enter(q *priority.Queue[*Entry]) {
	e.in = q
	q.Push(e)
}

// leaveQueue takes an entry out of the queue that it is in, if any.
func (e *Entry) leaveQueue() {
	if e.in != nil {
		e.in.Remove(e.index)
		e.in = nil
	}
}
