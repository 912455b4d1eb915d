package driver

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Checker examines a backend: whether it is set up so that locks in it are safe and quick.
type Checker interface {
	// Check calls report for each thing that it has examined, also for what is right. It calls
	// report from one goroutine. It changes nothing on the backend.
	//
	// Nothing that Check finds is an error of Check, not even a server that does not answer. Its
	// error says that it was interrupted, or that the Locker is closed. After a finding that is
	// wrong, it may leave out what cannot be examined because of that.
	Check(ctx context.Context, report func(Finding)) error
	// RemoveProbe removes the record of a lock that is free and has no data. It is for a lock that
	// was taken to examine the backend. The next token of the name may come from the backend's
	// clock, as after any removal. A record that is missing is no error; one that is held or has
	// data is kept.
	RemoveProbe(ctx context.Context, name string) error
}

// CheckWrites is [Checker].Check for what only writes can show. It writes values that are no lock's. A Locker without a method
// CheckWrites, below the wrappers that have a method Unwrap, has nothing to try.
func CheckWrites(ctx context.Context, l Locker, report func(Finding)) error {
	for {
		switch w := l.(type) {
		case interface {
			CheckWrites(ctx context.Context, report func(Finding)) error
		}:
			return w.CheckWrites(ctx, report)
		case interface{ Unwrap() Locker }:
			l = w.Unwrap()
		default:
			return nil
		}
	}
}

// Finding is what was found out about one thing.
type Finding struct {
	// Subject names what was examined, such as "TTL index". It does not depend on the result.
	Subject string `json:"subject"`
	Level   Level  `json:"level"`
	// Detail says in one sentence what was found.
	Detail string `json:"detail"`
	// Remedy says what to do; empty if there is nothing to do.
	Remedy string `json:"remedy,omitempty"`
	// Command, if not empty, is a command that applies the remedy. The remedy says where to run
	// it.
	Command string `json:"command,omitempty"`
	// Server, if not empty, is what this shows of the server: its kind and version, or how many servers there are and how they are
	// joined. "holdfast certify" shows it to others, so it has no name that somebody gave, such as that of a host.
	Server string `json:"-"`
}

// Level says whether something is as it should be.
type Level uint8

// The levels, from the best to the worst.
const (
	// LevelOK means that it is as it should be.
	LevelOK Level = iota
	// LevelUnchecked means that it could not be examined, because a right is missing or the backend
	// does not show it. That alone is nothing bad.
	LevelUnchecked
	// LevelDoubtful means that locks work, but with less safety or speed than they could.
	LevelDoubtful
	// LevelWrong means that locks do not work, or that a promise may be broken.
	LevelWrong
)

var levelNames = [...]string{"ok", "not checked", "doubtful", "wrong"}

// String returns "ok", "not checked", "doubtful" or "wrong".
func (l Level) String() string {
	if int(l) < len(levelNames) {
		return levelNames[l]
	}
	return fmt.Sprintf("level %d", uint8(l))
}

// MarshalText returns what String does.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (l *Level) UnmarshalText(text []byte) error {
	i := slices.Index(levelNames[:], string(text))
	if i < 0 {
		return Invalid("level", Quote(string(text)), "one of "+strings.Join(levelNames[:], ", "))
	}
	*l = Level(i)
	return nil
}

// ProbeName is the name of the lock that is taken to examine a backend.
const ProbeName = "holdfast-doctor"

// OpenForCheck makes a Locker that is only for examining the backend of a URL: for its Checker,
// for reading records, and for the lock [ProbeName]. It changes nothing on the backend and may send
// nothing.
func OpenForCheck(ctx context.Context, rawURL string) (Locker, error) {
	if d, _ := Describe(rawURL); d.OpenForCheck != nil {
		return d.OpenForCheck(ctx, rawURL)
	}
	return Open(ctx, rawURL)
}
