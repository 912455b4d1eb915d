package mongo

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/mongotest"
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
	control *mongo.Database
	locker  *Locker
}

func TestFaults(t *testing.T) {
	t.Parallel()
	rs := mongotest.StartReplicaSet(t, mongotest.Options{})
	client := mongotest.Connect(t, rs.URI(), options.Client().SetAppName("victim"))
	f := faults{rs, mongotest.Connect(t, rs.URI()).Database("admin"), newTestLocker(t, mongotest.CollectionOf(t, client))}
	t.Run("a lost answer is asked for again", f.lostAnswer)
	t.Run("a write concern error is no answer, and asking again is safe", f.writeConcernError)
	t.Run("a hand-over in doubt was made or not, and asking again is safe", f.handOverInDoubt)
	t.Run("a duplicate key is a reason to ask once more", f.duplicateKey)
	t.Run("a batch whose answer is lost is in doubt as a whole", f.batchInDoubt)
	t.Run("an unknown outcome stays one, and no reply shows a lease ID", f.serverError)
	t.Run("a frozen primary answers nothing, and no call waits for it", f.frozenPrimary)
}

// fail has the server fail the next command of that name.
func (f faults) fail(t *testing.T, command string, how ...bson.E) {
	t.Helper()
	data := append(doc{field("appName", "victim"), field("failCommands", list{command})}, how...)
	if err := f.control.RunCommand(bounded(t), doc{{Key: "configureFailPoint", Value: "failCommand"},
		{Key: "mode", Value: is("times", 1)}, {Key: "data", Value: data}}).Err(); err != nil {
		t.Fatal(err)
	}
}

