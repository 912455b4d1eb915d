package main

import (
	"io"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
)

// A loss and the end of the input that come together are a loss.
func TestLockReportsALossAtTheEndOfItsInput(t *testing.T) {
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
	for range 50 {
		if err := run.holdUntil(hold, done); err == nil || exitcode.Of(err) != exitcode.Lost {
			t.Fatalf("got %v, want exit code %d", err, exitcode.Lost)
		}
	}
}
