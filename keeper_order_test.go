package holdfast

import (
	"slices"
	"testing"
)

// A loss is reported before the owner of the lease is called. That call ends the hold's context
// and lets the next waiter of this process in, whose own event must come later.
func TestLossIsReportedBeforeTheContextEnds(t *testing.T) {
	var order []string
	l := &kept{index: -1, owner: ownerFunc(func(error) { order = append(order, "owner called") })}
	l.lease.Name = "job"
	l.policy = &policy{emit: func(e Event) { order = append(order, e.Type.String()) }}
	k := &keeper{wake: make(chan struct{}, 1)}
	k.lose(l, ErrLost)()
	if want := []string{"lost", "owner called"}; !slices.Equal(order, want) {
		t.Errorf("got %q, want %q", order, want)
	}
}

type ownerFunc func(cause error)

func (f ownerFunc) lost(cause error) { f(cause) }