func (f faults) lostAnswer(t *testing.T) {
	f.fail(t, "findAndModify", field("closeConnection", true))
	lease := acquire(t, f.locker, request("lost answer", "a"))
	f.fail(t, "update", field("closeConnection", true))
	if err := f.locker.Renew(bounded(t), lease); err != nil {
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
	wantUnknown(t, f.locker.Renew(ctx, lease))
	f.fail(t, "update", unreplicated)
	wantUnknown(t, f.locker.Release(ctx, lease))
	if err := f.locker.Release(ctx, lease); err != nil {
		t.Error(err)
	}
}

func (f faults) duplicateKey(t *testing.T) {
	f.fail(t, "findAndModify", field("errorCode", 11000),
		field("errorExtraInfo", doc{{Key: "keyPattern", Value: is("_id", 1)}, {Key: "keyValue", Value: is("_id", "duplicate")}}))
	acquire(t, f.locker, request("duplicate", "a"))
}

func (f faults) batchInDoubt(t *testing.T) {
	leases := []driver.Lease{acquire(t, f.locker, request("batch-1", "a")), acquire(t, f.locker, request("batch-2", "b"))}
	f.fail(t, "update", field("closeConnection", true))
	for _, err := range f.locker.RenewBatch(bounded(t), leases) {
		wantUnknown(t, err)
	}
	if err := errors.Join(f.locker.RenewBatch(bounded(t), leases)...); err != nil {
		t.Error(err)
	}
}

func (f faults) serverError(t *testing.T) {
	lease := acquire(t, f.locker, request("shown", "d34db33f"))
	f.fail(t, "update", field("errorCode", 2))
	wantUnknown(t, f.locker.Renew(bounded(t), lease))
	chain := errors.New("kid: d34db33f")
	err := explain(mongo.CommandError{Message: "kid: d34db33f", Wrapped: chain}, []string{"d34db33f"}, "db.c")
	if strings.Contains(err.Error(), "d34db33f") || errors.Is(err, chain) {
		t.Errorf("the lease ID is in %v", err)
	}
}

func (f faults) frozenPrimary(t *testing.T) {
	ctx := bounded(t)
	quick := newTestLocker(t, f.locker.writes, WithCommandTimeout(time.Second))
	lease := acquire(t, quick, request("frozen", "a"))
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
	start := time.Now()
	err = quick.Renew(ctx, lease)
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
}

// What the user's client and collection are set to, and a transaction in the
// context, do not touch the locks.
func TestUsersSettings(t *testing.T) {
	var log commandLog
	registry := bson.NewRegistry()
	registry.RegisterTypeEncoder(reflect.TypeFor[string](), bson.ValueEncoderFunc(func(_ bson.EncodeContext, w bson.ValueWriter, _ reflect.Value) error {
		return w.WriteString("what the user wants of strings")
	}))
	client := mongotest.Connect(t, mongotest.URI(t), options.Client().SetMonitor(log.monitor()).SetRegistry(registry).
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
	if _, err := l.Inspect(inside, "n"); err != nil {
		t.Error(err)
	}
	if err := l.Renew(inside, driver.Lease{Name: "n", ID: driver.NewLeaseID("b"), TTL: time.Minute}); !errors.Is(err, driver.ErrLost) {
		t.Errorf("got %v, want lost", err)
	}
	for what, err := range map[string]error{
		"renew": l.Renew(inside, lease), "batch": errors.Join(l.RenewBatch(inside, []driver.Lease{lease})...),
		"write data": l.WriteData(inside, lease, []byte("x"), granted(lease)),
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
	if r, err := l.Inspect(ctx, "n"); err != nil || r.State != driver.StateHeld || r.Owner == "" || string(r.Data) != "x" {
		t.Errorf("after the transaction: %+v, %v", r, err)
	}
}

// Every write asks for a majority's acknowledgement, and every read says how sure it must be,
// whatever the client is set to.
func TestConcerns(t *testing.T) {
	t.Parallel()
	var log commandLog
	client := mongotest.Connect(t, mongotest.URI(t), options.Client().SetMonitor(log.monitor()).
		SetWriteConcern(writeconcern.W1()).SetReadConcern(readconcern.Available()))
	l := newTestLocker(t, mongotest.CollectionOf(t, client))
	ctx := bounded(t)
	lease := acquire(t, l, request("n", "a"))
	stale := driver.Lease{Name: "n", ID: driver.NewLeaseID("b"), TTL: time.Minute}
	for _, step := range []struct {
		name string
		call func() error
		want []string
	}{
		{"acquire", func() error { _, err := l.TryAcquire(ctx, request("n", "a")); return err }, []string{"findAndModify majority"}},
		{"hand over", func() (err error) { lease, err = l.HandOver(ctx, lease, request("n", "c")); return err }, []string{"findAndModify majority"}},
		{"renew", func() error { return l.Renew(ctx, lease) }, []string{"update majority"}},
		{"renew what is lost", func() error { _ = l.Renew(ctx, stale); return nil }, []string{"update majority", "find linearizable"}},
		{"release what is lost", func() error { return l.Release(ctx, stale) }, []string{"update majority", "find linearizable"}},
		{"renew a batch with one that is lost", func() error {
			_ = l.RenewBatch(ctx, []driver.Lease{lease, {Name: "m", ID: driver.NewLeaseID("b"), TTL: lease.TTL}})
			return nil
		}, []string{"update majority", "find local", "update majority", "find linearizable"}},
		{"write data", func() error { return l.WriteData(ctx, lease, nil, granted(lease)) }, []string{"update majority"}},
		{"read data", func() error { _, _, err := l.ReadData(ctx, "n"); return err }, []string{"find majority"}},
		{"inspect", func() error { _, err := l.Inspect(ctx, "n"); return err }, []string{"find majority"}},
		{"inspect a batch", func() error { _, errs := l.InspectBatch(ctx, []string{"n", "m"}); return errors.Join(errs...) }, []string{"find majority"}},
		{"list", func() error {
			for _, err := range l.List(ctx, "") {
				return err
			}
			return nil
		}, []string{"find majority"}},
		{"break", func() error { return l.Break(ctx, "n") }, []string{"find linearizable", "update majority"}},
		{"break now", func() error { return l.BreakNow(ctx, "n") }, []string{"find linearizable", "update majority"}},
	} {
		log.take()
		if err := step.call(); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		var got []string
		for _, c := range log.take() {
			level, ok := c.Lookup("readConcern", "level").StringValueOK()
			if !ok {
				level, _ = c.Lookup("writeConcern", "w").StringValueOK()
			}
			got = append(got, leadingField(c)+" "+level)
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("%s sends %q, want %q", step.name, got, step.want)
		}
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
	if _, err := l.TryAcquire(bounded(t), request("n", "b")); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("got %v, want closed", err)
	}
	if err := coll.Database().Client().Ping(bounded(t), nil); err != nil {
		t.Errorf("the program's client: %v", err)
	}
}
