package sim

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
	"github.com/holdfast-go/holdfast/test/history"
)

// server is the backend. Package lockstate has the rules by which it decides.
//
// As a MongoDB replica set it applies a write on the primary, and acknowledges it when a majority
// has it. A fail-over rolls back what no majority had. As Azure Blob Storage it has one clock, and
// what it has answered stays. The world's mu guards it.
type server struct {
	w       *world
	dice    dice
	records map[string]*record
	writes  []*write // not known to be on a majority, in order

	primary   int
	downUntil time.Duration // there is no primary
	refuses   bool          // until then, requests fail at once
	stepped   time.Duration // the sum of the steps of the clock
	forward   []step        // forward steps of the clock
	back      bool          // the clock has stepped back
	lag       time.Duration
	lagUntil  time.Duration

	answerLost bool // nobody receives the answer to the request that is decided

	watches map[string][]*watch
	holders map[string]*holder // by lease ID
	waiters map[string]*process
	turns   map[string]*turns // by the name of a lock
	grants  int

	revisions map[revisionOf]time.Duration // when a grant or a renewal last had it
}

// holder is the process of a lease ID.
type holder struct {
	*process
	loose    bool          // a request with this ID came late: it may have been granted after the last release
	extended time.Duration // when a lease was granted to it, or renewed last
}

// record is a lock on the server.
type record struct {
	lockstate.Lock
	anonymous bool          // Azure: the holder has taken the lease and not yet written its record
	at        time.Duration // of the latest change
}

// write is a change that a fail-over may undo.
type write struct {
	name   string
	before *record
	at     time.Duration // when a majority has it
	undone bool
}

func newServer(w *world) *server {
	return &server{w: w, dice: newDice(w.plan.Seed, 3), records: map[string]*record{}, watches: map[string][]*watch{},
		holders: map[string]*holder{}, waiters: map[string]*process{}, turns: map[string]*turns{}, revisions: map[revisionOf]time.Duration{}}
}

// epoch is far from 0, so that the clock can step back by hours.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// moment reads the primary's clock, which counts milliseconds.
func (s *server) moment() lockstate.Moment {
	now, c := s.w.now(), s.w.plan.Members[s.primary]
	t := (now + time.Duration(float64(now)*c.Drift) + c.Offset + s.stepped + 1000*time.Hour).Truncate(time.Millisecond)
	return lockstate.Moment{Elapsed: t, Wall: epoch.Add(t)}
}

func (s *server) isMongo() bool { return s.w.plan.Backend == Mongo }

// change applies fn to the record of a name. fn reports whether it has changed the record.
func (s *server) change(name string, fn func(r *record, now lockstate.Moment) bool) *write {
	before := s.records[name]
	after := &record{}
	if before != nil {
		*after = *before
		after.Queue = slices.Clone(before.Queue)
	}
	now := s.moment()
	renewals := after.Renewals
	if !fn(after, now) {
		return nil
	}
	after.KeepHistory(0)
	if after.Renewals != renewals || before == nil || before.Token != after.Token {
		s.noteRevision(name, after, now)
	}
	after.at = s.w.now()
	s.records[name] = after
	if !s.isMongo() {
		return nil
	}
	write := &write{name: name, before: before, at: s.w.now() + s.replication()}
	for len(s.writes) > 0 && s.writes[0].at <= s.w.now() {
		s.writes = s.writes[1:]
	}
	if n := len(s.writes); n > 0 {
		write.at = max(write.at, s.writes[n-1].at)
	}
	s.writes = append(s.writes, write)
	return write
}

// noop is a write that changes nothing, but is acknowledged after all before it.
func (s *server) noop() *write {
	w := &write{at: s.w.now() + s.replication()}
	if n := len(s.writes); n > 0 {
		w.at = max(w.at, s.writes[n-1].at)
	}
	s.writes = append(s.writes, w)
	return w
}

// replication is how long a write takes to reach a majority.
func (s *server) replication() time.Duration {
	d := s.dice.upTo(s.w.plan.Latency)
	if s.w.now() < s.lagUntil {
		d += s.dice.upTo(s.lag)
	}
	return d
}

// failOver takes the primary away until a time, and undoes what no majority has.
func (s *server) failOver(until time.Duration, refuses bool) {
	s.downUntil, s.refuses = max(s.downUntil, until), refuses
	for _, w := range slices.Backward(s.writes) {
		if w.at > s.w.now() {
			w.undone = true
			if w.before == nil {
				delete(s.records, w.name)
			} else {
				s.records[w.name] = w.before
			}
			s.w.tracef("server", "rolls back a write of %q", w.name)
		}
	}
	s.writes = nil
	s.disturbTurns()
	for _, p := range s.w.processes {
		if p != nil && p.queue != nil {
			p.queue.interrupt()
			p.queue.recent = nil
		}
	}
	s.primary = (s.primary + 1 + s.dice.IntN(len(s.w.plan.Members)-1)) % len(s.w.plan.Members)
}

