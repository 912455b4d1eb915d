package partitions_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/locktest"
)

// A place among the members that is lost in an outage has no work that could overrun,
// and none is told.
func TestPartitionsPlaceDoesNotOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFleet(t, 3)
		in := f.Join()
		f.UntilEven(3 * time.Second)
		in.Link.Cut.Store(true)
		time.Sleep(3 * locktest.FleetTTL)
		in.Events.Mu.Lock()
		lost := 0
		for _, e := range in.Events.List {
			if e.Type == holdfast.EventOverrun {
				t.Errorf("told: %v", e)
			}
			if e.Type == holdfast.EventLost && strings.Contains(e.Name, "member") {
				lost++
			}
		}
		in.Events.Mu.Unlock()
		if lost != 1 {
			t.Errorf("the place was lost %d times", lost)
		}
		in.Link.Cut.Store(false)
		f.UntilEven(20 * time.Second)
		f.End()
	})
}

// Run's error matches both how its context ended and why.
func TestPartitionsRunTellsWhyItEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFleet(t, 1)
		in := f.Join()
		f.UntilEven(3 * time.Second)
		in.Cancel()
		if err := <-in.Done; !errors.Is(err, locktest.ErrRunEnded) || !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := in.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run: %v", err)
		}
	})
}
