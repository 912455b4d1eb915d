package waiter

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Woken notes a call of the backend's Waker. For a waiter without a position, a lock that may be free is
// like waking that has begun: the backend woke every waiter.
//
// An announced turn leads to a request at its time, also if a request or a read was under way: a read may
// show the record of before the release, and a waiter that misses its turn loses its position. Nothing
// postpones it, and only a request that is sent when it has begun answers it. Of several turns the earliest
// counts.
func (w *Waiter) Woken(now time.Duration, slot int, up driver.Wakeup) (actions []Action) {
	s := &w.slots[slot]
	known := s.refused && !s.failed && now-up.Ago < s.askedAt // the latest request was sent after that
	switch {
	case w.left:
		return nil
	case up.Kind == driver.MayBeFree: // this alone does not say that every release is reported
		if s.own || known { // SlotFreed reports the release of an own slot
			return nil
		}
		s.turn = min(s.turn, now+min(up.After, driver.MaxTurns*w.traits.Turn))
		return w.dropRead(slot, nil)
	case up.Kind == driver.WakingEnded, known: // polls are more frequent now, or rarer
		s.deaf = up.Kind == driver.WakingEnded
		// The driver knew it before a request that is under way, and perhaps before one that was sent before the first report.
		s.polled = s.polled || s.deaf && (s.asking || !s.watching)
		s.watching = !s.deaf
		return w.schedule(now, slot, nil)
	}
	first := !s.watching
	s.polled = s.polled || first && !s.deaf && up.Ago > 0 // waking began after the request was sent, and not now
	s.watching, s.deaf = true, false
	switch {
	case s.own:
		return nil
	case s.asking || s.read.urgent:
		s.missed = missed{any: true, first: first || s.missed.first}
		return nil
	}
	return w.check(now, slot, first, nil)
}

// check plans a request or a read for a slot that may be free. A read is enough in two cases: when the
// slot was not watched before, since the call says only that the watch is in effect, and when many
// waiters were woken. The reads of a process that waits for a thousand names share a call. Otherwise a read is
// one way more, which lets those go first who are near: a distant process waited eight times as long.
//
// And a waiter that has polled sends a request to be woken from now on. One of many names reads first, and its requests
// follow one after another.
func (w *Waiter) check(now time.Duration, slot int, first bool, actions []Action) []Action {
	s := &w.slots[slot]
	enters := w.queued() && s.polled && w.env.RefreshRounds() == 1
	if enters || !w.readable(now, s) || !first && !w.env.Crowded(now) {
		s.called = min(s.called, now)
		return w.dropRead(slot, actions) // it may return the state before the wake-up
	}
	return w.planRead(slot, now, true, actions)
}

// checkMissed follows a wake-up that came while a request or a read was under way, unless a request is
// planned that does.
func (w *Waiter) checkMissed(now time.Duration, slot int, actions []Action) []Action {
	s := &w.slots[slot]
	if !s.missed.any || min(s.called, s.turn) < Never {
		return actions
	}
	first := s.missed.first
	s.missed = missed{}
	return w.check(now, slot, first, actions)
}

// SlotFreed notes that this process has freed a slot.
func (w *Waiter) SlotFreed(now time.Duration, slot int) []Action {
	if slot >= len(w.slots) || w.left {
		return nil
	}
	s := &w.slots[slot]
	s.own, s.called = false, min(s.called, now)
	return w.dropRead(slot, nil)
}

// planRead plans a read, in place of an earlier one.
func (w *Waiter) planRead(slot int, at time.Duration, urgent bool, actions []Action) []Action {
	s := &w.slots[slot]
	s.read = read{number: s.read.number + 1, planned: true, urgent: urgent}
	return append(actions, Action{Kind: Read, Slot: slot, At: max(at, w.notBefore(s)), Number: s.read.number})
}

// dropRead drops the planned read, if there is one. A result that has come already no longer counts.
func (w *Waiter) dropRead(slot int, actions []Action) []Action {
	r := &w.slots[slot].read
	if !r.planned {
		return actions
	}
	*r = read{number: r.number}
	return append(actions, Action{Kind: DropRead, Slot: slot})
}

// Shown is what a read has shown.
type Shown uint8

// What reads show.
const (
	Nothing Shown = iota // of interest: another plan has replaced the read
	Failure              // the read has failed, and is repeated
	Free                 // perhaps: a request is due
	Held                 // by another, who keeps the caller waiting
)

// Read notes the result of the read with a number. failed says that there is no record.
func (w *Waiter) Read(now time.Duration, slot, number int, r driver.Record, failed bool) (Shown, []Action) {
	s := &w.slots[slot]
	if w.left || !s.read.planned || s.read.number != number {
		return Nothing, nil
	}
	if failed && w.traits.Rereads { // requests for each of thousands of names would fail too
		w.retryAt = now + w.backoff(w.failedReads)
		w.failedReads++
		return Failure, w.planRead(slot, w.retryAt, s.read.urgent, nil)
	}
	// A reader that finds others after a gap may have missed that it may join them.
	mayJoin := s.read.urgent && w.traits.Shared && len(r.Holders) > 0
	s.read, w.failedReads = read{number: number}, 0
	shown, actions := w.Inspected(now, slot, r, failed)
	if shown == Free || mayJoin {
		shown = Free
		s.called = min(s.called, now)
	}
	return shown, w.checkMissed(now, slot, actions)
}

// Inspected notes the record of a slot whose request is due, and which was read before that. If it
// shows a holder, the request is due later.
func (w *Waiter) Inspected(now time.Duration, slot int, r driver.Record, failed bool) (Shown, []Action) {
	s := &w.slots[slot]
	// A reader joins others, unless somebody waits before it, which only a request shows. One that is woken in its turn need not ask.
	joins := w.traits.Shared && len(r.Holders) > 0 && (r.Position == 0 || !s.watching)
	if failed || r.State != driver.StateHeld || joins || r.RemainingKnown && r.Remaining <= 0 || w.maybeOurs(now, s) {
		return Free, nil
	}
	actions := w.see(now, slot, r)
	s.reserved = false
	outside := w.besideQueue(s) || w.queued() && s.position > 0 && r.Position == 0 // a request enters the queue again
	s.position = r.Position
	actions = w.schedule(now, slot, actions)
	if outside || now >= s.stuckAt {
		s.planned = now
	}
	return Held, actions
}
