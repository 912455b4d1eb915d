package engine

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/sightings"
)

// seat is one slot as an asker sees it: the request for it, which of its attempts ended
// in doubt, and who holds it. A lock without slots has one seat.
type Attempt struct {
	acquisition *Acquisition
	slot        int
	req         driver.Request

	inDoubt     InDoubt
	failed      bool                // at the latest attempt
	refusedOnce bool                // it was refused
	seenAt      time.Duration       // when that was told last
	holder      driver.Record       // as last seen
	sighting    *sightings.Sighting // of the holder, that the Client's callers share; nil before it is looked up
	overdue     int                 // refusals in a row although the holder's time is over
	reported    driver.Record       // the holder that observers were told of
	identified  bool                // who an unknown holder is

	woken    atomic.Bool   // the Watcher has called
	Watching bool          // it has: releases will be told
	tryAt    time.Duration // while it rests
	StopRead func()        // cancels the look that is planned
}

// doubt says until when a request whose outcome is unknown could still keep the lock
// taken: one TTL after it was sent.
type InDoubt struct {
	any   bool
	until time.Duration
}

func (d *InDoubt) Note(until time.Duration) {
	if !d.any || until > d.until {
		d.any, d.until = true, until
	}
}

// lease is what a request for this seat may have been granted unknown to us.
func (s *Attempt) lease() driver.Lease {
	return driver.Lease{Name: s.req.Name, ID: s.req.ID, Owner: s.req.Owner, TTL: s.req.TTL}
}

// abandon has the lock cleaned up if a request for this seat may hold it. The ID is
// done with then.
func (s *Attempt) abandon() {
	if s.inDoubt.any {
		a := s.acquisition
		a.client.CleanUp(s.lease(), s.inDoubt.until, a.settings.RequestTimeout, a.Emit)
		s.req.ID, s.inDoubt = newLeaseID(), InDoubt{}
	}
}

// refused takes in that another holds the lock.
func (s *Attempt) refused(err error) {
	var held *driver.HeldError
	if errors.As(err, &held) {
		s.see(held.Record)
	} else { // a driver that says no more
		s.refusedOnce, s.seenAt, s.holder.RemainingKnown = true, s.acquisition.client.now(), false
	}
	if s.overAt() < s.seenAt+minRetry<<min(s.overdue, 30) {
		s.overdue++
	} else {
		s.overdue = 0
	}
	if held != nil && held.Record.Broken && s.inDoubt.any {
		// The holder may be a request of our own: its ID is refused while that lease lasts.
		s.abandon()
	}
}

// pressing is the least time between requests for a lock that should be free by what is
// known of it, and is refused all the same. It doubles with each, up to the poll interval.
const minRetry = 10 * time.Millisecond

// overAt is when the holder's time ends, by what is known of it.
func (s *Attempt) overAt() time.Duration {
	at := s.stuckAt()
	if s.holder.RemainingKnown {
		at = min(at, s.seenAt+min(s.holder.Remaining, driver.MaxTTL))
	}
	return at
}

// see takes in who the holder is.
func (s *Attempt) see(now driver.Record) {
	s.refusedOnce, s.seenAt = true, s.acquisition.client.now()
	if now.Token != s.holder.Token || now.Revision != s.holder.Revision {
		s.overdue = 0 // it is alive, or another
	}
	s.sighting = s.acquisition.client.sightings.See(s.req.Name, now, s.sighting)
	// An owner that a backend cannot tell for a moment is not another holder.
	if anonymous := now.Owner == "" && now.Token == 0; !anonymous {
		s.report(now)
	}
	s.holder = now
}

// tell tells of a holder, once.
func (s *Attempt) report(holder driver.Record) {
	if !s.identified || holder.Owner != s.reported.Owner || holder.Token != s.reported.Token {
		s.identified, s.reported = true, holder
		s.acquisition.Emit(event.Event{Type: event.HolderSeen, Name: s.req.Name, Owner: holder.Owner, Token: holder.Token, Time: time.Now()})
	}
}

// stuck returns the revision of a holder that is over by our own clock, if it is.
func (s *Attempt) stuck() driver.Revision {
	return s.acquisition.client.sightings.Stuck(s.remembered())
}

func (s *Attempt) stuckAt() time.Duration {
	return s.acquisition.client.sightings.StuckAt(s.remembered())
}

// remembered is the sighting of the holder, also one of an earlier caller.
func (s *Attempt) remembered() *sightings.Sighting {
	if s.sighting == nil {
		s.sighting = s.acquisition.client.sightings.Find(s.req.Name)
	}
	return s.sighting
}

// looked takes in what a look showed, and reports whether to ask: unless it is
// certain that another holds the lock.
func (s *Attempt) SawRecord(r driver.Record, err error) (ask bool) {
	if err != nil || r.State != driver.StateHeld || r.RemainingKnown && r.Remaining <= 0 || s.maybeOurs() {
		return true
	}
	s.see(r)
	s.acquisition.last = s.acquisition.allSlotsHeld(&driver.HeldError{Record: r})
	return !s.stuck().IsZero()
}

// maybeOurs reports whether the holder may be a request of our own, unknown to us. Only
// asking again with its ID can tell.
func (s *Attempt) maybeOurs() bool {
	return s.inDoubt.any && s.acquisition.client.now() < s.inDoubt.until+s.req.TTL
}

// schedule tells when to ask for the seat unless woken, and when to look before that.
//
// Where there is a lookout, it looks instead of asking as long as the holder lives: only
// the end of the holder's time is asked for, without delay. Elsewhere there is nothing to
// look for for ages, and the seat is asked for at the poll interval.
func (s *Attempt) Schedule() (askAt, lookAt time.Duration) {
	a := s.acquisition
	never := driver.MaxTTL + a.client.now()
	if !s.refusedOnce {
		return 0, never
	}
	askAt, poll := s.stuckAt(), a.settings.Poll
	if s.Watching {
		poll = a.settings.WatchedPoll
	}
	if left := min(s.holder.Remaining, driver.MaxTTL); s.holder.RemainingKnown {
		// Waiters of many processes wake for the same expiry: spread them a little.
		askAt = min(askAt, s.seenAt+left+time.Millisecond+rand.N(10*time.Millisecond))
		// A holder that lives has renewed before three quarters of this are over.
		if early := left - left/4; s.Readable() && left > s.holder.TTL/4 && early > 10*time.Millisecond {
			poll = min(poll, early)
		}
	}
	if s.overdue > 0 {
		askAt = max(askAt, s.seenAt+clock.Backoff(s.overdue-1, minRetry, a.settings.Poll))
	}
	next := s.seenAt + clock.Jitter(poll, 0.2)
	switch {
	case !s.Readable():
		return min(askAt, next), never
	case next < askAt:
		return askAt, next
	default:
		return askAt, never
	}
}

// lookable reports whether a look can tell what asking would.
func (s *Attempt) Readable() bool {
	return s.acquisition.client.reader != nil && s.refusedOnce && !s.maybeOurs()
}
