package mongo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

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

// The Go driver prints a failure of the network twice. The errors of this driver have it once, and the same chain.
func TestFailuresOfTheNetworkAreSaidOnce(t *testing.T) {
	t.Parallel()
	l := newVictim(t, nil)
	lease := acquire(t, l.Locker, request("job", "secret a"))
	for what, fault := range map[string][]bson.E{
		"closed connection": {field("closeConnection", true)},
		"no answer":         {field("blockConnection", true), field("blockTimeMS", 12_000)},
	} {
		l.fail(t, "alwaysOn", list{"update"}, fault...)
		var err error
		for tries := 0; tries < 6 && !mongo.IsNetworkError(err); tries++ { // a busy machine may find no server in time
			ctx, cancel := context.WithTimeout(bounded(t), time.Second)
			_, err = l.Renew(ctx, lease)
			cancel()
		}
		l.spare(t)
		if !mongo.IsNetworkError(err) || what == "no answer" && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v is another error", what, err)
		}
		seen := map[string]bool{}
		for part := range strings.SplitSeq(fmt.Sprint(err), ": ") {
			if seen[part] || strings.HasPrefix(part, " ") {
				t.Errorf("%s: %q is there twice, or has spaces before it: %v", what, part, err)
			}
			seen[part] = true
		}
	}
}
