package holdfast

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
)

// seat is one slot as an asker sees it: the request for it, which of its attempts ended
// in doubt, and who holds it. A lock without slots has one seat.
type seat struct {
	asker *asker
	slot  int
	req   driver.Request

	doubt    doubt
	failed   bool          // at the latest attempt
	known    bool          // it was refused
	seen     time.Duration // when that was told last
	holder   Record        // as last seen
	sighting *sighting     // of the holder, that the Client's callers share; nil before it is looked up
	overdue  int           // refusals in a row although the holder's time is over
	told     Record        // the holder that observers were told of
	asked    bool          // who an unknown holder is

	woken    atomic.Bool   // the Watcher has called
	watching bool          // it has: releases will be told
	askAt    time.Duration // while it rests
	unlook   func()        // cancels the look that is planned
}

// doubt says until when a request whose outcome is unknown could still keep the lock
// taken: one TTL after it was sent.
type doubt struct {
	any   bool
	until time.Duration
}

func (d *doubt) note(until time.Duration) {
	if !d.any || until > d.until {
		d.any, d.until = true, until
	}
}

// lease is what a request for this seat may have been granted unknown to us.
func (s *seat) lease() Lease {
	return Lease{Name: s.req.Name, ID: s.req.ID, Owner: s.req.Owner, TTL: s.req.TTL}
}

// abandon has the lock cleaned up if a request for this seat may hold it. The ID is
// done with then.
func (s *seat) abandon() {
	if s.doubt.any {
		a := s.asker
		a.client.cleanUp(s.lease(), s.doubt.until, a.settings.tryTimeout, a.emit)
		s.req.ID, s.doubt = newLeaseID(), doubt{}
	}
}

// refused takes in that another holds the lock.
func (s *seat) refused(err error) {
	var held *HeldError
	if errors.As(err, &held) {
		s.see(held.Record)
	} else { // a driver that says no more
		s.known, s.seen, s.holder.RemainingKnown = true, s.asker.client.now(), false
	}
	if s.overAt() < s.seen+pressing<<min(s.overdue, 30) {
		s.overdue++
	} else {
		s.overdue = 0
	}
	if held != nil && held.Record.Broken && s.doubt.any {
		// The holder may be a request of our own: its ID is refused while that lease lasts.
		s.abandon()
	}
}

// pressing is the least time between requests for a lock that should be free by what is
// known of it, and is refused all the same. It doubles with each, up to the poll interval.
const pressing = 10 * time.Millisecond

// overAt is when the holder's time ends, by what is known of it.
func (s *seat) overAt() time.Duration {
	at := s.stuckAt()
	if s.holder.RemainingKnown {
		at = min(at, s.seen+min(s.holder.Remaining, driver.MaxTTL))
	}
	return at
}

// see takes in who the holder is.
func (s *seat) see(now Record) {
	s.known, s.seen = true, s.asker.client.now()
	if now.Token != s.holder.Token || now.Revision != s.holder.Revision {
		s.overdue = 0 // it is alive, or another
	}
	s.sighting = s.asker.client.sightings.see(s.req.Name, now, s.sighting)
	// An owner that a backend cannot tell for a moment is not another holder.
	if anonymous := now.Owner == "" && now.Token == 0; !anonymous {
		s.tell(now)
	}
	s.holder = now
}

// tell tells of a holder, once.
func (s *seat) tell(holder Record) {
	if !s.asked || holder.Owner != s.told.Owner || holder.Token != s.told.Token {
		s.asked, s.told = true, holder
		s.asker.emit(Event{Type: EventHolderSeen, Name: s.req.Name, Owner: holder.Owner, Token: holder.Token, Time: time.Now()})
	}
}

// stuck returns the revision of a holder that is over by our own clock, if it is.
func (s *seat) stuck() driver.Revision { return s.asker.client.sightings.stuck(s.remembered()) }

func (s *seat) stuckAt() time.Duration { return s.asker.client.sightings.stuckAt(s.remembered()) }

// remembered is the sighting of the holder, also one of an earlier caller.
func (s *seat) remembered() *sighting {
	if s.sighting == nil {
		s.sighting = s.asker.client.sightings.find(s.req.Name)
	}
	return s.sighting
}

// looked takes in what a look showed, and reports whether to ask: unless it is
// certain that another holds the lock.
func (s *seat) looked(r Record, err error) (ask bool) {
	if err != nil || r.State != StateHeld || r.RemainingKnown && r.Remaining <= 0 || s.maybeOurs() {
		return true
	}
	s.see(r)
	s.asker.last = s.asker.full(&HeldError{Record: r})
	return !s.stuck().IsZero()
}

// maybeOurs reports whether the holder may be a request of our own, unknown to us. Only
// asking again with its ID can tell.
func (s *seat) maybeOurs() bool {
	return s.doubt.any && s.asker.client.now() < s.doubt.until+s.req.TTL
}

// schedule tells when to ask for the seat unless woken, and when to look before that.
//
// Where there is a lookout, it looks instead of asking as long as the holder lives: only
// the end of the holder's time is asked for, without delay. Elsewhere there is nothing to
// look for for ages, and the seat is asked for at the poll interval.
func (s *seat) schedule() (askAt, lookAt time.Duration) {
	a := s.asker
	never := driver.MaxTTL + a.client.now()
	if !s.known {
		return 0, never
	}
	askAt, poll := s.stuckAt(), a.settings.poll
	if s.watching {
		poll = a.settings.watchedPoll
	}
	if left := min(s.holder.Remaining, driver.MaxTTL); s.holder.RemainingKnown {
		// Waiters of many processes wake for the same expiry: spread them a little.
		askAt = min(askAt, s.seen+left+time.Millisecond+rand.N(10*time.Millisecond))
		// A holder that lives has renewed before three quarters of this are over.
		if early := left - left/4; s.lookable() && left > s.holder.TTL/4 && early > 10*time.Millisecond {
			poll = min(poll, early)
		}
	}
	if s.overdue > 0 {
		askAt = max(askAt, s.seen+clock.Backoff(s.overdue-1, pressing, a.settings.poll))
	}
	next := s.seen + clock.Jitter(poll, 0.2)
	switch {
	case !s.lookable():
		return min(askAt, next), never
	case next < askAt:
		return askAt, next
	default:
		return askAt, never
	}
}

// lookable reports whether a look can tell what asking would.
func (s *seat) lookable() bool {
	return s.asker.client.lookout != nil && s.known && !s.maybeOurs()
}
