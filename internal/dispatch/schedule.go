package dispatch

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Schedule makes calls for entries at the times for which they are planned. However many entries
// are planned, there is one timer; a goroutine exists only while calls are under way.
//
// All methods are safe for concurrent use.
type Schedule[E Planned] struct {
	now   func() time.Duration
	early func(e E, now time.Duration) bool

	mu      sync.Mutex // never held during a call
	waiting *Queue[E]  // not due yet, by time
	due     *Calls[E]
	arrived uint64      // counts the entries that became due
	timer   *time.Timer // nil until it is needed
	firesAt time.Time   // when the timer fires, if armed; now may count a suspend of the system, which timers do not
	armed   bool
}

// Plan is a part of every entry of a Schedule.
type Plan struct {
	at    time.Duration
	order uint64 // of arrival, once it is due
	index int32  // where it is in its queue
	in    where
	retry bool
}

type where uint8

const (
	nowhere where = iota
	waiting       // in Schedule.waiting
	due           // in Schedule.due
)

func (p *Plan) plan() *Plan { return p }

// Planned is implemented by types that embed a Plan.
type Planned interface{ plan() *Plan }

// Single are the rules for entries each of which has a call of its own: at most limit at a time.
func Single[E any](workers Workers, limit int, begin func(e E) Call) Rules[E] {
	return Rules[E]{Workers: workers, Limit: limit, Begin: func(entries []E) Call { return begin(entries[0]) }}
}

// NewSchedule makes a Schedule with the clock now. The rules need no Mu, Before, Moved and Share. With early, which may
// be nil, an entry may share a call that is made before its time.
func NewSchedule[E Planned](now func() time.Duration, rules Rules[E], early func(e E, now time.Duration) bool) *Schedule[E] {
	s := &Schedule[E]{now: now, early: early}
	rules.Mu = &s.mu
	rules.Before = func(x, y E) bool { return x.plan().order < y.plan().order }
	rules.Moved = func(e E, index int) {
		if p := e.plan(); index >= 0 {
			p.index = int32(index)
		} else {
			p.in = nowhere // whoever took it out
		}
	}
	if early != nil {
		rules.Share = s.share
	}
	s.waiting = NewQueue(func(x, y E) bool { return x.plan().at < y.plan().at }, rules.Moved)
	s.due = NewCalls(rules)
	return s
}

// Set plans the call of an entry for a time, in place of an earlier plan. A running call is not
// affected.
func (s *Schedule[E]) Set(e E, at time.Duration, retry bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := e.plan()
	if p.in == due && p.retry == retry && at <= s.now() {
		return // it keeps its position
	}
	s.remove(e)
	p.at, p.retry, p.in = at, retry, waiting
	s.waiting.Push(e)
	s.update()
}

// Cancel removes an entry. Its call may be under way, or about to begin.
func (s *Schedule[E]) Cancel(e E) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(e)
	s.update()
}

// RunAllNow makes every entry due.
func (s *Schedule[E]) RunAllNow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.waiting.Len() > 0 {
		s.makeDue(s.waiting.First())
	}
	s.update()
}

// Idle reports whether a first attempt of a class without entries that is due would begin at once.
func (s *Schedule[E]) Idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.due.lanes[0]
	return l == nil || l.limit.free(false) > 0 && l.first.Len() == 0
}

// update begins the calls that are due and arms the timer for the next one.
func (s *Schedule[E]) update() {
	now := s.now()
	for s.waiting.Len() > 0 && s.waiting.First().plan().at <= now {
		s.makeDue(s.waiting.First())
	}
	s.due.Start()
	if s.waiting.Len() == 0 {
		if s.armed {
			s.timer.Stop()
			s.armed = false
		}
		return
	}
	wait := s.waiting.First().plan().at - now
	at := time.Now().Add(wait)
	if s.armed && !at.Before(s.firesAt) {
		return
	}
	s.firesAt, s.armed = at, true
	if s.timer == nil {
		s.timer = time.AfterFunc(wait, s.onTimer)
	} else {
		s.timer.Reset(wait)
	}
}

func (s *Schedule[E]) onTimer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	s.update()
}

// share makes due what may share a call that is made now.
func (s *Schedule[E]) share(int) {
	now := s.now()
	var all []E
	for _, e := range s.waiting.All() {
		if s.early(e, now) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(x, y E) int { return cmp.Compare(x.plan().at, y.plan().at) })
	for _, e := range all {
		s.makeDue(e)
	}
}

func (s *Schedule[E]) makeDue(e E) {
	s.remove(e)
	s.arrived++
	p := e.plan()
	p.order, p.in = s.arrived, due
	s.due.Add(e, p.retry)
}

// remove takes an entry out of the queue that it is in, if any.
func (s *Schedule[E]) remove(e E) {
	p := e.plan()
	switch p.in {
	case waiting:
		s.waiting.Remove(int(p.index))
	case due:
		s.due.Remove(e, p.retry, int(p.index))
	}
}
