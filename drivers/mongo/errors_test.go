package mongo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// A call may use the context of another lock's hold, whose end is no outcome of this call.
func TestContextCauseIsNoOutcome(t *testing.T) {
	t.Parallel()
	l := newTestLocker(t, mongotest.Collection(t))
	lease := acquire(t, l, request("n", "secret a"))
	for _, cause := range []error{driver.ErrLost, driver.ErrClosed, driver.ErrInvalid, &driver.HeldError{}, holdfast.ErrReleased} {
		ctx, cancel := context.WithCancelCause(bounded(t))
		cancel(fmt.Errorf("the outer hold: %w", cause))
		_, err := l.TryAcquire(ctx, request("m", "secret b"))
		_, batch := l.RenewBatch(ctx, []driver.Lease{lease, {Name: "x", ID: driver.NewLeaseID("secret x"), TTL: lease.TTL}})
		for _, err := range append(batch, err, errOf(l.Renew(ctx, lease)), l.Release(ctx, lease),
			l.WriteData(ctx, lease, nil, grantRevision(lease)), l.Break(ctx, "n", driver.BreakAnybody())) {
			wantUnknown(t, err)
			if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "the outer hold") {
				t.Errorf("%v does not tell why", err)
			}
		}
	}
	other := errors.New("the program's own")
	ctx, cancel := context.WithCancelCause(bounded(t))
	cancel(other)
	if _, err := l.Renew(ctx, lease); !errors.Is(err, other) {
		t.Errorf("got %v, want the cause in its chain", err)
	}
}
