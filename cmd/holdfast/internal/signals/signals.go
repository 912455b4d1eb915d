// Package signals has the signals that the command handles.
package signals

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
)

// Caught are the signals that holdfast was sent.
type Caught struct {
	C            chan os.Signal
	EndRequested bool      // one of them asked holdfast to end
	AskedAt      time.Time // when During was first sent one that did
}

// Catch starts to catch signals. A signal that was ignored from the start, such as
// SIGHUP under nohup, stays ignored.
func Catch() Caught {
	s := Caught{C: make(chan os.Signal, 16)}
	Notify(s.C, append(slices.Clone(Ending), Other...)...)
	return s
}

// Notify is signal.Notify without the signals that were ignored from the start, such as SIGHUP under nohup.
func Notify(c chan<- os.Signal, which ...os.Signal) {
	if signal.Ignored(os.Interrupt) {
		// A shell without job control ignores both for a command in the background. Go keeps only SIGINT ignored, and
		// does not show that SIGQUIT was.
		ignoreQuit()
	}
	for _, sig := range which {
		if !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
	// If nobody reads the messages, SIGPIPE must not end holdfast; the write fails instead.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}

// During calls fn and waits for it. A signal that asks holdfast to end cancels fn's
// context; the returned error then carries the exit code, whatever fn returns.
func (s *Caught) During(fn func(context.Context) error) error {
	return s.DuringWithin(math.MaxInt64, fn)
}

// DuringWithin is During, but waits for fn no longer than limit after such a signal: a call of the backend may hang although
// its context has ended. Then fn goes on until the process ends, so fn must not change what the caller reads.
func (s *Caught) DuringWithin(limit time.Duration, fn func(context.Context) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- fn(ctx) }()
	var signaled *exitcode.Error
	var over <-chan time.Time
	for {
		select {
		case err := <-done:
			if signaled != nil {
				return signaled
			}
			return err
		case <-over:
			return signaled
		case sig := <-s.C:
			if AsksToEnd(sig) {
				if s.EndRequested = true; signaled == nil {
					over = time.After(limit)
				}
				if s.AskedAt.IsZero() {
					s.AskedAt = time.Now()
				}
				signaled = exitcode.With(Code(sig), fmt.Errorf("ended by %s", Name(sig)))
				cancel()
			}
		}
	}
}

// Code is the exit code of a process that a signal has ended.
func Code(sig os.Signal) int {
	number, _ := sig.(syscall.Signal) // os.Interrupt is a syscall.Signal too
	return exitcode.Signal + int(number)
}

// AsksToEnd reports whether a signal asks holdfast to end.
func AsksToEnd(sig os.Signal) bool { return slices.Contains(Ending, sig) }