// step sets the clock. Steps forward that are too long for the grace are outside of the promises.
func (s *server) step(by time.Duration) {
	s.stepped += by
	s.disturbTurns()
	if by < 0 {
		s.back = true
		return
	}
	now := s.w.now()
	s.forward = append(s.forward, step{at: now + by})
	var sum time.Duration
	for _, f := range s.forward {
		if length := f.at - now; length > 0 {
			sum += length
		}
	}
	if sum > s.w.plan.minGrace()/5 { // the clocks of the members use up the rest
		s.w.excuse("")
	}
}

// operate does what an operator does.
func (s *server) operate(kind, name string) {
	s.change(name, func(r *record, now lockstate.Moment) bool {
		switch {
		case kind == Break:
			return r.Break(s.target(r)...)
		case !r.BreakNow(now, s.target(r)...):
			return false
		}
		s.freed(name, r, now)
		s.w.excuse(name)
		return true
	})
	if kind == Delete && s.records[name] != nil && s.moment().Wall.UnixMilli() > int64(s.records[name].Token) {
		delete(s.records, name)
		delete(s.turns, name)
		for _, w := range s.writes { // a deletion is not undone
			if w.name == name {
				w.before = nil
			}
		}
	}
	if kind != Break {
		s.wake(name, s.w.plan.Latency)
		if r := s.records[name]; r != nil && kind == BreakNow {
			for _, one := range toWake(r, s.moment()) {
				s.hint(one.hint(name))
			}
		}
	}
}

// target chooses the holders whom an operator breaks: all, or one of several readers.
func (s *server) target(r *record) []uint64 {
	if n := len(r.Readers); n > 1 && s.dice.chance(0.5) {
		return []uint64{r.Readers[s.dice.IntN(n)].Token}
	}
	return nil
}

// answer is what a request returns.
type answer struct {
	token     uint64
	contended bool
	position  int  // in the queue
	again     bool // the request must be sent again, by the rules for a lock with a queue
	matched   bool
	waiters   []woken // to wake
	records   []driver.Record
	errs      []error
	data      []byte
	at        driver.DataRevision
	write     *write
	err       error
	unsent    bool // the request has not left the process
}

// acquire decides about a request. One without queued is decided by shorter rules, which refuse a lock with a queue.
func (s *server) acquire(p *process, req driver.Request, queued bool) (a answer) {
	id := req.ID.Reveal()
	if !s.isMongo() {
		req.Replace = driver.Revision{}
	}
	if s.holders[id] == nil {
		s.holders[id] = &holder{process: p}
	}
	waiter := string(req.Waiter)
	a.write = s.change(req.Name, func(r *record, now lockstate.Moment) bool {
		free, own, token := !r.Held(now), r.Has(id), r.Token
		if free && !queued && len(r.Queue) > 0 {
			a.again = true
			return false
		}
		before := slices.Clone(r.Queue)
		if !s.grantInTurn(r, req, waiter, now) {
			written := !slices.Equal(before, r.Queue)
			if queued {
				a.err, a.position = r.Refusal(req.Name, waiter, now), r.Position(waiter)
			} else {
				a.err = &driver.HeldError{Record: s.describe(waiter, req.Name, r, now, false)}
			}
			s.refused(p, req, r, before, now, a.err)
			return written
		}
		a.contended = len(r.Queue) > 0
		// The holder's own request, sent again: also while a lock is reserved, because the lease has just expired.
		repeat := own && r.Token == token
		if repeat { // it leaves the queue alone
			s.checkPositions(req.Name, before, r.Queue, func(int) bool { return false })
		} else {
			s.granted(p, req, r, before, free, now)
		}
		s.holders[id].extended = s.w.now()
		if a.token = r.Lease(req, id).Token; !repeat {
			r.anonymous = !s.isMongo()
			s.grants++
			if s.w.trace != nil {
				s.w.tracef("server", "grants %q to process %d, token %d", req.Name, p.number, r.Token)
			}
			s.w.line(req.Name, history.Line{At: s.w.now(), Kind: history.Grant, Token: r.Token, Shared: req.Mode == driver.Shared})
		}
		return true
	})
	if a.write == nil && s.isMongo() && !a.again {
		// A refusal waits for a majority, too, even if it has changed nothing. If a fail-over could undo what
		// it shows, a waiter might see one revision twice after a step back of the clock, and replace a
		// holder that is alive.
		a.write = s.noop()
	}
	return a
}

