package mongo

import (
	"errors"
	"fmt"
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
	"github.com/holdfast-go/holdfast/test/mongotest"
)

func TestOptions(t *testing.T) {
	coll := mongotest.Collection(t)
	for want, opt := range map[string]Option{
		"command timeout": WithCommandTimeout(0), "retention": WithRetention(time.Minute), "logger": WithLogger(nil), "option": nil,
		"whole seconds": WithRetention(time.Hour + time.Millisecond),
	} {
		if _, err := New(bounded(t), coll, opt); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), "holdfast: connect to mongodb: ") {
			t.Errorf("%s: got %v", want, err)
		}
	}
	if _, err := New(bounded(t), nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("without a collection: %v", err)
	}
}

// The settings of the program's client and collection, and a transaction in the context, do
// not affect locks.
func TestProgramSettingsAreIgnored(t *testing.T) {
	var log commandLog
	registry := bson.NewRegistry()
	registry.RegisterTypeEncoder(reflect.TypeFor[string](), bson.ValueEncoderFunc(func(_ bson.EncodeContext, w bson.ValueWriter,
		_ reflect.Value) error {
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
	wantHeld(t, l, request("n", "b")) // others see the lock before the transaction ends
	if _, err := l.Inspect(inside, "n"); err != nil {
		t.Error(err)
	}
	if _, err := l.Renew(inside, driver.Lease{Name: "n", ID: driver.NewLeaseID("b"), TTL: time.Minute}); !errors.Is(err, driver.ErrLost) {
		t.Errorf("got %v, want lost", err)
	}
	for what, err := range map[string]error{
		"renew": errOf(l.Renew(inside, lease)), "batch": errors.Join(errOf(l.RenewBatch(inside, []driver.Lease{lease}))...),
		"write data": l.WriteData(inside, lease, []byte("x"), grantRevision(lease)),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if r, err := l.Inspect(ctx, "n"); err != nil || r.State != driver.StateHeld || r.Owner == "" || string(r.Data) != "x" {
		t.Errorf("before the transaction ends: %+v, %v", r, err)
	}
	commands := log.take()
	enterQueue(t, coll, "n")
	log.take()
	lease.Contended = true
	if err := l.Release(inside, lease); err != nil {
		t.Fatal(err)
	}
	released := log.take()
	if got := commandNames(released); !slices.Equal(got, firstWakingRelease) {
		t.Errorf("the release sent %v, want %v: none again after an error", got, firstWakingRelease)
	}
	for _, c := range append(commands, released...) {
		if hasField(c, "txnNumber") && hasField(c, "startTransaction") || hasField(c, "autocommit") {
			t.Errorf("in the transaction: %v", c)
		}
		if mode, ok := c.Lookup("$readPreference", "mode").StringValueOK(); ok && mode != "primary" {
			t.Errorf("read preference %s: %v", mode, c)
		}
		if strings.Contains(c.String(), "what the user wants") {
			t.Errorf("encoded as the user wants: %v", c)
		}
	}
	if err := session.AbortTransaction(ctx); err != nil {
		t.Fatal(err)
	}
	if r, err := l.Inspect(ctx, "n"); err != nil || r.State != driver.StateFree || string(r.Data) != "x" {
		t.Errorf("after the transaction: %+v, %v", r, err)
	}
}

// Every write requires a majority's acknowledgement, and every read has the documented read
// concern, whatever the client's settings are.
func TestReadAndWriteConcerns(t *testing.T) {
	t.Parallel()
	var log commandLog
	client := mongotest.Connect(t, mongotest.URI(t), options.Client().SetMonitor(log.monitor()).
		SetWriteConcern(writeconcern.W1()).SetReadConcern(readconcern.Available()))
	coll := mongotest.CollectionOf(t, client)
	l := newTestLocker(t, coll)
	ctx := bounded(t)
	lease := acquire(t, l, request("n", "a"))
	waited := acquire(t, l, request("waited", "f"))
	waiter := newTestLocker(t, through(mongotest.Connect(t, mongotest.URI(t)), coll))
	if err := createCapped(ctx, l.hints.collectionOf(waiter.id)); err != nil {
		t.Fatal(err)
	}
	defer waiter.Wake("waited", me, func(driver.Wakeup) {})()
	waiting := request("waited", "g")
	waiting.QueueFor = time.Minute
	wantHeld(t, waiter, waiting)
	stale := driver.Lease{Name: "n", ID: driver.NewLeaseID("b"), TTL: time.Minute}
	contended := acquire(t, l, request("contended", "d"))
	contended.Contended = true
	for _, step := range []struct {
		name string
		call func() error
		want []string
	}{
		{"acquire", func() (err error) { lease, err = l.TryAcquire(ctx, request("n", "a")); return err }, []string{"findAndModify majority"}},
		{"renew", func() error { return errOf(l.Renew(ctx, lease)) }, []string{"update majority"}},
		{"renew a lost lease", func() error { _, _ = l.Renew(ctx, stale); return nil }, []string{"update majority", "find linearizable"}},
		{"release a lost lease", func() error { return l.Release(ctx, stale) }, []string{"update majority", "findAndModify 1",
			"find linearizable"}},
		{"renew a batch with a lost lease", func() error {
			_, _ = l.RenewBatch(ctx, []driver.Lease{lease, {Name: "m", ID: driver.NewLeaseID("b"), TTL: lease.TTL}})
			return nil
		}, []string{"update majority", "find local", "update majority", "find linearizable"}},
		{"release a contended lease", func() error { return l.Release(ctx, contended) },
			[]string{"findAndModify 1", "find majority, after the release"}},
		{"release a lease that is contended since", func() error { return l.Release(ctx, waited) }, []string{"update majority", "findAndModify 1",
			"listCollections", "insert 1", "find majority, after the release"}},
		{"release it again", func() error { return l.Release(ctx, contended) }, []string{"findAndModify 1", "find linearizable"}},
		{"write data", func() error { return l.WriteData(ctx, lease, nil, grantRevision(lease)) }, []string{"update majority"}},
		{"read data", func() error { _, _, err := l.ReadData(ctx, "n"); return err }, []string{"find majority"}},
		{"inspect", func() error { _, err := l.Inspect(ctx, "n"); return err }, []string{"find majority"}},
		{"inspect a batch", func() error { _, errs := l.InspectBatch(ctx, "", []string{"n", "m"}); return errors.Join(errs...) },
			[]string{"find majority"}},
		{"list", func() error {
			for _, err := range l.List(ctx, "") {
				return err
			}
			return nil
		}, []string{"find majority"}},
		{"break", func() error { return l.Break(ctx, "n", driver.BreakAnybody()) }, []string{"find linearizable", "update majority"}},
		{"break now", func() error { return l.BreakNow(ctx, "n", driver.BreakAnybody()) },
			[]string{"find linearizable", "update majority", "find majority"}},
	} {
		log.take()
		if err := step.call(); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		var got []string
		for _, c := range log.take() {
			level, ok := c.Lookup("readConcern", "level").StringValueOK()
			if !ok {
				w := c.Lookup("writeConcern", "w")
				if level, ok = w.StringValueOK(); !ok && !w.IsZero() {
					level = fmt.Sprint(w.Int32())
				}
			}
			if _, _, after := c.Lookup("readConcern", "afterClusterTime").TimestampOK(); after {
				level += ", after the release"
			}
			got = append(got, strings.TrimSpace(firstField(c)+" "+level))
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("%s sends %q, want %q", step.name, got, step.want)
		}
	}
}
