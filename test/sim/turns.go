package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
	"github.com/holdfast-go/holdfast/test/history"
)

// The rules for queues. They do not trust package lockstate: the simulator has its own notes of who
// waits, and of when a lock became free.
const (
	// InTurn: while a lock is reserved, it is granted only to the waiter whose turn it is.
	InTurn history.Rule = "granted out of turn"
	// ShortTurns: a free lock is reserved for no longer than promised.
	ShortTurns history.Rule = "reserved for too long"
	// Positions: a waiter keeps its position until it is granted the lock, leaves, does not come when
	// woken, or does not refresh its position in time; and no longer.
	Positions history.Rule = "position lost"
	// NotOvertaken: without faults, the first waiter of the queue gets the lock.
	NotOvertaken history.Rule = "overtaken"
	// Unwoken: once waking has begun, a waiter without a position that is woken asks for one.
	Unwoken history.Rule = "waits unwoken"
	// Revisions: no two grants or renewals of a lock have one revision, also if a fail-over has undone one of them.
	Revisions history.Rule = "revision used twice"
	// SlowGrant: without faults, a released lock is granted to the first waiter that is alive soon.
	SlowGrant history.Rule = "slow grant"
)

// turns are the simulator's notes of one lock. Times are real ones.
type turns struct {
	freed    time.Duration // when the lock became free by a release
	known    bool          // and nothing has disturbed the server's clock and records since
	released int           // counts its releases
	woken    []woken       // by the latest release
}

// disturbTurns forgets when locks became free: the clock or the records of the server have changed.
func (s *server) disturbTurns() {
	for _, t := range s.turns {
		t.known = false
	}
}

func (s *server) turnsOf(name string) *turns {
	if s.turns[name] == nil {
		s.turns[name] = &turns{}
	}
	return s.turns[name]
}

// grantInTurn applies the rules of the backend.
func (s *server) grantInTurn(r *record, req driver.Request, waiter string, now lockstate.Moment) bool {
	if s.isMongo() {
		return r.AcquireInTurn(req, req.ID.Reveal(), waiter, now)
	}
	return r.Acquire(req, req.ID.Reveal(), now)
}

// woken is a waiter that a release wakes, with its position and its turn then.
type woken struct {
	waiter   string
	position int
	turn     time.Duration
}

// hint is what wakes the waiter. Its turn is as its store says.
func (w woken) hint(name string) hint { return hint{name, w.waiter, w.turn} }

// toWake lists the waiters that a release wakes.
func toWake(r *record, now lockstate.Moment) (all []woken) {
	for _, w := range r.Woken(now) {
		all = append(all, woken{w.ID, r.Position(w.ID), r.Turn(w.ID)})
	}
	return all
}

// freed notes that a lock was released. From here on the turns of its waiters count.
func (s *server) freed(name string, r *record, now lockstate.Moment) {
	if !s.isMongo() {
		return
	}
	if r.Holder != "" { // other readers have it
		return
	}
	r.Expires = now.Elapsed
	t := s.turnsOf(name)
	t.freed, t.known, t.woken = s.w.now(), true, nil
	if !s.answerLost { // otherwise nobody sends hints
		t.woken = toWake(r, now)
	}
	t.released++
	s.expectGrant(name, r, t, t.released)
}

// hint wakes a waiter, if its process lives.
func (s *server) hint(h hint) {
	if p := s.waiters[h.waiter]; p != nil && p.queue != nil {
		s.w.after(s.dice.upTo(s.w.plan.Latency), func() { p.queue.deliver(h) })
	}
}

// leave removes a waiter from queues.
func (s *server) leave(waiter string, names []string) (a answer) {
	for _, name := range names {
		if w := s.change(name, func(r *record, now lockstate.Moment) bool {
			if r.Position(waiter) == 0 {
				return false
			}
			before := slices.Clone(r.Queue)
			r.Leave(waiter)
			s.checkPositions(name, before, r.Queue, func(i int) bool { return before[i].ID == waiter })
			if len(r.Readers) > 0 { // readers may have waited behind it
				for _, one := range toWake(r, now) {
					s.hint(one.hint(name))
				}
			}
			return true
		}); w != nil {
			a.matched = true
		}
	}
	return a
}

