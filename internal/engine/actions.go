package engine

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/engine/waiter"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/settings"
	"github.com/holdfast-go/holdfast/internal/sightings"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// perform does what the Waiter wants. mu is held.
func (a *Acquisition) perform(actions []waiter.Action) {
	for _, do := range actions {
		s := &a.slots[do.Slot]
		switch do.Kind {
		case waiter.Read:
			a.stopRead(s)
			s.stopRead = a.lane().reader.Read(s.name, do.At, func(r driver.Record, err error) { a.noteRead(do.Slot, do.Number, r, err) })
		case waiter.DropRead:
			a.stopRead(s)
		case waiter.CleanUp:
			l := driver.Lease{Name: s.name, ID: do.ID, Owner: a.settings.Owner, TTL: a.settings.TTL, Mode: a.settings.Mode}
			a.client.CleanUp(l, do.At, a.settings.RequestTimeout, a.Emit)
		case waiter.Report:
			a.Emit(event.Event{Type: event.HolderSeen, Name: s.name, Owner: do.Owner, Token: do.Token, Time: time.Now()})
		}
	}
}

func (a *Acquisition) stopRead(s *slot) {
	if s.stopRead != nil {
		s.stopRead()
		s.stopRead = nil
	}
}

// noteRead notes the result of a read.
func (a *Acquisition) noteRead(slot, number int, r driver.Record, err error) {
	if a.client.closing.Err() != nil {
		return // the caller's context ends, too
	}
	a.mu.Lock()
	shown, actions := a.waiter.Read(a.client.now(), slot, number, r, err != nil)
	switch shown {
	case waiter.Held:
		a.noteHeld(&driver.HeldError{Record: r})
	case waiter.Failure:
		a.Emit(event.Event{Type: event.Error, Name: a.slots[slot].name, Op: "inspect", Err: err, Time: time.Now()})
	}
	a.perform(actions)
	a.mu.Unlock()
	if shown != waiter.Nothing {
		a.changed()
	}
}

// wake notes a call of the Waker.
func (a *Acquisition) wake(slot int, up driver.Wakeup) {
	now := a.client.now()
	if a.managed.Crowded == nil {
		a.client.wakeups.note(now)
	}
	a.mu.Lock()
	a.perform(a.waiter.Woken(now, slot, up))
	a.mu.Unlock()
	a.changed()
}

// askAgain has the acquisition send another request for a lock without slots: it may have lost its position.
func (a *Acquisition) askAgain() { a.wake(0, driver.Wakeup{}) }

// Watch has the backend's Waker, if there is one, wake the acquisition when a slot may be free. The caller
// has seen a refusal. A caller that waits for one of several slots has no position.
func (a *Acquisition) Watch() (stop func()) {
	can := &a.client.capabilities
	var stops []func()
	for slot := range a.slots {
		name := a.slots[slot].name
		switch {
		case can.Waker != nil && can.Queue != nil && len(a.slots) == 1:
			stops = append(stops, can.Waker.Wake(name, a.lane().waiter, func(up driver.Wakeup) { a.wake(slot, up) }))
		case a.client.Watches():
			stops = append(stops, can.Waker.Wake(name, "", func(up driver.Wakeup) {
				if up.Kind == driver.MayBeFree { // every waiter was woken, and nothing is reserved for this one
					up.Kind, up.After = driver.WakingBegan, 0
				}
				a.wake(slot, up)
			}))
		}
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// sighting returns the sighting of a slot's holder, which may be an earlier caller's, or nil. mu is held.
func (a *Acquisition) sighting(slot int) *sightings.Sighting {
	s := &a.slots[slot]
	if s.sighting == nil {
		s.sighting = a.client.sightings.Find(s.name)
	}
	return s.sighting
}

// env is what the Waiter of an acquisition knows of the Client. mu is held.
type env Acquisition

func (*env) NewID() driver.LeaseID { return newLeaseID() }

func (*env) Random(d time.Duration) time.Duration { return timing.RandomDuration(d) }

func (e *env) See(slot int, holder driver.Record) {
	s := &e.slots[slot]
	s.sighting = e.client.sightings.See(s.name, holder, s.sighting)
}

func (e *env) StuckAt(slot int) time.Duration {
	return e.client.sightings.StuckAt((*Acquisition)(e).sighting(slot))
}

// refreshedPerRound is how many positions in the backend's queues this process refreshes in one round. There is one at each poll
// interval.
const refreshedPerRound = 32

func (e *env) RefreshRounds() int64 {
	return 1 + max(e.client.queuedNames.Load()-1, 0)/refreshedPerRound
}

func (e *env) Crowded(now time.Duration) bool {
	if e.managed.Crowded != nil {
		return e.managed.Crowded()
	}
	return e.client.wakeups.flood(now)
}

// waiterSettings is what the Waiter knows of the settings.
func waiterSettings(s settings.Settings) waiter.Settings {
	return waiter.Settings{Timing: s.Timing, Poll: s.Poll, WatchedPoll: s.WatchedPoll, PollSet: s.PollSet}
}
