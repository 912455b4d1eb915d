package cas

import (
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// maxStepBack is how far the store's clock may step back, or the clocks of its servers may differ, without any
// effect: it counts as standing still since the record was written. After a larger step the clock is believed.
const maxStepBack = 5 * time.Second

var errNoClock = errors.New("the store returned no time, by which the leases are judged")

// judge sets the moment at which the value was read, and for a Locker without a store's clock also when the
// present lease ends. asked is the elapsed time when the read began.
func (l *Locker) judge(s *state, now time.Time, asked time.Duration) error {
	if l.config.Info.Expiry == driver.ByObservation {
		// Promise 2: the lease was renewed before the read ended that showed it first. So it has ended when a whole
		// TTL lies between that and the beginning of a read that shows it unchanged. With the end of this
		// read a renewal during a pause of this process would be overlooked.
		l.judgeByObservation(s, l.sightings.see(s.Name, s.mark(), l.elapsed()), asked)
		return nil
	}
	if y := now.Year(); now.IsZero() || y < 1970 || y > 2200 {
		return errNoClock
	}
	s.now = lockstate.Moment{Elapsed: time.Duration(now.UnixNano()), Wall: now}
	if behind := s.Used - s.now.Elapsed; behind > 0 && behind <= maxStepBack {
		s.now = lockstate.Moment{Elapsed: s.Used, Wall: now.Add(behind)}
	}
	if s.unsure {
		s.withhold()
	}
	return nil
}

// judgeByObservation is judge for a lease that has been seen unchanged since a time.
func (l *Locker) judgeByObservation(s *state, since, asked time.Duration) {
	s.now = lockstate.Moment{Elapsed: asked, Wall: l.now().Round(0)}
	if s.now.Wall.Before(s.RenewedAt) { // by the clock of another machine; only people read it
		s.now.Wall = s.RenewedAt
	}
	if s.Expires = since; s.Holder != "" {
		s.Expires += s.TTL + s.TTL/MarginPart
	}
	if s.Expires < asked { // for the history: it ended after the last renewal
		s.Expires = max(s.Expires, asked-s.now.Wall.Sub(s.RenewedAt))
	}
}

// lengthen makes a holder's lease that was granted or renewed just now last for its TTL, although the clock may have
// advanced almost by a step already.
func (l *Locker) lengthen(s *state, holder string, ttl time.Duration) {
	s.extends = ttl
	s.ends = s.Extend(holder, s.now.Elapsed+ttl+l.config.ClockStep)
}

// mark stands for one holder and one renewal.
type mark struct {
	holder          string
	token, renewals uint64
}

func (r *record) mark() mark { return mark{r.Holder, r.Token, r.Renewals} }

// sightings has since when a Locker has seen the present lease of each name. It forgets those that were seen
// longest ago; seeing them anew only delays a takeover.
type sightings struct {
	mu              sync.Mutex
	recent, earlier map[string]sighting
}

type sighting struct {
	mark  mark
	since time.Duration
}

// maxSightings is how many names recent has at most.
const maxSightings = 1 << 16

// see notes what was read just now, and returns since when it is the same.
func (m *sightings) see(name string, seen mark, now time.Duration) (since time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, known := m.latest(name)
	if !known || s.mark != seen {
		s = sighting{seen, now}
	}
	m.keep(name, s)
	return s.since
}

// still is see for a mark that was not read just now. It is ok only if the mark is what was seen last of the name; otherwise
// nothing is noted.
func (m *sightings) still(name string, of mark) (since time.Duration, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, known := m.latest(name)
	if !known || s.mark != of {
		return 0, false
	}
	m.keep(name, s)
	return s.since, true
}

// keep makes a sighting the latest of a name; mu is held.
func (m *sightings) keep(name string, s sighting) {
	if m.recent == nil || len(m.recent) >= maxSightings {
		m.earlier, m.recent = m.recent, map[string]sighting{}
	}
	m.recent[name] = s
}

// latest returns what was seen last of a name; mu is held.
func (m *sightings) latest(name string) (s sighting, known bool) {
	if s, known = m.recent[name]; !known {
		s, known = m.earlier[name]
	}
	return s, known
}