// confirm is a linearizable read: it reports whether a lease has the lock, and whom to wake if nobody
// has it. What it shows is certain when a majority has it.
func (s *server) confirm(l driver.Lease) (a answer) {
	a.write = s.noop()
	switch r := s.records[l.Name]; {
	case r == nil:
	case r.Has(l.ID.Reveal()):
		a.matched = true
	case r.Holder == "" || len(r.Readers) > 0:
		a.waiters = toWake(r, s.moment())
	}
	return a
}

// refused checks a refusal.
func (s *server) refused(p *process, req driver.Request, r *record, before []lockstate.Waiter, now lockstate.Moment, err error) {
	if !s.isMongo() {
		return
	}
	waiter := string(req.Waiter)
	s.waiters[waiter] = p
	s.checkMode(req, before)
	var held *driver.HeldError
	if t := s.turnsOf(req.Name); errors.As(err, &held) && held.Reserved && t.known {
		const tolerance = 10 * time.Millisecond // clocks drift, and count milliseconds
		if past := s.w.now() - t.freed - driver.Turn(len(before)+1); past > tolerance {
			s.w.violate(ShortTurns, "%q is refused to %s %v after it became free, with %d waiters", req.Name, p.name, s.w.now()-t.freed, len(before))
		}
	}
	s.checkPositions(req.Name, before, r.Queue, func(i int) bool { return before[i].Until <= now.Elapsed && before[i].ID != waiter })
	if n := len(r.Queue); n > len(before) && r.Queue[n-1].ID != waiter {
		s.w.violate(Positions, "%q: %s enters the queue before others", req.Name, p.name)
	}
	if i := r.Position(waiter) - 1; i >= 0 && req.QueueFor > 0 && r.Queue[i].Until-now.Elapsed < req.QueueFor*2/3 {
		s.w.violate(Positions, "%q: %s asks again, and its position ends in %v", req.Name, p.name, r.Queue[i].Until-now.Elapsed)
	}
}

// checkMode checks that a waiter asks for a lock in one mode: readers and writers of a process have positions of their own.
func (s *server) checkMode(req driver.Request, before []lockstate.Waiter) {
	for i, w := range before {
		if w.ID == string(req.Waiter) && w.Shared != (req.Mode == driver.Shared) {
			s.w.violate(NotOvertaken, "%q: a request in mode %v takes the position %d of %s, who asks in another", req.Name, req.Mode, i+1, w.ID)
		}
	}
}

// granted checks a grant. free says that nobody held the lock.
func (s *server) granted(p *process, req driver.Request, r *record, before []lockstate.Waiter, free bool, now lockstate.Moment) {
	if !s.isMongo() {
		return
	}
	mine := slices.IndexFunc(before, func(w lockstate.Waiter) bool { return w.ID == string(req.Waiter) })
	place := mine
	if place < 0 {
		place = len(before)
	}
	s.checkMode(req, before)
	for i, w := range before[:place] {
		if len(r.Readers) > 1 && !w.Shared && w.Until > now.Elapsed { // one that takes over from a stuck holder is the only one
			s.w.violate(NotOvertaken, "%q is granted to %s as one more reader, although %s waits at position %d to have it alone", req.Name, p.name,
				w.ID, i+1)
		}
	}
	for req.Mode == driver.Shared && place > 0 && before[place-1].Shared { // readers that follow one another have one turn
		place--
	}
	t := s.turnsOf(req.Name)
	if free && t.known {
		const tolerance = 10 * time.Millisecond
		if early := t.freed + driver.Turn(place+1) - s.w.now(); early > tolerance {
			s.w.violate(InTurn, "%q is granted to %s at place %d of %d, %v before its turn", req.Name, p.name, place+1, len(before), early)
		}
		s.checkOvertaken(p, req.Name, before[:place], t)
	}
	t.known = false
	gone := func(i int) bool { return i == mine || free && i < min(place, driver.WokenOf(len(before))) }
	s.checkPositions(req.Name, before, r.Queue, gone)
	for i, w := range before {
		if gone(i) && r.Position(w.ID) > 0 {
			s.w.violate(Positions, "%q: %s keeps position %d of %d although its turn is over", req.Name, w.ID, i+1, len(before))
		}
	}
}

