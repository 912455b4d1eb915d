package mongo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/mongotest"
)

// A call may be made in the context of another lock's hold, whose end says nothing
// of this call's outcome.
func TestCauseOfTheContextIsNoOutcome(t *testing.T) {
	t.Parallel()
	l := newTestLocker(t, mongotest.Collection(t))
	lease := acquire(t, l, request("n", "secret a"))
	for _, cause := range []error{driver.ErrLost, driver.ErrClosed, driver.ErrInvalid, &driver.HeldError{}, holdfast.ErrReleased} {
		ctx, cancel := context.WithCancelCause(bounded(t))
		cancel(fmt.Errorf("the outer hold: %w", cause))
		_, err := l.TryAcquire(ctx, request("m", "secret b"))
		batch := l.RenewBatch(ctx, []driver.Lease{lease, {Name: "x", ID: driver.NewLeaseID("secret x"), TTL: lease.TTL}})
		for _, err := range append(batch, err, l.Renew(ctx, lease), l.Release(ctx, lease), l.WriteData(ctx, lease, nil, granted(lease)), l.Break(ctx, "n")) {
			wantUnknown(t, err)
			if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "the outer hold") {
				t.Errorf("%v does not tell why", err)
			}
		}
	}
	other := errors.New("the program's own")
	ctx, cancel := context.WithCancelCause(bounded(t))
	cancel(other)
	if err := l.Renew(ctx, lease); !errors.Is(err, other) {
		t.Errorf("got %v, want the cause in its chain", err)
	}
}

// The guard's error matches the end of its own hold, not of another.
func TestGuardTellsWhoseHoldEnded(t *testing.T) {
	t.Parallel()
	g := newSharedGuarded(t)
	a := g.hold("secret a", time.Minute)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fmt.Errorf("the outer hold: %w", driver.ErrLost))
	err := g.guard.Do(ctx, a, g.never)
	wantUnknown(t, err)
	if err == nil || !strings.Contains(err.Error(), "the outer hold") {
		t.Errorf("%v does not tell why", err)
	}
	a.ctx = ctx
	g.wantErr(g.do(a, g.never), driver.ErrLost)
	g.wantErr(g.guard.Do(ctx, a, g.never), driver.ErrLost)
}
