package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
)

// A place among the members that is lost in an outage has no work that could overrun,
// and none is told.
func TestPartitionsPlaceDoesNotOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		in := f.join()
		f.settle(3 * time.Second)
		in.wire.cut.Store(true)
		time.Sleep(3 * fleetTTL)
		in.events.mu.Lock()
		lost := 0
		for _, e := range in.events.list {
			if e.Type == holdfast.EventOverrun {
				t.Errorf("told: %v", e)
			}
			if e.Type == holdfast.EventLost && strings.Contains(e.Name, "member") {
				lost++
			}
		}
		in.events.mu.Unlock()
		if lost != 1 {
			t.Errorf("the place was lost %d times", lost)
		}
		in.wire.cut.Store(false)
		f.settle(20 * time.Second)
		f.end()
	})
}

// Run's error matches both how its context ended and why.
func TestPartitionsRunTellsWhyItEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		in := f.join()
		f.settle(3 * time.Second)
		in.cancel()
		if err := <-in.done; !errors.Is(err, errRun) || !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := in.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run: %v", err)
		}
	})
}