// checkTry checks that a reader that only tries does not ask in the place of one of its process that waits. It would end that
// position.
func (l *link) checkTry(req driver.Request) {
	w := l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	r, q := w.server.records[req.Name], l.p.queue
	if r != nil && q != nil && r.Position(string(req.Waiter)) > 0 && q.waitsSince(req.Name, string(req.Waiter), w.now()-2*w.plan.Latency) {
		w.violate(NotOvertaken, "%q: a reader of %s that tries asks in the place of one that waits", req.Name, l.p.name)
	}
}

// checkPositions checks that a change of a queue has kept its order, and has removed only waiters
// that may go.
func (s *server) checkPositions(name string, before, after []lockstate.Waiter, mayGo func(i int) bool) {
	next := 0
	for i, w := range before {
		if next < len(after) && after[next].ID == w.ID {
			next++
		} else if !mayGo(i) {
			s.w.violate(Positions, "%q: %s loses position %d of %d", name, w.ID, i+1, len(before))
			return
		}
	}
}

// longestPosition is a little longer than a position lasts without another request: four times the interval at which a waiter that is
// woken asks again.
const longestPosition = 90 * time.Second

// settled is how long after a fault every waiter is certainly in its usual state again.
const settled = 15 * time.Second

// quietSince reports whether there has been no fault since a while before a time. A fault that has ended
// by now may have lost the hint that was sent then.
func (w *world) quietSince(since time.Duration) bool {
	now := w.now()
	if w.plan.Noise > 0 && since < w.plan.Heal+settled {
		return false
	}
	for _, f := range w.plan.Faults { // sorted by At
		end := f.At + f.For
		if f.Kind == Crash || f.Kind == Stop { // those that are left are not disturbed
			end = f.At
		}
		if f.At <= now && since < end+settled {
			return false
		}
	}
	return true
}

// waitsSince reports whether a living process has been waiting for a lock since a time, and hints
// reach it.
func (s *server) waitsSince(waiter, name string, since time.Duration) bool {
	p := s.waiters[waiter]
	return p != nil && !p.closed && p.ctx.Err() == nil && p.queue.waitsSince(name, waiter, since)
}

// checkOvertaken checks that nobody who was woken and waits was before the one who is granted the lock.
// A waiter that moved forward after it was woken comes too late: those before it were dead, and their
// time ran out in between.
func (s *server) checkOvertaken(p *process, name string, passed []lockstate.Waiter, t *turns) {
	if !s.w.quietSince(t.freed) {
		return
	}
	for i, w := range passed {
		came := func(one woken) bool { return one.waiter == w.ID && one.position == i+1 }
		if slices.ContainsFunc(t.woken, came) && s.waitsSince(w.ID, name, t.freed) {
			s.w.violate(NotOvertaken, "%q is granted to %s %v after its release, although %s waits at position %d", name, p.name, s.w.now()-t.freed,
				w.ID, i+1)
			return
		}
	}
}

