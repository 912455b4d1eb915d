package mongo

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// wantUnknown fails unless the error leaves the outcome open.
func wantUnknown(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		t.Error("no error, want an unknown outcome")
	}
	for _, known := range []error{driver.ErrHeld, driver.ErrLost, driver.ErrConflict, driver.ErrInvalid, driver.ErrClosed} {
		if errors.Is(err, known) {
			t.Errorf("got %v, want an unknown outcome", err)
		}
	}
}

// faults is a replica set whose server fails commands, and a Locker on it.
type faults struct {
	rs      *mongotest.ReplicaSet
	control *mongo.Client // sets fail points
	locker  *Locker
}

func TestFaults(t *testing.T) {
	serverprocess.Long(t, "waits for elections and frozen members")
	t.Parallel()
	rs := mongotest.StartReplicaSet(t, mongotest.Options{})
	client := mongotest.Connect(t, rs.URI(), options.Client().SetAppName("victim"))
	f := faults{rs, mongotest.Connect(t, rs.URI()), newTestLocker(t, mongotest.CollectionOf(t, client))}
	t.Run("a command whose answer is lost is repeated", f.lostAnswer)
	t.Run("a write concern error leaves the outcome unknown, and a repeat is safe", f.writeConcernError)
	t.Run("a duplicate key error is retried once", f.duplicateKey)
	t.Run("a lost answer leaves the whole batch unknown", f.batchOutcomeUnknown)
	t.Run("a server error leaves the outcome unknown and shows no lease ID", f.serverError)
	t.Run("a fail-over does not keep a program from starting", f.indexInterrupted)
	t.Run("a frozen primary delays no call beyond its limit", f.frozenPrimary)
}

// fail makes the server fail the next command of that name.
func (f faults) fail(t *testing.T, command string, how ...bson.E) {
	t.Helper()
	data := append(doc{field("appName", "victim"), field("failCommands", list{command})}, how...)
	setFailPoint(t, f.control, docOf("times", 1), data...)
}

func (f faults) indexInterrupted(t *testing.T) {
	victim := mongotest.Connect(t, f.rs.URI(), options.Client().SetAppName("victim"))
	interrupted := field("writeConcernError", doc{field("code", codeInterruptedByStateChange), field("errmsg", "operation was interrupted")})
	for name, fault := range map[string]bson.E{
		"interrupted": interrupted, "stepped down": field("errorCode", codePrimarySteppedDown), "killed": field("closeConnection", true),
	} {
		f.fail(t, "createIndexes", fault)
		if _, err := New(bounded(t), mongotest.CollectionOf(t, victim)); err != nil {
			t.Errorf("%s once: %v", name, err)
		}
	}
	setFailPoint(t, f.control, "alwaysOn", field("appName", "victim"), field("failCommands", list{"createIndexes"}),
		field("errorCode", codePrimarySteppedDown))
	defer setFailPoint(t, f.control, "off", field("errorCode", 2))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := New(ctx, mongotest.CollectionOf(t, victim)); err == nil {
		t.Error("no error although each attempt is interrupted")
	}
}

func (f faults) lostAnswer(t *testing.T) {
	f.fail(t, "findAndModify", field("closeConnection", true))
	lease := acquire(t, f.locker, request("lost answer", "a"))
	f.fail(t, "update", field("closeConnection", true))
	if _, err := f.locker.Renew(bounded(t), lease); err != nil {
		t.Error(err)
	}
}

func (f faults) writeConcernError(t *testing.T) {
	ctx := bounded(t)
	unreplicated := field("writeConcernError", doc{{Key: "code", Value: 64}, {Key: "errmsg", Value: "waiting for replication timed out"}})
	f.fail(t, "findAndModify", unreplicated)
	_, err := f.locker.TryAcquire(ctx, request("wce", "a"))
	wantUnknown(t, err)
	lease := acquire(t, f.locker, request("wce", "a"))
	f.fail(t, "update", unreplicated)
	wantUnknown(t, errOf(f.locker.Renew(ctx, lease)))
	f.fail(t, "update", unreplicated)
	wantUnknown(t, f.locker.Release(ctx, lease))
	if err := f.locker.Release(ctx, lease); err != nil {
		t.Error(err)
	}
}

func (f faults) duplicateKey(t *testing.T) {
	f.fail(t, "findAndModify", field("errorCode", 11000),
		field("errorExtraInfo", doc{{Key: "keyPattern", Value: docOf("_id", 1)}, {Key: "keyValue", Value: docOf("_id", "duplicate")}}))
	acquire(t, f.locker, request("duplicate", "a"))
}

func (f faults) batchOutcomeUnknown(t *testing.T) {
	leases := []driver.Lease{acquire(t, f.locker, request("batch-1", "a")), acquire(t, f.locker, request("batch-2", "b"))}
	f.fail(t, "update", field("closeConnection", true))
	for _, err := range errOf(f.locker.RenewBatch(bounded(t), leases)) {
		wantUnknown(t, err)
	}
	if err := errors.Join(errOf(f.locker.RenewBatch(bounded(t), leases))...); err != nil {
		t.Error(err)
	}
}

func (f faults) serverError(t *testing.T) {
	lease := acquire(t, f.locker, request("shown", "d34db33f"))
	f.fail(t, "update", field("errorCode", 2))
	wantUnknown(t, errOf(f.locker.Renew(bounded(t), lease)))
	chain := errors.New("kid: d34db33f")
	err := explain(mongo.CommandError{Message: "kid: d34db33f", Wrapped: chain}, []string{"d34db33f"}, "db.c")
	if strings.Contains(err.Error(), "d34db33f") || errors.Is(err, chain) {
		t.Errorf("the lease ID is in %v", err)
	}
}

func (f faults) frozenPrimary(t *testing.T) {
	ctx := bounded(t)
	quick := newTestLocker(t, f.locker.majority, WithCommandTimeout(time.Second))
	lease := acquire(t, f.locker, request("frozen", "a"))
	primary, err := f.rs.Primary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.rs.Pause(primary); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.rs.Resume(primary); err != nil {
			t.Error(err)
		}
	})
	_, err = quick.Renew(ctx, lease)
	wantUnknown(t, err)
	if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer within 1s") {
		t.Error(err)
	}
	// The others elect a primary, which has the lease.
	for _, err = quick.Renew(ctx, lease); err != nil; _, err = quick.Renew(ctx, lease) {
		wantUnknown(t, err)
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	wantHeld(t, f.locker, request("frozen", "b"))
}
