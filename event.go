package holdfast

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/worker"
)

// EventType says what an [Event] tells.
type EventType uint8

const (
	// EventAcquired: this process holds the lock, or was elected.
	EventAcquired EventType = iota + 1
	// EventReleased: the lock was given back.
	EventReleased
	// EventLost: the hold ended without a release; Err says why.
	EventLost
	// EventOverrun: the hold ended, its work has not, and from now on another may
	// be granted the lock.
	EventOverrun
	// EventHolderSeen: while waiting, another holder was seen than before (when this process
	// asked or looked next: not every holder in between is seen); Owner and
	// Token are the other's, as far as they are known. A backend whose refusals name
	// nobody (Azure Blob Storage) is asked once for each wait.
	//
	// If this Client itself holds the lock, its callers wait for each other, which is no
	// event. But a caller that waits for what it should itself release waits forever. So a
	// hold that has kept a caller waiting for half a minute is reported, once; with
	// WithSlots, when no slot came or went for so long. Owner and Token are that hold's.
	EventHolderSeen
	// EventSteppedDown: a LeaderAwareRunner gives up leadership; Err says why.
	EventSteppedDown
	// EventError: something failed, Op says what. What is retried is told again with
	// every try, so that a lasting failure does not go unnoticed. When a call fails that
	// renews many leases of a LeaseManager, it is told once, with the name of one.
	EventError
)

var eventNames = [...]string{"unknown", "acquired", "released", "lost", "overrun", "holder seen", "stepped down", "error"}

// String returns the name in words, such as "acquired".
func (t EventType) String() string {
	if int(t) < len(eventNames) {
		return eventNames[t]
	}
	return fmt.Sprintf("event %d", uint8(t))
}

// Event tells an observer what happened to a lock.
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
	// Dropped counts the events this observer missed just before this one because
	// it was too slow.
	Dropped int

	leader bool // of a LeaderAwareRunner: to acquire is to be elected
	own    bool // EventHolderSeen: this Client holds the lock
}

// asLeader marks the events of a LeaderAwareRunner.
func asLeader(emit func(Event)) func(Event) {
	return func(e Event) {
		e.leader = true
		emit(e)
	}
}

// String is one line for people, without any secret.
func (e Event) String() string {
	s := fmt.Sprintf("%s %q", e.Type, e.Name)
	if e.Type == EventHolderSeen && e.Owner != "" {
		s += fmt.Sprintf(": %q", e.Owner)
	}
	if e.own {
		s += " in this process"
	}
	if e.Op != "" {
		s += " in " + e.Op
	}
	if e.Token != 0 {
		s += fmt.Sprintf(", token %d", e.Token)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// observerBacklog bounds the events that wait for one slow observer, eventsPerName how
// many more may for each name of a LeaseManager: thousands of names can be acquired, or
// lost, at once.
const (
	observerBacklog = 1024
	eventsPerName   = 4
)

// sink hands events to one observer, in order, on a goroutine that lives only
// while there are events: a slow or panicking observer delays nobody.
type sink struct {
	observe func(Event)
	workers *worker.Group
	logger  *slog.Logger
	names   *atomic.Int64 // managed

	mu      sync.Mutex
	backlog []Event
	limit   int // of the backlog: it only grows
	dropped int
	busy    bool
}

func (s *sink) emit(e Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = max(s.limit, observerBacklog+eventsPerName*int(s.names.Load())) // while names go, events come
	if len(s.backlog) >= s.limit {
		s.dropped++
		return
	}
	e.Dropped, s.dropped = s.dropped, 0
	s.backlog = append(s.backlog, e)
	if !s.busy {
		s.busy = s.workers.Go(s.drain)
	}
}

func (s *sink) drain() {
	returned := false
	defer func() {
		if !returned { // the observer ended its goroutine: go on with another
			s.mu.Lock()
			s.busy = s.workers.Go(s.drain)
			s.mu.Unlock()
		}
	}()
	for {
		s.mu.Lock()
		if len(s.backlog) == 0 {
			s.backlog, s.busy = nil, false
			s.mu.Unlock()
			returned = true
			return
		}
		e := s.backlog[0]
		s.backlog = s.backlog[1:]
		s.mu.Unlock()
		guarded(s.logger, s.observe, e)
	}
}

// guarded calls a user's function; its panic is logged and goes no further.
func guarded(logger *slog.Logger, fn func(Event), e Event) {
	defer func() {
		if p := recover(); p != nil {
			defer func() { _ = recover() }() // it may be the logger that panics
			logger.Error("holdfast: an observer or hook panicked", "event", e.Type.String(), "lock", e.Name, "panic", p)
		}
	}()
	fn(e)
}
