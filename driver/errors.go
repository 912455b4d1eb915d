package driver

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Sentinel errors, for errors.Is.
var (
	// ErrHeld means that another holds the lock. errors.As finds a *[HeldError].
	ErrHeld = Errorf("lock is held")
	// ErrLost means that the lease ended before it was released, or no longer counts as
	// held.
	ErrLost = Errorf("lease lost")
	// ErrConflict means that the data were written again before this write could replace
	// them.
	ErrConflict = Errorf("data changed meanwhile")
	// ErrInvalid means that an argument is not allowed. errors.As finds an *[InvalidError].
	ErrInvalid = Errorf("invalid")
	// ErrClosed means that the Locker was closed or the client shut down.
	ErrClosed = Errorf("closed")
	// ErrDenied means that the backend refused the request and changed nothing, and will refuse it
	// again until a person changes something: a missing right, a wrong credential, a read-only
	// folder, a full disk.
	ErrDenied = Errorf("denied")
	// ErrDamaged means that the lock's record cannot be used, so nothing was changed: it is
	// damaged, of an unknown version, or of another machine. A person must repair or delete it.
	ErrDamaged = Errorf("record damaged")
	// ErrIDReleased accompanies an error of [Locker.TryAcquire]; see [WithIDReleased].
	ErrIDReleased = Errorf("the lease ID was released")
)

// Denied returns an error with the text of err that matches [ErrDenied] too. Drivers use it if it is
// certain that the request changed nothing.
func Denied(err error) error { return &marked{err, ErrDenied} }

// Damaged is [Denied] for [ErrDamaged].
func Damaged(err error) error { return &marked{err, ErrDamaged} }

// marked is an error that also matches a sentinel error.
type marked struct {
	error
	sentinel error
}

func (m *marked) plain() string { return ErrorText(m.error) }

// Unwrap returns both errors.
func (m *marked) Unwrap() []error { return []error{m.error, m.sentinel} }

// Lasting reports whether err will stay until a person changes something: whether it matches
// [ErrDenied] or [ErrDamaged].
func Lasting(err error) bool { return errors.Is(err, ErrDenied) || errors.Is(err, ErrDamaged) }

// WithIDReleased returns an error with the text of err that matches [ErrIDReleased] too. It is for a Locker
// that itself has sent a release with the request's ID, or that does not look for a lock that an
// earlier request with this ID may have left behind. A Locker that takes two locks returns it after it was
// granted only one. See [Locker.TryAcquire] for what the caller does.
func WithIDReleased(err error) error { return &marked{err, ErrIDReleased} }

// HeldError names the holder of a lock, as far as the backend reports it. It matches
// [ErrHeld].
type HeldError struct {
	Record Record
	// Reserved says that the lock is free, but reserved for waiters that come before the caller
	// (see [Queue]). The Record then names no holder, and Remaining is how long the reservation
	// lasts.
	Reserved bool
}

// Error names the holder, its token and the time left, where known.
func (e *HeldError) Error() string { return prefix + e.plain() }

func (e *HeldError) plain() string {
	var b strings.Builder
	fmt.Fprintf(&b, "lock %q is ", e.Record.Name)
	if e.Reserved {
		b.WriteString("reserved for a waiter")
	} else {
		b.WriteString("held")
	}
	owner, token := e.Record.Owner, e.Record.Token
	n := len(e.Record.Holders)
	if n > 0 {
		owner, token = e.Record.Holders[n-1].Owner, e.Record.Holders[n-1].Token
	}
	if owner != "" {
		fmt.Fprintf(&b, " by %q", owner)
	}
	var facts []string
	if n > 0 {
		facts = append(facts, fmt.Sprintf("shared by %d", n))
	}
	if token != 0 {
		facts = append(facts, fmt.Sprintf("token %d", token))
	}
	if e.Record.RemainingKnown {
		facts = append(facts, FormatDuration(e.Record.Remaining.Round(time.Millisecond))+" left")
	}
	if e.Record.Endless {
		facts = append(facts, "its lease never ends")
	}
	if e.Record.Broken {
		facts = append(facts, "broken")
	}
	if len(facts) > 0 {
		b.WriteString(" (" + strings.Join(facts, ", ") + ")")
	}
	if e.Record.Blocked != "" {
		b.WriteString(": " + e.Record.Blocked)
	}
	return b.String()
}

// Is makes errors.Is(err, ErrHeld) true.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// InvalidError names an argument that is not allowed, and what is allowed. It matches
// [ErrInvalid].
type InvalidError struct {
	Field string // the argument, as the API names it: "TTL", "Name", …
	Value string // the value, shortened if it is long
	Rule  string // what is allowed, as it reads after "must be"
}

// Invalid returns an *[InvalidError].
func Invalid(field, value, rule string) *InvalidError {
	return &InvalidError{Field: field, Value: value, Rule: rule}
}

// Error returns a text such as: TTL 2s is invalid: must be from 15s to 1m.
func (e *InvalidError) Error() string { return prefix + e.plain() }

func (e *InvalidError) plain() string {
	return fmt.Sprintf("%s %s is invalid: must be %s", e.Field, e.Value, e.Rule)
}

// Is makes errors.Is(err, ErrInvalid) true.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// OpError adds the operation, the backend and the lock's name to an error. Drivers wrap
// every error in one.
type OpError struct {
	Op      string // "acquire", "renew", "release", "inspect", …
	Backend string // "mongodb", "file", …
	Name    string // the lock's name; may be empty
	Err     error
	// NotSent says that the request certainly never left the process; see [NotSent].
	NotSent bool
}

// Error returns a text such as: holdfast: renew "billing" on mongodb: ….
func (e *OpError) Error() string { return prefix + e.plain() }

func (e *OpError) plain() string {
	switch {
	case e.Op == "connect":
		return fmt.Sprintf("connect to %s: %s", e.Backend, ErrorText(e.Err))
	case e.Name == "":
		return fmt.Sprintf("%s on %s: %s", e.Op, e.Backend, ErrorText(e.Err))
	}
	return fmt.Sprintf("%s %q on %s: %s", e.Op, e.Name, e.Backend, ErrorText(e.Err))
}

// Unwrap returns the cause, for errors.Is and errors.As.
func (e *OpError) Unwrap() error { return e.Err }

// NotSent reports whether the request of the call that returned err certainly never left the process: the backend
// has done nothing of it, and will not. No connection could be made, no server was known that takes the request, or the
// context ended before the request was written. That does not last, and says nothing of earlier requests, so the outcome
// does not count as known: the caller sends the request again. But nothing has to be cleaned up.
//
// Only the outermost *[OpError] counts. The error of another call that is wrapped in it, such as the cause of a context's end,
// says nothing of this call.
func NotSent(err error) bool {
	var op *OpError
	return errors.As(err, &op) && op.NotSent && !OutcomeKnown(err)
}

// OutcomeKnown reports whether it is certain, after a call that returned err, what the
// backend did.
func OutcomeKnown(err error) bool {
	return err == nil || errors.Is(err, ErrHeld) || errors.Is(err, ErrLost) || errors.Is(err, ErrConflict) ||
		errors.Is(err, ErrInvalid) || errors.Is(err, ErrClosed) || Lasting(err)
}
