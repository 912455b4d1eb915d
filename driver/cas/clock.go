package cas

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
	"github.com/holdfast-go/holdfast/driver/sightings"
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
		l.judgeByObservation(s, l.see(s), asked)
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
	now := l.now() // the wall time of asked, not of the answer: the history converts one into the other
	s.now = lockstate.Moment{Elapsed: asked, Wall: now.Add(asked - now.Sub(l.began)).Round(0)}
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

// see notes the lease that was read or written just now, and returns since when it is the same. A Locker that has forgotten a name
// only takes it over later.
func (l *Locker) see(s *state) (since time.Duration) {
	_, since = l.sightings.See(s.Name, s.mark(), l.elapsed(), sightings.Always, nil)
	return since
}
