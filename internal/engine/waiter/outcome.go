package waiter

import (
	"cmp"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Outcome is how a request ended.
type Outcome uint8

// The outcomes of requests.
const (
	Granted Outcome = iota
	Refused         // another holds the lock, or it is reserved for other waiters
	Failed          // certainly not granted: it was refused, for a reason that lasts, or not sent
	Unknown         // it may have been granted, or may still be
	TooLate         // it was granted, and the lease may have been lost since
)

// Answer is the outcome of a request.
type Answer struct {
	Outcome  Outcome
	Holder   *driver.Record // that a refusal names, or nil
	Reserved bool           // for other waiters: the record names no holder
	// OnlySlot says that the failure concerns this slot, and not the others.
	OnlySlot bool
	// IDReleased says that a release with the request's ID was sent.
	IDReleased bool
}

// InDoubt says until when requests whose outcome is unknown may keep a lock taken: until one
// TTL after the latest of them was sent.
type InDoubt struct {
	Any   bool
	Until time.Duration
}

// Note adds a request that may keep the lock taken until a time.
func (d *InDoubt) Note(until time.Duration) {
	if !d.Any || until > d.Until {
		d.Any, d.Until = true, until
	}
}

// Answered notes the outcome of the request for a slot that is under way.
func (w *Waiter) Answered(now time.Duration, slot int, a Answer) (actions []Action) {
	s := &w.slots[slot]
	s.asking, s.failed = false, a.Outcome > Refused
	switch a.Outcome {
	case Granted:
	case Refused:
		actions = w.noteRefusal(now, slot, a)
	default:
		if a.Outcome != Failed {
			// Promise 5: a request may be applied although its reply was lost, and may still keep the
			// lock taken one TTL after it was sent.
			s.inDoubt.Note(s.askedAt + w.settings.TTL)
		}
		if a.Outcome == TooLate { // the next request needs another ID
			actions = w.abandon(slot, actions)
		}
		actions = w.noteFailure(now, slot, a.OnlySlot && len(w.slots) > 1, actions)
	}
	if a.IDReleased {
		// Promise 1: a release of this ID that arrives late would free the lock that the next request
		// is granted, while this process counts on it.
		actions = w.abandon(slot, actions)
		s.id = w.env.NewID()
	}
	return actions
}

// noteFailure plans what follows a failed request: after the backoff, requests for all slots. Nothing
// is sent before. A failure that concerns this slot alone delays no other.
func (w *Waiter) noteFailure(now time.Duration, slot int, alone bool, actions []Action) []Action {
	s := &w.slots[slot]
	if alone {
		s.retryAt = now + max(w.backoff(s.damaged), w.jitter(w.settings.Poll, pollJitter))
		s.damaged++
		s.planned = s.retryAt
		return w.checkMissed(now, slot, actions)
	}
	w.retryAt = now + w.backoff(s.failures)
	s.failures++
	for i := range w.slots {
		other := &w.slots[i]
		other.planned = w.retryAt
		if other.read.urgent { // the request that replaces the read follows the wake-up, whatever is planned until then
			other.called = min(other.called, now)
		}
		actions = w.dropRead(i, actions)
	}
	return actions
}

// backoff is how long to leave a backend alone after n failures before the latest. A poll interval that the user has
// set limits it. The backend's own does not: that is for a backend that answers.
func (w *Waiter) backoff(n int) time.Duration {
	d := w.jitter(w.settings.Delay(n), 0.25)
	if w.settings.PollSet {
		d = min(d, w.jitter(w.settings.Poll, pollJitter))
	}
	return max(d, time.Millisecond)
}

// abandon starts the cleanup of a slot's requests that are in doubt.
func (w *Waiter) abandon(slot int, actions []Action) []Action {
	s := &w.slots[slot]
	if !s.inDoubt.Any {
		return actions
	}
	// Promise 5: the lease ID is released until the request can no longer take the lock.
	// It is not used again: a late release could end a new lease.
	actions = append(actions, Action{Kind: CleanUp, Slot: slot, At: s.inDoubt.Until, ID: s.id})
	s.id, s.inDoubt = w.env.NewID(), InDoubt{}
	return actions
}

// noteRefusal notes that another holds the lock, and plans what follows.
func (w *Waiter) noteRefusal(now time.Duration, slot int, a Answer) (actions []Action) {
	s := &w.slots[slot]
	s.failures, s.damaged, w.failedReads = 0, 0, 0
	s.position, s.reserved = 0, a.Reserved
	if a.Holder != nil {
		s.position = a.Holder.Position
		actions = w.see(now, slot, *a.Holder)
	} else { // the driver names no holder
		s.noteHolder(now, 0)
		s.holder.RemainingKnown, s.stuckAt = false, w.env.StuckAt(slot)
	}
	if s.overAt() < now+minRetry<<min(s.overdue, 30) {
		s.overdue++
	} else {
		s.overdue = 0
	}
	if a.Holder != nil && a.Holder.Broken {
		// The broken lease may be this caller's own, and its ID is refused while it lasts.
		actions = w.abandon(slot, actions)
	}
	return w.checkMissed(now, slot, w.schedule(now, slot, actions))
}

// see notes the present holder.
func (w *Waiter) see(now time.Duration, slot int, holder driver.Record) (actions []Action) {
	s := &w.slots[slot]
	s.noteHolder(now, holder.Token)
	if holder.Token != s.holder.Token || holder.Revision != s.holder.Revision {
		s.overdue = 0 // it has renewed, or is another
	}
	w.env.See(slot, holder)
	s.stuckAt = w.env.StuckAt(slot)
	// A backend that cannot name the owner for a moment does not mean another holder.
	if anonymous := holder.Owner == "" && (holder.Token == 0 || holder.TTL == 0); !anonymous {
		actions = w.Identified(slot, holder.Owner, holder.Token)
	}
	s.holder = holder
	return actions
}

// noteHolder notes since when the present holder has been seen. token is 0 if it is unknown.
func (s *slot) noteHolder(now time.Duration, token uint64) {
	if !s.refused || token != 0 && s.token != 0 && token != s.token {
		s.heldSince = now
	}
	s.refused, s.seenAt, s.token = true, now, cmp.Or(token, s.token)
}

// Unidentified returns a slot that has a holder whom the backend's refusals do not name, if no holder
// was reported. The caller reads its record once, and calls Identified.
func (w *Waiter) Unidentified() (slot int, ok bool) {
	slot = -1
	for i := range w.slots {
		switch s := &w.slots[i]; {
		case s.identified:
			return 0, false
		case slot < 0 && s.refused && !s.reserved:
			slot = i
		}
	}
	return slot, slot >= 0
}

// Identified notes the holder of a slot, which is reported once. Without an owner and a token there is
// a holder, and nothing more is known of it.
func (w *Waiter) Identified(slot int, owner string, token uint64) (actions []Action) {
	s := &w.slots[slot]
	if s.identified && owner == s.owner && token == s.ownerToken {
		return nil
	}
	s.identified, s.owner, s.ownerToken = true, owner, token
	return []Action{{Kind: Report, Slot: slot, Owner: owner, Token: token}}
}
