package main

import (
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Exit codes of the command itself. 69, 74 and 75 are those of sysexits.h for an
// unavailable service, a failed output and "try again later"; 126 to 128 are the shell's.
const (
	codeDeclined      = 1 // the user did not agree
	codeUsage         = 2
	codePanic         = 2 // as of every Go program
	codeUnavailable   = 69
	codeOutput        = 74
	codeHeld          = 75
	codeLost          = 76
	codeNotExecutable = 126
	codeNotFound      = 127
	codeSignal        = 128 // plus the signal's number
)

// exitError ends the command with an exit code, and with a message unless err is nil.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// conflictError means that another holds the lock. It is no failure, so --quiet suppresses
// its message.
type conflictError struct{ error }

func (e conflictError) Unwrap() error { return e.error }

// exitCode returns the exit code for an error.
func exitCode(err error) int {
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		return exit.code
	case errors.Is(err, driver.ErrInvalid):
		return codeUsage
	case errors.Is(err, holdfast.ErrHeld):
		return codeHeld
	default:
		return codeUnavailable
	}
}
