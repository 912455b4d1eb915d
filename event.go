package holdfast

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/event"
)

// EventType says what an [Event] reports.
type EventType uint8

const (
	// EventAcquired: this process holds the lock, or was elected.
	EventAcquired EventType = iota + 1
	// EventReleased: the lock was released.
	EventReleased
	// EventLost: the hold ended without a release; Err says why.
	EventLost
	// EventOverrun: the hold has ended without a release, its work still runs, and from now on
	// another may be granted the lock.
	EventOverrun
	// EventHolderSeen: a waiter has seen another holder than before. Owner and Token are the
	// holder's, as far as they are known. A waiter sees only the holders at the times of its
	// requests. If the backend's refusals do not name the holder (Azure Blob Storage), the
	// waiter reads it once, when its wait begins.
	//
	// Callers of one Client that wait for each other are not reported, with one exception: a
	// caller that waits for a lock that it should itself release would wait forever. So a hold
	// of this Client that has kept a caller waiting for half a minute is reported once; with
	// WithSlots, if no slot was taken or released for that time. Owner and Token are that
	// hold's.
	EventHolderSeen
	// EventSteppedDown: a LeaderAwareRunner gives leadership up; Err says why.
	EventSteppedDown
	// EventError: the call named by Op failed. Each failed retry is reported too, so that a
	// lasting failure is noticed. A failed call that renews many leases of a LeaseManager is
	// reported once, with the name of one of them.
	EventError
	eventEnd // stays last
)

// The numbers must equal those of package internal/event: an event that only one of the two has does not compile.
var _ = [1]struct{}{}[eventEnd-EventType(event.End)]

// String returns the name in words, such as "acquired".
func (t EventType) String() string { return event.Type(t).String() }

// Event reports to an observer what happened to a lock.
type Event struct {
	Type  EventType
	Name  string
	Owner string
	Token uint64
	// Op is the call that failed, for EventError: "acquire", "renew", "release",
	// "inspect", "clean up", "health check" or "task".
	Op  string
	Err error
	// Time is this process's wall clock, for people to read.
	Time time.Time
	// Mode is Shared for what happens to a hold of [WithShared].
	Mode driver.Mode
	// Dropped counts the events that this observer missed just before this one because it
	// was too slow.
	Dropped int

	own bool // EventHolderSeen: this Client itself holds the lock
}

// String is one line for people, without any secret.
func (e Event) String() string {
	return event.Event{Type: event.Type(e.Type), Name: e.Name, Owner: e.Owner, Token: e.Token, Op: e.Op, Err: e.Err, Own: e.own,
		Shared: e.Mode == driver.Shared}.String()
}

// notify converts an observer of public events to one of internal events. nil stays nil.
func notify(fn func(Event)) func(event.Event) {
	if fn == nil {
		return nil
	}
	return func(e event.Event) {
		mode := driver.Exclusive
		if e.Shared {
			mode = driver.Shared
		}
		fn(Event{Type: EventType(e.Type), Name: e.Name, Owner: e.Owner, Token: e.Token, Op: e.Op, Err: e.Err, Time: e.Time, Mode: mode,
			Dropped: e.Dropped, own: e.Own})
	}
}
