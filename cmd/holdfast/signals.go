package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// signals are those that holdfast was sent.
type signals struct {
	caught chan os.Signal
	ended  bool // one has asked holdfast to end
}

// catchSignals begins to catch them. What was ignored from the start, as nohup does
// with SIGHUP, stays ignored.
func catchSignals() signals {
	s := signals{caught: make(chan os.Signal, 16)}
	for _, sig := range append(slices.Clone(endingSignals), otherSignals...) {
		if !signal.Ignored(sig) {
			signal.Notify(s.caught, sig)
		}
	}
	// A message that nobody reads must not end holdfast; the write fails instead.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return s
}

// during runs fn and waits for it. A signal that asks holdfast to end, ends fn's
// context; the error then carries the exit code, whatever fn returned.
func (s *signals) during(fn func(context.Context) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- fn(ctx) }()
	var ended *exitError
	for {
		select {
		case err := <-done:
			if ended != nil {
				return ended
			}
			return err
		case sig := <-s.caught:
			if asksToEnd(sig) {
				number, _ := sig.(syscall.Signal) // os.Interrupt is one, too
				s.ended = true
				ended = &exitError{codeSignal + int(number), fmt.Errorf("ended by signal %q", sig)}
				cancel()
			}
		}
	}
}
