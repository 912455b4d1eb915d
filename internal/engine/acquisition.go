package engine

import (
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/engine/waiter"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/renewal"
	"github.com/holdfast-go/holdfast/internal/settings"
	"github.com/holdfast-go/holdfast/internal/sightings"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// Acquisition takes one lock for one caller, or any one of its slots. Its Waiter decides what to do
// next; the acquisition does it, and notes what comes of it.
//
// One goroutine at a time sends its requests. Wake-ups and the results of reads come from others.
type Acquisition struct {
	client   *Client
	name     string
	settings settings.Settings
	policy   *Policy // of the hold that it leads to
	managed  Managed // zero unless a LeaseManager drives it
	changed  func()  // something else may be due since a wake-up or a read; without mu

	Emit func(event.Event)

	mu       sync.Mutex // guards the rest; never held across a call of the backend
	waiter   waiter.Waiter
	slots    []slotState
	one      [1]slotState // for a lock without slots
	last     error        // why the lock was not granted
	answered bool         // the backend has said that another holds the lock, or a slot of it
	queued   bool         // it counts among the Client's queuedNames
	nobody   bool         // its requests name no waiter; set before the first
}

// slotState is one slot of an acquisition.
type slotState struct {
	name     string
	sighting *sightings.Sighting // of the holder, shared by the Client's callers; nil until it is found
	stopRead func()              // cancels the read that is planned, if one is
}

// Managed is how a LeaseManager drives an acquisition.
type Managed struct {
	Changed func()      // called when the next request is due at another time; without locks
	Crowded func() bool // reports whether a request would wait for others
}

// NewAcquisition returns an acquisition whose hold has a policy of its own.
func (c *Client) NewAcquisition(name string, s settings.Settings, emit func(event.Event)) *Acquisition {
	return c.newAcquisition(&Policy{Policy: renewal.Policy{Timing: s.Timing, Emit: emit, Overrun: s.Overrun, Role: s.Role}, Slots: s.Slots},
		name, s, Managed{})
}

// NewManagedAcquisition returns an acquisition that a LeaseManager drives: it waits for a lock, whose
// first request is due at a time. Its hold shares its policy with others.
func (c *Client) NewManagedAcquisition(p *Policy, name string, s settings.Settings, m Managed, at time.Duration) *Acquisition {
	a := c.newAcquisition(p, name, s, m)
	a.changed = m.Changed
	a.waiter.Start(at)
	a.join()
	return a
}

func (c *Client) newAcquisition(p *Policy, name string, s settings.Settings, m Managed) *Acquisition {
	a := &Acquisition{client: c, name: name, settings: s, policy: p, managed: m, Emit: p.Emit}
	if a.slots = a.one[:]; s.Slots > 1 {
		a.slots = make([]slotState, s.Slots)
	}
	for i := range a.slots {
		a.slots[i].name = slotName(name, i)
	}
	traits := waiter.Traits{Reads: c.capabilities.BatchInspector != nil, Rereads: m.Changed != nil,
		Queue: c.capabilities.Queue != nil, Turn: c.info.Turn, Shared: s.Mode == driver.Shared}
	a.waiter.Init(c.now(), (*env)(a), waiterSettings(s), traits, s.Slots)
	return a
}

// lane is that of the acquisition's mode.
func (a *Acquisition) lane() *lane { return &a.client.lanes[a.settings.Mode] }

// Next returns when the next request is due, and whether the one before it has failed.
func (a *Acquisition) Next() (at time.Duration, retry bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, at = a.waiter.Next()
	return at, a.waiter.Retrying()
}

// noteHeld notes the refusal of one slot, or what a read has shown instead. mu is held.
func (a *Acquisition) noteHeld(err error) {
	a.answered, a.last = true, allHeld(a.name, len(a.slots), err)
}

// lastErr returns why the lock was not granted.
func (a *Acquisition) lastErr() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}

// join says that the caller waits, until it is granted the lock or calls Abandon.
func (a *Acquisition) join() {
	if a.queued = a.waiter.Join(); a.queued {
		a.client.queuedNames.Add(1)
		a.lane().positions.begin(a.name, a)
	}
}

// leave ends the wait. granted is the slot that was granted, or -1. mu is held.
func (a *Acquisition) leave(granted int) {
	a.perform(a.waiter.Leave(granted))
	if a.queued {
		a.queued = false
		a.client.queuedNames.Add(-1)
		a.lane().positions.end(a.name, a)
	}
}

// Abandon ends the wait, and cleans up every request that is in doubt. A grant does the same.
func (a *Acquisition) Abandon() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leave(-1)
}

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

func (a *Acquisition) stopRead(s *slotState) {
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
