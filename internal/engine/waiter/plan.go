package waiter

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// minRetry is the least time between requests for a lock that is refused although it should be
// free by what is known of its holder. The time doubles with each refusal, up to the poll
// interval.
const minRetry = 10 * time.Millisecond

// pollJitter is by what part intervals differ at random, so that processes that began together do not
// go on together.
const pollJitter = 0.2

// jitter returns d changed at random by up to the given fraction either way.
func (w *Waiter) jitter(d time.Duration, fraction float64) time.Duration {
	span := time.Duration(fraction * float64(d))
	if span <= 0 {
		return d
	}
	return d - span + w.env.Random(2*span)
}

// schedule plans the next request for a slot by what is known of its holder, and a read before that.
//
// Where the record can be read in batches, reads replace requests at the poll interval, and a
// request is due only when the holder's time ends. Elsewhere a request is due at the poll
// interval, and a read never.
func (w *Waiter) schedule(now time.Duration, slot int, actions []Action) []Action {
	s := &w.slots[slot]
	if !s.refused || s.failed || s.asking || s.own { // the plan is another, or follows the answer
		return actions
	}
	// Promise 10: a request is due when the holder is stuck, however far ahead its expiry lies.
	tryAt := s.stuckAt
	heldFor := now - s.heldSince
	unknown := w.queued() && s.position == 0 && !s.holder.RemainingKnown // the refusal says nothing: it may have no position
	poll := w.settings.PollInterval(s.watching && !unknown, s.holder.Broken, heldFor)
	if s.position > 0 && w.traits.Turn > 0 && !s.watching && !w.settings.PollSet {
		poll = min(poll, max(heldFor, w.traits.Turn/2)) // or its turn would pass
	}
	readable := w.readable(now, s)
	if left := min(s.holder.Remaining, driver.MaxTTL); s.holder.RemainingKnown {
		tryAt = min(tryAt, s.seenAt+left) + w.afterExpiry(s)
		// A holder that is alive has renewed before three quarters of this time are over.
		if early := left - left/4; readable && !s.reserved && left > s.holder.TTL/4 && early > 10*time.Millisecond {
			poll = min(poll, early)
		}
	}
	if s.overdue > 0 {
		tryAt = max(tryAt, s.seenAt+w.jitter(timing.Delay(s.overdue-1, minRetry, w.settings.Poll), 0.25))
	}
	next := s.seenAt + w.jitter(poll, pollJitter)
	if w.queued() {
		// The position lasts as long as its request said, when there may have been fewer names.
		tryAt = min(tryAt, s.askedAt+w.jitter(min(w.refreshInterval(), max(s.lasts, minQueueFor)/2), pollJitter))
		if s.polled && s.watching { // a few of many after each read
			tryAt = min(tryAt, s.seenAt+w.env.Random(enterRounds*w.settings.WatchedPoll))
		}
	}
	s.planned = tryAt
	reads := readable && !w.besideQueue(s) && (!w.queued() || w.env.RefreshRounds() > 1)
	if !reads {
		s.planned = min(tryAt, next)
	}
	switch {
	case s.read.urgent: // it is about a wake-up
		return actions
	case reads && next < tryAt && s.turn == Never:
		return w.planRead(slot, next, false, actions)
	}
	return w.dropRead(slot, actions)
}

// overAt is when the holder's time ends, by what is known of the holder.
func (s *slot) overAt() time.Duration {
	if s.holder.RemainingKnown {
		return min(s.stuckAt, s.seenAt+min(s.holder.Remaining, driver.MaxTTL))
	}
	return s.stuckAt
}

// afterExpiry is how long after the holder's time has ended to send the next request.
//
// Waiters of many processes wake at the same expiry. Those with a position in a queue come one
// after another. Most often the first is granted the lock, and the others need not come: behind
// the second, they only make sure that the lock is not left free for long.
func (w *Waiter) afterExpiry(s *slot) time.Duration {
	const start, spacing = time.Millisecond, 50 * time.Millisecond
	if s.position == 0 {
		return start + w.env.Random(10*time.Millisecond)
	}
	after := start
	if !s.reserved { // otherwise the time left is that until the turn
		after += driver.TurnAt(w.traits.Turn, s.position)
	}
	if s.position > driver.WokenWaiters {
		after += time.Duration(s.position) * spacing
	}
	return after
}

// readable reports whether a batch read can show what a request would.
func (w *Waiter) readable(now time.Duration, s *slot) bool {
	return w.waits && w.traits.Reads && s.refused && !w.maybeOurs(now, s)
}

// maybeOurs reports whether the holder may be a request of this caller that is in doubt. Only
// another request with the same ID can tell.
func (w *Waiter) maybeOurs(now time.Duration, s *slot) bool {
	return s.inDoubt.Any && now < s.inDoubt.Until+w.settings.TTL
}

// besideQueue reports whether others wait in the backend's queue, of which this process is not notified.
// Only requests give it a position there, and keep it.
func (w *Waiter) besideQueue(s *slot) bool {
	others := s.holder.Waiters
	if s.holder.Position > 0 {
		others--
	}
	return w.single() && !w.traits.Queue && others > 0
}

// A position in the backend's queue is refreshed by a request, which is a write. A process that
// waits for few names sends one at the poll interval. One that waits for many names refreshes
// its positions less often, and reads the records at the poll interval.
const (
	maxRefreshInterval = 10 * time.Minute
	minQueueFor        = time.Minute
	// enterRounds is about in how many intervals a process with many names enters their queues again, after nothing woke it.
	enterRounds = 5
)

// refreshInterval is how long after a request the next one is due to refresh the position.
func (w *Waiter) refreshInterval() time.Duration {
	poll := w.settings.WatchedPoll
	return max(poll, min(poll*time.Duration(w.env.RefreshRounds()), maxRefreshInterval))
}

// queueFor is how long a position lasts without another request: three of them may fail.
func (w *Waiter) queueFor() time.Duration {
	return min(max(4*w.refreshInterval(), minQueueFor), driver.MaxTTL)
}

// A lock that has had one holder for long will probably keep it for long: a leader leads for days,
// and a job takes about as long as it took before. So a waiter that nothing wakes polls in
// proportion to the time for which it has seen the present holder. It notices a release late by at
// most an eighth of the time that it has waited for this holder, but for the least interval.
const (
	// pollShare is that proportion.
	pollShare = 8
	// maxPollGrowth is how much longer than the default the interval becomes.
	maxPollGrowth = 3
	// minPollPart is how much shorter than the default the interval is for a lock that changes
	// hands often.
	minPollPart = 2
)

// PollInterval is how long to wait, without jitter, before the next read of a lock that has had
// the same holder for heldFor, as far as this waiter has seen. An interval that the user has set
// stays as it is. While a Waker wakes waiters, polls are only a safety net.
func (s Settings) PollInterval(watching, broken bool, heldFor time.Duration) time.Duration {
	least := s.Poll / minPollPart
	switch {
	case watching:
		return s.WatchedPoll
	case s.PollSet:
		return s.Poll
	case broken: // the lease ends within one TTL
		return least
	}
	return min(max(heldFor/pollShare, least), maxPollGrowth*s.Poll)
}
