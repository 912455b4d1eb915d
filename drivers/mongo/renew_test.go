package mongo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// One command renews up to 500 leases of one TTL. The lost ones are found, and the others stay
// renewed.
func TestRenewBatch(t *testing.T) {
	coll, log := loggedCollection(t)
	l := newTestLocker(t, coll)
	ctx := bounded(t)
	now := time.Now()
	leases := make([]driver.Lease, batchChunkSize+40)
	documents := make([]any, len(leases))
	for i := range leases {
		leases[i] = driver.Lease{Name: fmt.Sprint("n-", i), ID: driver.NewLeaseID(fmt.Sprint("id-", i)), TTL: time.Minute}
		documents[i] = doc{{Key: "_id", Value: leases[i].Name}, {Key: "v", Value: 1}, {Key: "kid", Value: leases[i].ID.Reveal()},
			{Key: "token", Value: int64(1)},
			{Key: "ttl", Value: int64(1)}, {Key: "expiresAt", Value: now.Add(-time.Hour)}}
	}
	if _, err := coll.InsertMany(ctx, documents); err != nil {
		t.Fatal(err)
	}
	log.take()
	if err := errors.Join(errOf(l.RenewBatch(ctx, leases))...); err != nil {
		t.Fatal(err)
	}
	if got := commandNames(log.take()); !slices.Equal(got, []string{"update", "update"}) {
		t.Errorf("sent %v, want two updates", got)
	}

	const taken, broken, removed, freed, damaged, invalid, twice, other = 3, 5, 8, 13, 21, 34, 55, 89
	overwrite(t, coll, "n-3", field(fieldLeaseID, "of another"))
	overwrite(t, coll, "n-5", field(fieldBroken, true))
	if _, err := coll.DeleteOne(ctx, docOf(fieldName, "n-8")); err != nil {
		t.Fatal(err)
	}
	overwrite(t, coll, "n-13", field(fieldLeaseID, removeField))
	overwrite(t, coll, "n-21", field(fieldExpiresAt, 1))
	leases[invalid].TTL = time.Microsecond
	leases[twice] = leases[twice-1]
	leases[other].TTL = time.Hour
	untouched := map[string]bson.Raw{"n-3": nil, "n-5": nil, "n-13": nil, "n-21": nil}
	for name := range untouched {
		untouched[name] = storedDocument(t, coll, name)
	}
	_, errs := l.RenewBatch(ctx, leases)
	for name, before := range untouched {
		if after := storedDocument(t, coll, name); !slices.Equal(before, after) {
			t.Errorf("changed from %v to %v", before, after)
		}
	}
	var bad *badRecordError
	for i, err := range errs {
		switch i {
		case taken, broken, removed, freed:
			if !errors.Is(err, driver.ErrLost) {
				t.Errorf("%d: got %v, want lost", i, err)
			}
		case damaged:
			if !errors.As(err, &bad) {
				t.Errorf("%d: got %v, want an error that names the record", i, err)
			}
		case invalid:
			if !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%d: got %v, want invalid", i, err)
			}
		default:
			if err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
		var op *driver.OpError
		if err != nil && (!errors.As(err, &op) || op.Name != leases[i].Name) {
			t.Errorf("%d: %v does not name its lock", i, err)
		}
	}
	if left := storedDocument(t, coll, "n-89").Lookup(fieldExpiresAt).Time().Sub(now); left < 59*time.Minute {
		t.Errorf("a lease of an hour got %v", left)
	}
	if left := storedDocument(t, coll, "n-88").Lookup(fieldExpiresAt).Time().Sub(now); left > 10*time.Minute {
		t.Errorf("a lease of a minute got %v", left)
	}
}

// The lost leases of a batch are renewed side by side, all within the time limit of one
// command.
func TestRenewBatchOfLostLeases(t *testing.T) {
	serverprocess.Long(t, "waits for the time limits of batches")
	g := newSharedGuardFixture(t)
	l := newTestLocker(t, g.locker.majority, WithCommandTimeout(10*time.Second))
	leases := []driver.Lease{acquire(t, g.locker, request("kept", "secret kept"))}
	for i := range 1000 {
		leases = append(leases, driver.Lease{Name: fmt.Sprint("n", i), ID: driver.NewLeaseID(fmt.Sprint("secret ", i)), TTL: time.Minute})
	}
	failCommands(t, g, "find", 10_000, bson.D{{Key: "blockConnection", Value: true}, {Key: "blockTimeMS", Value: 1000}})
	start := time.Now()
	_, errs := l.RenewBatch(t.Context(), leases)
	// One after the other: a quarter of an hour; without a common limit: a minute.
	if took := time.Since(start); took > 40*time.Second {
		t.Errorf("it took %v", took)
	}
	lost := 0
	for _, err := range errs[1:] {
		if errors.Is(err, driver.ErrLost) {
			lost++
		} else {
			wantUnknown(t, err)
		}
	}
	if errs[0] != nil || lost < 2 {
		t.Errorf("kept: %v; %d are known to be lost", errs[0], lost)
	}
}

// One lease of 500 is lost, and the server does not answer the definite question about it. The
// others are reported as renewed within the caller's time.
func TestRenewBatchWithOneUnknown(t *testing.T) {
	serverprocess.Long(t, "waits for the time limits of batches")
	g := newSharedGuardFixture(t)
	l := newTestLocker(t, g.locker.majority, WithCommandTimeout(time.Hour))
	const lost = 250
	var leases []driver.Lease
	for i, name := range insertHeld(t, l, batchChunkSize) {
		leases = append(leases, driver.Lease{Name: name, ID: driver.NewLeaseID(fmt.Sprint("id-", i)), TTL: time.Minute})
	}
	overwrite(t, l.majority, leases[lost].Name, field(fieldLeaseID, "of another"))
	// The first find shows which lease is missing, the next one would be definite.
	client := mongotest.Connect(t, mongotest.URI(t))
	set := func(mode any) {
		t.Helper()
		setFailPoint(t, client, mode, field("failCommands", list{"find"}), field("appName", t.Name()),
			field("blockConnection", true), field("blockTimeMS", 40_000))
	}
	set(docOf("skip", 1))
	defer set("off")                                                // this waits until the command is no longer blocked
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // a client has a second; a busy machine needs more
	defer cancel()
	for i, err := range errOf(l.RenewBatch(ctx, leases)) {
		if i == lost { // after the end of the caller's time the answer would be definite
			wantUnknown(t, err)
		} else if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
}

// A batch that matched fewer records than are held a moment later cannot say which it renewed.
func TestRenewBatchWithInconsistentAnswers(t *testing.T) {
	t.Parallel()
	_, l, leases := lockerWithHiddenRecord(t)
	for _, err := range errOf(l.RenewBatch(bounded(t), leases)) {
		wantUnknown(t, err)
	}
	if err := errors.Join(errOf(l.RenewBatch(bounded(t), leases))...); err != nil {
		t.Error(err)
	}
}
