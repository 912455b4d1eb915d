package holdfast

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/internal/clock"
)

// A loss is reported before the hold's context ends. The end lets the next waiter of this
// process in, whose own event must come later.
func TestLossIsReportedBeforeTheContextEnds(t *testing.T) {
	h := &Hold{client: &Client{now: clock.Monotonic}}
	ctx, cancel := context.WithCancelCause(t.Context())
	h.ctx, h.cancel = holding{Context: ctx, hold: h}, cancel
	var reported []EventType
	l := &h.kept
	l.hold, l.index, l.lease.Name = h, -1, "job"
	l.terms = &terms{emit: func(e Event) {
		reported = append(reported, e.Type)
		if ctx.Err() != nil {
			t.Error("reported after the context's end")
		}
	}}
	k := &keeper{wake: make(chan struct{}, 1)}
	k.lose(l, ErrLost)()
	if len(reported) != 1 || reported[0] != EventLost {
		t.Errorf("reported: %v", reported)
	}
	if !errors.Is(context.Cause(ctx), ErrLost) || !errors.Is(h.Err(), ErrLost) {
		t.Errorf("cause %v, error %v", context.Cause(ctx), h.Err())
	}
}
