package renewal

import (
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/event"
)

// A loss is reported before the owner of the lease is called. That call ends the hold's context
// and lets the next waiter of this process in, whose own event must come later.
func TestLossIsReportedBeforeTheContextEnds(t *testing.T) {
	var order []string
	l := &Entry{index: -1, owner: ownerFunc(func(error) { order = append(order, "owner called") })}
	l.Lease.Name = "job"
	l.Policy = &Policy{Emit: func(e event.Event) { order = append(order, e.Type.String()) }}
	k := &Renewer{wake: make(chan struct{}, 1)}
	k.lose(l, driver.ErrLost)()
	if want := []string{"lost", "owner called"}; !slices.Equal(order, want) {
		t.Errorf("got %q, want %q", order, want)
	}
}

type ownerFunc func(cause error)

func (f ownerFunc) Lost(cause error) { f(cause) }
