package engine

import (
	"cmp"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/sightings"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// Attempt is an acquisition's request for one slot, and what is known of the slot's holder. A
// lock without slots has one attempt. It is used by its acquisition's goroutine alone.
type Attempt struct {
	acquisition *Acquisition
	slot        int
	req         driver.Request

	inDoubt    InDoubt
	failed     bool                // the latest request ended neither in a grant nor in a refusal
	refused    bool                // a request or a read has shown a holder
	seenAt     time.Duration       // when it last did
	holder     driver.Record       // as last seen
	sighting   *sightings.Sighting // of the holder, shared by the Client's callers; nil until it is found
	overdue    int                 // refusals in a row after the holder's time should have ended
	identified bool                // observers were notified of a holder
	reported   driver.Record       // the holder that they were notified of
	token      uint64              // the latest token that was seen of a holder, or 0
	heldSince  time.Duration       // since when that holder was seen

	woken    wakeUp        // by the Watcher or the Queue
	Watching bool          // it has called once: it reports releases from then on
	position int           // in the queue, as last seen; 0: none
	reserved bool          // the latest refusal was for other waiters, not for a holder
	askedAt  time.Duration // when the latest request was sent
	tryAt    time.Duration // when to send the next request
	StopRead func()        // cancels the read that is planned; see CancelRead
}

// InDoubt says until when requests whose outcome is unknown may keep a lock taken: until one
// TTL after the latest of them was sent.
type InDoubt struct {
	any   bool
	until time.Duration
}

// Note adds a request that may keep the lock taken until a time.
func (d *InDoubt) Note(until time.Duration) {
	if !d.any || until > d.until {
		d.any, d.until = true, until
	}
}

// lease is the lease, without its token, that the request asks for.
func (t *Attempt) lease() driver.Lease {
	return driver.Lease{Name: t.req.Name, ID: t.req.ID, Owner: t.req.Owner, TTL: t.req.TTL}
}

// abandon starts the cleanup of a request that is in doubt.
func (t *Attempt) abandon() {
	if t.inDoubt.any {
		a := t.acquisition
		// Promise 5: the lease ID is released until the request can no longer take the lock.
		// It is not used again: a late release could end a new lease.
		a.client.CleanUp(t.lease(), t.inDoubt.until, a.settings.RequestTimeout, a.Emit)
		t.req.ID, t.inDoubt = newLeaseID(), InDoubt{}
	}
}

// noteRefusal notes that another holds the lock.
func (t *Attempt) noteRefusal(err error) {
	var held *driver.HeldError
	if t.position, t.reserved = 0, false; errors.As(err, &held) {
		t.position, t.reserved = held.Record.Position, held.Reserved
		t.see(held.Record)
	} else { // the driver names no holder
		t.noteHolder(0)
		t.refused, t.seenAt, t.holder.RemainingKnown = true, t.acquisition.client.now(), false
	}
	if t.overAt() < t.seenAt+minRetry<<min(t.overdue, 30) {
		t.overdue++
	} else {
		t.overdue = 0
	}
	if held != nil && held.Record.Broken && t.inDoubt.any {
		// The broken lease may be this attempt's own, and its ID is refused while it lasts.
		t.abandon()
	}
}

// minRetry is the least time between requests for a lock that is refused although it should be
// free by what is known of its holder. The time doubles with each refusal, up to the poll
// interval.
const minRetry = 10 * time.Millisecond

// overAt is when the holder's time ends, by what is known of the holder.
func (t *Attempt) overAt() time.Duration {
	at := t.stuckAt()
	if t.holder.RemainingKnown {
		at = min(at, t.seenAt+min(t.holder.Remaining, driver.MaxTTL))
	}
	return at
}

// see notes the present holder.
func (t *Attempt) see(holder driver.Record) {
	t.noteHolder(holder.Token)
	t.refused, t.seenAt = true, t.acquisition.client.now()
	if holder.Token != t.holder.Token || holder.Revision != t.holder.Revision {
		t.overdue = 0 // it has renewed, or is another
	}
	t.sighting = t.acquisition.client.sightings.See(t.req.Name, holder, t.sighting)
	// A backend that cannot name the owner for a moment does not mean another holder.
	if anonymous := holder.Owner == "" && (holder.Token == 0 || holder.TTL == 0); !anonymous {
		t.report(holder)
	}
	t.holder = holder
}

// noteHolder notes since when the present holder has been seen. token is 0 if it is unknown.
func (t *Attempt) noteHolder(token uint64) {
	if !t.refused || token != 0 && t.token != 0 && token != t.token {
		t.heldSince = t.acquisition.client.now()
	}
	t.token = cmp.Or(token, t.token)
}

// report notifies observers of a holder, once.
func (t *Attempt) report(holder driver.Record) {
	if !t.identified || holder.Owner != t.reported.Owner || holder.Token != t.reported.Token {
		t.identified, t.reported = true, holder
		t.acquisition.Emit(event.Event{Type: event.HolderSeen, Name: t.req.Name, Owner: holder.Owner, Token: holder.Token, Time: time.Now()})
	}
}

// stuckRevision is the revision of a holder whose time is over by this Client's elapsed time,
// and zero as long as it is not.
func (t *Attempt) stuckRevision() driver.Revision {
	return t.acquisition.client.sightings.Stuck(t.findSighting())
}

// stuckAt is when the holder's time will be over by this Client's elapsed time, unless it
// renews.
func (t *Attempt) stuckAt() time.Duration {
	return t.acquisition.client.sightings.StuckAt(t.findSighting())
}

// findSighting returns the sighting of the holder, which may be an earlier caller's, or nil.
func (t *Attempt) findSighting() *sightings.Sighting {
	if t.sighting == nil {
		t.sighting = t.acquisition.client.sightings.Find(t.req.Name)
	}
	return t.sighting
}

// SawRecord notes the result of a read. It reports whether a request is worth sending: unless
// another certainly holds the lock.
func (t *Attempt) SawRecord(r driver.Record, err error) (try bool) {
	if err != nil || r.State != driver.StateHeld || r.RemainingKnown && r.Remaining <= 0 || t.maybeOurs() {
		return true
	}
	t.see(r)
	t.reserved = false
	a := t.acquisition
	a.last = allHeld(a.name, len(a.Attempts), &driver.HeldError{Record: r})
	// A request enters the queue again if the position is gone, or could not be had before.
	outside := a.queued && r.Position == 0 && (t.position > 0 || a.client.now() >= t.askedAt+a.refreshInterval())
	t.position = r.Position
	return outside || !t.stuckRevision().IsZero()
}

// maybeOurs reports whether the holder may be a request of this attempt that is in doubt. Only
// another request with the same ID can tell.
func (t *Attempt) maybeOurs() bool {
	return t.inDoubt.any && t.acquisition.client.now() < t.inDoubt.until+t.req.TTL
}

// Schedule returns when to send the next request unless the Watcher calls first, and when to
// read the record before that.
//
// Where the record can be read in batches, reads replace requests at the poll interval, and a
// request is due only when the holder's time ends. Elsewhere a request is due at the poll
// interval, and a read never.
func (t *Attempt) Schedule() (tryAt, readAt time.Duration) {
	a := t.acquisition
	never := driver.MaxTTL + a.client.now()
	if !t.refused {
		return 0, never
	}
	// Promise 10: a request is due when the holder is stuck, however far ahead its expiry lies.
	tryAt = t.stuckAt()
	poll := pollInterval(a.settings, t.Watching, t.holder.Broken, a.client.now()-t.heldSince)
	if left := min(t.holder.Remaining, driver.MaxTTL); t.holder.RemainingKnown {
		tryAt = min(tryAt, t.seenAt+left) + t.afterExpiry()
		// A holder that is alive has renewed before three quarters of this time are over.
		if early := left - left/4; t.Readable() && !t.reserved && left > t.holder.TTL/4 && early > 10*time.Millisecond {
			poll = min(poll, early)
		}
	}
	if t.overdue > 0 {
		tryAt = max(tryAt, t.seenAt+timing.Backoff(t.overdue-1, minRetry, a.settings.Poll))
	}
	next, refreshAt := t.seenAt+timing.Jitter(poll, 0.2), never
	if a.queued {
		refreshAt = t.askedAt + timing.Jitter(a.refreshInterval(), 0.2)
	}
	switch tryAt = min(tryAt, refreshAt); {
	case !t.Readable(), a.queued && a.client.refreshRounds() == 1:
		return min(tryAt, next), never
	case next < tryAt:
		return tryAt, next
	default:
		return tryAt, never
	}
}

// afterExpiry is how long after the holder's time has ended to send the next request.
//
// Waiters of many processes wake at the same expiry. Those with a position in a queue come one
// after another. Most often the first is granted the lock, and the others need not come: behind
// the second, they only make sure that the lock is not left free for long.
func (t *Attempt) afterExpiry() time.Duration {
	const start, spacing = time.Millisecond, 50 * time.Millisecond
	if t.position == 0 {
		return start + timing.RandomDuration(10*time.Millisecond)
	}
	after := start
	if !t.reserved { // otherwise the time left is that until the turn
		after += driver.Turn(t.position)
	}
	if t.position > driver.WokenWaiters {
		after += time.Duration(t.position) * spacing
	}
	return after
}

// Readable reports whether a batch read can show what a request would.
func (t *Attempt) Readable() bool {
	return t.acquisition.client.reader != nil && t.refused && !t.maybeOurs()
}

// CancelRead cancels the read that is planned, if there is one.
func (t *Attempt) CancelRead() {
	if t.StopRead != nil {
		t.StopRead()
		t.StopRead = nil
	}
}
