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
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/mongotest"
)

// wantUnknown fails unless the error leaves the outcome open.
func wantUnknown(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		t.Error("no error, want an unknown outcome")
	}
	for _, known := range []error{holdfast.ErrHeld, holdfast.ErrLost, holdfast.ErrInvalid, holdfast.ErrClosed} {
		if errors.Is(err, known) {
			t.Errorf("got %v, want an unknown outcome", err)
		}
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	rs := mongotest.StartReplicaSet(t, mongotest.Options{})
	client := mongotest.Connect(t, rs.URI(), options.Client().SetAppName("victim"))
	control := mongotest.Connect(t, rs.URI()).Database("admin")
	l := newTestLocker(t, mongotest.CollectionOf(t, client))
	ctx := bounded(t)

	// fail has the server fail commands of the Locker's client.
	fail := func(t *testing.T, times int, data ...bson.E) {
		t.Helper()
		data = append(data, field("appName", "victim"))
		if err := control.RunCommand(ctx, doc{{Key: "configureFailPoint", Value: "failCommand"},
			{Key: "mode", Value: is("times", times)}, {Key: "data", Value: doc(data)}}).Err(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := control.RunCommand(context.WithoutCancel(ctx), doc{{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: "off"}}).Err(); err != nil {
				t.Error(err)
			}
		})
	}

	t.Run("a lost answer is asked for again", func(t *testing.T) {
		fail(t, 1, field("failCommands", list{"findAndModify"}), field("closeConnection", true))
		lease := acquire(t, l, request("lost answer", "a"))
		fail(t, 1, field("failCommands", list{"update"}), field("closeConnection", true))
		if err := l.Renew(ctx, lease); err != nil {
			t.Error(err)
		}
	})
	t.Run("a write concern error is no answer, and asking again is safe", func(t *testing.T) {
		broken := field("writeConcernError", doc{{Key: "code", Value: 64}, {Key: "errmsg", Value: "waiting for replication timed out"}})
		fail(t, 1, field("failCommands", list{"findAndModify"}), broken)
		_, err := l.TryAcquire(ctx, request("wce", "a"))
		wantUnknown(t, err)
		lease := acquire(t, l, request("wce", "a"))
		fail(t, 1, field("failCommands", list{"update"}), broken)
		wantUnknown(t, l.Renew(ctx, lease))
		fail(t, 1, field("failCommands", list{"update"}), broken)
		wantUnknown(t, l.Release(ctx, lease))
		if err := l.Release(ctx, lease); err != nil {
			t.Error(err)
		}
	})
	t.Run("a duplicate key is a reason to ask once more", func(t *testing.T) {
		fail(t, 1, field("failCommands", list{"findAndModify"}), field("errorCode", 11000),
			field("errorExtraInfo", doc{{Key: "keyPattern", Value: is("_id", 1)}, {Key: "keyValue", Value: is("_id", "duplicate")}}))
		acquire(t, l, request("duplicate", "a"))
	})
	t.Run("a batch whose answer is lost is in doubt as a whole", func(t *testing.T) {
		leases := []holdfast.Lease{acquire(t, l, request("batch-1", "a")), acquire(t, l, request("batch-2", "b"))}
		fail(t, 1, field("failCommands", list{"update"}), field("closeConnection", true))
		for _, err := range l.RenewBatch(ctx, leases) {
			wantUnknown(t, err)
		}
		for _, err := range l.RenewBatch(ctx, leases) {
			if err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("no reply of the server's shows a lease ID", func(t *testing.T) {
		fail(t, 1, field("failCommands", list{"update"}), field("errorCode", 121))
		err := l.Renew(ctx, acquire(t, l, request("shown", "d34db33f")))
		wantUnknown(t, err)
		secret := errors.New("unused")
		if got := explain(mongo.CommandError{Message: "kid: d34db33f", Wrapped: secret}, []string{"d34db33f"}, "db.c"); strings.Contains(got.Error(), "d34db33f") || errors.Is(got, secret) {
			t.Errorf("got %v", got)
		}
	})
	t.Run("a frozen primary answers nothing, and no call waits for it", func(t *testing.T) {
		quick := newTestLocker(t, l.writes, WithCommandTimeout(time.Second))
		lease := acquire(t, quick, request("frozen", "a"))
		primary, err := rs.Primary(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := rs.Pause(primary); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := rs.Resume(primary); err != nil {
				t.Error(err)
			}
		})
		start := time.Now()
		err = quick.Renew(context.Background(), lease)
		wantUnknown(t, err)
		if took := time.Since(start); took > 5*time.Second || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer within 1s") {
			t.Errorf("after %v: %v", took, err)
		}
		// The others elect a primary, which knows the lease.
		for err = quick.Renew(ctx, lease); err != nil; err = quick.Renew(ctx, lease) {
			wantUnknown(t, err)
			if ctx.Err() != nil {
				t.Fatal(err)
			}
		}
		wantHeld(t, quick, request("frozen", "b"))
	})
}

// What the user's client and collection are set to, and a transaction in the
// context, do not touch the locks.
func TestUsersSettings(t *testing.T) {
	var log commandLog
	client := mongotest.Connect(t, mongotest.URI(t), options.Client().SetMonitor(log.monitor()).
		SetWriteConcern(writeconcern.Unacknowledged()).SetReadPreference(readpref.Secondary()).SetReadConcern(readconcern.Available()).
		SetBSONOptions(&options.BSONOptions{UseJSONStructTags: true, NilSliceAsEmpty: true}))
	coll := mongotest.CollectionOf(t, client)
	l := newTestLocker(t, coll)
	ctx := bounded(t)

	session, err := client.StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(ctx)
	if err := session.StartTransaction(options.Transaction().
		SetReadPreference(readpref.Primary()).SetReadConcern(readconcern.Snapshot()).SetWriteConcern(writeconcern.Majority())); err != nil {
		t.Fatal(err)
	}
	inside := mongo.NewSessionContext(ctx, session)
	log.take()
	lease, err := l.TryAcquire(inside, request("n", "a"))
	if err != nil {
		t.Fatal(err)
	}
	wantHeld(t, l, request("n", "b")) // visible to others before the transaction ends
	for what, err := range map[string]error{
		"renew": l.Renew(inside, lease), "batch": errors.Join(l.RenewBatch(inside, []holdfast.Lease{lease})...),
		"write data": l.WriteData(inside, lease, []byte("x")),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, c := range log.take() {
		if has(c, "txnNumber") && has(c, "startTransaction") || has(c, "autocommit") {
			t.Errorf("in the transaction: %v", c)
		}
		if mode, ok := c.Lookup("$readPreference", "mode").StringValueOK(); ok && mode != "primary" {
			t.Errorf("read preference %s: %v", mode, c)
		}
	}
	if err := session.AbortTransaction(ctx); err != nil {
		t.Fatal(err)
	}
	if r, err := l.Inspect(ctx, "n"); err != nil || r.State != holdfast.StateHeld || r.Owner == "" || string(r.Data) != "x" {
		t.Errorf("after the transaction: %+v, %v", r, err)
	}
}

// Close cuts off what is under way, leaves the program's client alone, and ends
// everything after it.
func TestClose(t *testing.T) {
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	acquire(t, l, request("n", "a"))
	closeLocker(t, l)
	closeLocker(t, l)
	if _, err := l.TryAcquire(bounded(t), request("n", "b")); !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("got %v, want closed", err)
	}
	if err := coll.Database().Client().Ping(bounded(t), nil); err != nil {
		t.Errorf("the program's client: %v", err)
	}
}
