package main

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

// signals are the signals that holdfast was sent.
type signals struct {
	caught       chan os.Signal
	endRequested bool      // one of them asked holdfast to end
	askedAt      time.Time // when during was first sent one that did
}

// catchSignals starts to catch signals. A signal that was ignored from the start, such as
// SIGHUP under nohup, stays ignored.
func catchSignals() signals {
	s := signals{caught: make(chan os.Signal, 16)}
	if signal.Ignored(os.Interrupt) {
		// A shell without job control ignores both for a command in the background. Go keeps only SIGINT ignored, and
		// does not show that SIGQUIT was.
		ignoreQuit()
	}
	for _, sig := range append(slices.Clone(endingSignals), otherSignals...) {
		if !signal.Ignored(sig) {
			signal.Notify(s.caught, sig)
		}
	}
	// If nobody reads the messages, SIGPIPE must not end holdfast; the write fails instead.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return s
}

// during calls fn and waits for it. A signal that asks holdfast to end cancels fn's
// context; the returned error then carries the exit code, whatever fn returns.
func (s *signals) during(fn func(context.Context) error) error {
	return s.duringWithin(math.MaxInt64, fn)
}

// duringWithin is during, but waits for fn no longer than limit after such a signal: a call of the backend may hang although
// its context has ended. Then fn goes on until the process ends, so fn must not change what the caller reads.
func (s *signals) duringWithin(limit time.Duration, fn func(context.Context) error) error {
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
		case sig := <-s.caught:
			if asksToEnd(sig) {
				if s.endRequested = true; signaled == nil {
					over = time.After(limit)
				}
				if s.askedAt.IsZero() {
					s.askedAt = time.Now()
				}
				signaled = exitcode.With(signalCode(sig), fmt.Errorf("ended by %s", signalName(sig)))
				cancel()
			}
		}
	}
}

// signalCode is the exit code of a process that a signal has ended.
func signalCode(sig os.Signal) int {
	number, _ := sig.(syscall.Signal) // os.Interrupt is a syscall.Signal too
	return exitcode.Signal + int(number)
}
