// Package exitcode has the exit codes of the command, and the errors that carry them.
package exitcode

import (
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Exit codes of the command itself. 69, 74 and 75 are those of sysexits.h for an
// unavailable service, a failed output and "try again later"; 126 to 128 are the shell's.
const (
	Declined      = 1 // the user did not agree
	Usage         = 2
	Panic         = 2 // as of every Go program
	Unavailable   = 69
	Output        = 74
	Held          = 75
	Lost          = 76
	NotExecutable = 126
	NotFound      = 127
	Signal        = 128 // plus the signal's number
)

// Error ends the command with an exit code, and with a message unless Err is nil.
type Error struct {
	Code int
	Err  error
}

// With returns an Error; err may be nil.
func With(code int, err error) *Error { return &Error{Code: code, Err: err} }

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// ConflictError means that another holds the lock. It is no failure, so --quiet suppresses
// its message.
type ConflictError struct{ Err error }

func (e ConflictError) Error() string { return e.Err.Error() }

func (e ConflictError) Unwrap() error { return e.Err }

// Of returns the exit code for an error.
func Of(err error) int {
	var exit *Error
	switch {
	case errors.As(err, &exit):
		return exit.Code
	case errors.Is(err, driver.ErrInvalid):
		return Usage
	case errors.Is(err, holdfast.ErrHeld):
		return Held
	case errors.Is(err, holdfast.ErrLost):
		return Lost
	default:
		return Unavailable
	}
}
