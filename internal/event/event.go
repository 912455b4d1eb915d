// Package event defines the events that observers are notified of.
package event

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"time"
)

// Type says what happened.
type Type uint8

// The types of events. Package holdfast documents them.
const (
	Acquired Type = iota + 1
	Released
	Lost
	Overrun
	HolderSeen
	SteppedDown
	Error
	End // one more than the last; package holdfast compares it with its own
)

// Waiting is for the log only: a caller has waited for a second, or for another holder than before. Its number is none that
// a type for observers ever gets.
const Waiting Type = math.MaxUint8

var names = [End]string{"unknown", "acquired", "released", "lost", "overrun", "holder seen", "stepped down", "error"}

// String returns the name in words, such as "acquired".
func (t Type) String() string {
	switch {
	case t < End:
		return names[t]
	case t == Waiting:
		return "waiting"
	}
	return fmt.Sprintf("event %d", uint8(t))
}

// Event is one event. Package holdfast has its public form, and documents the fields.
type Event struct {
	Type    Type
	Name    string
	Owner   string
	Token   uint64
	Op      string
	Err     error
	Time    time.Time
	Dropped int

	Waited time.Duration // Waiting: for how long
	Leader bool          // of a LeaderAwareRunner: acquiring means being elected
	Shared bool          // of a hold that shares its lock
	Own    bool          // HolderSeen: this Client itself holds the lock
}

// AsLeader returns emit for the events of a LeaderAwareRunner.
func AsLeader(emit func(Event)) func(Event) {
	return func(e Event) {
		e.Leader = true
		emit(e)
	}
}

// String returns one line for people, without any secret.
func (e Event) String() string {
	s := fmt.Sprintf("%s %q", e.Type, e.Name)
	if e.Type == HolderSeen && e.Owner != "" {
		s += fmt.Sprintf(": %q", e.Owner)
	}
	if e.Own {
		s += " in this process"
	}
	if e.Shared {
		s += ", shared"
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

// Call calls a user's function for an event. A panic of the function is logged and ends there. A function that ends
// its goroutine is logged, and the goroutine ends.
func Call(logger *slog.Logger, fn func(Event), e Event) {
	CallUser(func() error { fn(e); return nil }, func(r Result) {
		if !r.Failed() {
			return
		}
		defer func() { _ = recover() }() // the logger itself may panic
		what, attr := "ended its goroutine", slog.Any("error", r.Err)
		if r.Panic != nil {
			what, attr = "panicked", slog.Any("panic", r.Panic)
		}
		logger.LogAttrs(context.Background(), slog.LevelError, "holdfast: an observer or hook "+what,
			slog.String("event", e.Type.String()), slog.String("lock", e.Name), attr)
	})
}
