package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// signals are the signals that holdfast was sent.
type signals struct {
	caught       chan os.Signal
	endRequested bool // one of them asked holdfast to end
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
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- fn(ctx) }()
	var signaled *exitError
	for {
		select {
		case err := <-done:
			if signaled != nil {
				return signaled
			}
			return err
		case sig := <-s.caught:
			if asksToEnd(sig) {
				s.endRequested = true
				signaled = &exitError{signalCode(sig), fmt.Errorf("ended by %s", signalName(sig))}
				cancel()
			}
		}
	}
}

// signalCode is the exit code of a process that a signal has ended.
func signalCode(sig os.Signal) int {
	number, _ := sig.(syscall.Signal) // os.Interrupt is a syscall.Signal too
	return codeSignal + int(number)
}