// sign writes the holder's record, which Azure needs a second request for.
func (s *server) sign(req driver.Request) (a answer) {
	a.write = s.change(req.Name, func(r *record, _ lockstate.Moment) bool {
		if r.Holder != req.ID.Reveal() {
			a.err = errBackend
			return false
		}
		r.anonymous, a.token = false, r.Token
		return true
	})
	return a
}

func (s *server) renew(l driver.Lease) (a answer) {
	a.write = s.change(l.Name, func(r *record, now lockstate.Moment) bool {
		if !r.Renew(l.ID.Reveal(), l.TTL, now) {
			a.err = driver.ErrLost
			return false
		}
		s.holders[l.ID.Reveal()].extended = s.w.now()
		return true
	})
	return a
}

func (s *server) release(l driver.Lease, ifNobodyWaits bool) (a answer) {
	a.write = s.change(l.Name, func(r *record, now lockstate.Moment) bool {
		if ifNobodyWaits && len(r.Queue) > 0 || !r.Release(l.ID.Reveal(), now) {
			return false
		}
		a.matched, a.waiters = true, toWake(r, now)
		s.freed(l.Name, r, now)
		return true
	})
	if a.write != nil {
		s.wake(l.Name, a.write.at-s.w.now())
	}
	return a
}

func (s *server) writeData(l driver.Lease, data []byte, at driver.DataRevision) (a answer) {
	a.write = s.change(l.Name, func(r *record, now lockstate.Moment) bool {
		a.err = r.Write(l.ID.Reveal(), data, at, now)
		return a.err == nil
	})
	return a
}

// read returns records as a batch read or an Inspect shows them.
func (s *server) read(waiter string, names []string, single bool) (a answer) {
	now := s.moment()
	a.errs = make([]error, len(names))
	for _, name := range names {
		r := s.committed(name)
		if r == nil {
			r = &record{}
		}
		a.records = append(a.records, s.describe(waiter, name, r, now, single))
	}
	if single {
		a.data, a.at = a.records[0].Data, driver.DataRevision{}
		if r := s.committed(names[0]); r != nil {
			a.at = r.DataRevision()
		}
	}
	return a
}

// committed returns the record as a majority has it, or nil. A fail-over cannot undo what it shows.
func (s *server) committed(name string) *record {
	for _, w := range s.writes { // in order
		if w.name == name && w.at > s.w.now() {
			return w.before
		}
	}
	return s.records[name]
}

// describe returns what the backend reports of a record.
func (s *server) describe(waiter, name string, r *record, now lockstate.Moment, single bool) driver.Record {
	d := r.RecordFor(name, waiter, now)
	if !single {
		d.Data = nil
	}
	switch {
	case s.isMongo() || d.State != driver.StateHeld:
	case single && !r.anonymous:
		d.Remaining, d.RemainingKnown, d.Revision = 0, false, driver.Revision{}
	default:
		d = driver.Record{Name: name, State: driver.StateHeld, Broken: d.Broken}
	}
	return d
}

// wake wakes the watches of a name after a time: those that there are when a majority has the change.
func (s *server) wake(name string, after time.Duration) {
	s.w.after(after, func() {
		for _, w := range s.watches[name] {
			s.w.after(s.dice.upTo(s.w.plan.Latency), func() { w.deliver(false) })
		}
	})
}

// checkLeft looks for locks that are held although every process has ended in order. During a
// shutdown one answered release ends a cleanup, so a late request may keep its lock for one TTL.
func (s *server) checkLeft(past bool) {
	now := s.moment()
	for name, r := range sorted(s.records) {
		for _, one := range r.live(now) {
			h := s.holders[one.Holder]
			switch {
			case !past && h.loose:
			case s.back && h.extended < s.w.plan.Heal: // its expiry lies far ahead, and nobody waits for the lock
			default:
				s.w.violate(NothingLeft, "%q is still held, for %v, by process %d, which has ended", name, one.Expires-now.Elapsed, h.number)
			}
		}
	}
}

// live lists those who have the lock: its readers, or one holder.
func (r *record) live(now lockstate.Moment) []lockstate.Reader {
	all := r.Readers
	if len(all) == 0 && r.Holder != "" {
		all = []lockstate.Reader{{Holder: r.Holder, Token: r.Token, Expires: r.Expires}}
	}
	return slices.DeleteFunc(slices.Clone(all), func(one lockstate.Reader) bool { return one.Expires <= now.Elapsed })
}