// expectGrant checks later that a released lock was granted to a waiter: to the first soon, and to
// the second one turn later if the first is dead. Behind those that the release wakes, a waiter polls.
func (s *server) expectGrant(name string, r *record, t *turns, release int) {
	if s.answerLost || !s.w.quietSince(s.w.now()) {
		return
	}
	freed, woken := t.freed, driver.WokenOf(len(r.Queue))
	// The reply that gives a waiter its position may still be on its way, and its hint may come before it.
	from := freed + 2*s.w.plan.Latency
	// A fault ends positions: a step of the server's clock, or a pause in which the waiter could not refresh its own. After a pause it
	// sends its next request only when that is due. A waiter of a position that has ended polls until it asks for the lock again.
	now, refreshed := s.moment().Elapsed, s.w.quietSince(s.w.now()-longestPosition)
	expect := func(i int, limit time.Duration) {
		waiter := r.Queue[i].ID
		if !refreshed && r.Queue[i].Until <= now {
			return
		}
		limit += driver.Turn(i+1) + 8*s.w.plan.Latency + 100*time.Millisecond
		s.w.after(limit, func() {
			later := s.records[name]
			// One that has left meanwhile, and has entered again for its next caller, is behind the others.
			behind := later != nil && later.Position(waiter) > i+1
			if s.w.quietSince(freed) && t.known && t.released == release && !behind && s.waitsSince(waiter, name, from) {
				s.w.violate(SlowGrant, "%q is free for %v after its release, although %s waits at position %d", name, limit, waiter, i+1)
			}
		})
	}
	for i := range woken {
		expect(i, 0)
	}
	if first := slices.IndexFunc(r.Queue, func(w lockstate.Waiter) bool { return s.waitsSince(w.ID, name, freed) }); first >= woken {
		expect(first, 25*time.Second)
	}
}

// revisionOf is a revision of a lock.
type revisionOf struct {
	name string
	driver.Revision
}

// noteRevision checks that a grant or a renewal has a revision of its own. A waiter may have seen that of an earlier one that a
// fail-over has undone, and would take the lock from a living holder, if it sees it again a TTL later. Members' clocks differ: two
// renewals with one number can fall into one millisecond of two of them, but not so far apart. After a step back numbers are random, and
// one in 65,536 may come again.
func (s *server) noteRevision(name string, r *record, now lockstate.Moment) {
	key := revisionOf{name, r.Record(name, now).Revision}
	if key.IsZero() {
		return
	}
	if at, known := s.revisions[key]; known && s.w.now()-at > s.w.plan.minGrace() {
		s.w.violate(Revisions, "%q: a grant or renewal has the revision of one %v ago", name, s.w.now()-at)
	}
	s.revisions[key] = s.w.now()
}

// unwokenRest is for how long a waiter may rest at most that nothing wakes, although waking has begun.
const unwokenRest = 5 * time.Second

// checkUnwoken checks, when a waiter sends a request, that it did not rest while nothing could wake it: its latest request gave it no
// position, because the stream of hints was not open, and the stream has been open for a while.
func (l *link) checkUnwoken(name string, waiter driver.WaiterID) {
	p, w := l.p, l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	key := asking{name, waiter}
	refused, known := p.unwoken[key]
	delete(p.unwoken, key)
	since := w.now() - unwokenRest
	if !known || refused > since || p.crashed || p.frozen.Load() != 0 || p.resumed > refused ||
		!p.queue.waitsSince(name, string(waiter), since) {
		return
	}
	w.violate(Unwoken, "%q: %s has no position since %v, and asks for one only now, although hints reach it", name, p.name, refused)
}

// noteUnwoken notes that a waiter was refused without a position.
func (l *link) noteUnwoken(name string, waiter driver.WaiterID) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.p.unwoken[asking{name, waiter}] = l.w.now()
}

// checkPositionsLeft looks for positions of processes that have ended in order. If the server's clock has
// stepped back, the position of one that was cut off ends hours later, or with its next turn.
func (s *server) checkPositionsLeft() {
	if s.back {
		return
	}
	now := s.moment()
	for name, r := range sorted(s.records) {
		for _, w := range r.Queue {
			if p := s.waiters[w.ID]; w.Until > now.Elapsed && p != nil && !p.crashed {
				s.w.violate(NothingLeft, "%s has ended, and keeps a position in the queue of %q", p.name, name)
			}
		}
	}
}
