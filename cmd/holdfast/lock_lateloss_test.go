package main

import (
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/signals"
)

// A loss that comes together with the end of the input, or with a signal, is a loss: after SIGTERM alone the exit code is 0.
func TestLockReportsALossAtItsEnd(t *testing.T) {
	locker := &scriptedLocker{}
	locker.failRenewals.Store(true)
	run := newRunner(t, locker, 500*time.Millisecond, io.Discard, "")
	hold, err := run.client.Lock(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	<-hold.Context().Done()
	done := make(chan struct{})
	close(done)
	run.signals = signals.Caught{C: make(chan os.Signal, 1)}
	for n := range 100 {
		input := done
		if n%2 == 0 {
			input = nil
			select {
			case run.signals.C <- syscall.SIGTERM:
			default: // the one before was not read
			}
		}
		if err := run.holdUntil(hold, input); err == nil || exitcode.Of(err) != exitcode.Lost {
			t.Fatalf("got %v, want exit code %d", err, exitcode.Lost)
		}
	}
}
