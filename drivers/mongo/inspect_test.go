package mongo

import (
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

// insertHeld inserts n locks, "n-0", "n-1", …, each with data and a lease of a minute.
func insertHeld(t *testing.T, l *Locker, n int) (names []string) {
	t.Helper()
	documents := make([]any, n)
	for i := range n {
		names = append(names, fmt.Sprint("n-", i))
		documents[i] = doc{{Key: "_id", Value: names[i]}, {Key: "v", Value: 1}, {Key: "kid", Value: fmt.Sprint("id-", i)},
			{Key: "owner", Value: fmt.Sprint("owner-", i)},
			{Key: "token", Value: int64(i + 1)}, {Key: "ttl", Value: int64(60_000)}, {Key: "ts", Value: time.Now()},
			{Key: "expiresAt", Value: time.Now().Add(time.Minute)},
			{Key: "data", Value: bson.Binary{Data: []byte("data")}}}
	}
	if _, err := l.majority.InsertMany(bounded(t), documents); err != nil {
		t.Fatal(err)
	}
	return names
}

// 1,000 names cost one command, and their data are not read.
func TestInspectBatch(t *testing.T) {
	t.Parallel()
	coll, log := loggedCollection(t)
	l := newTestLocker(t, coll)
	all := insertHeld(t, l, 2*inspectChunkSize+500)
	for n, want := range map[int]int{1: 1, inspectChunkSize: 1, inspectChunkSize + 1: 2, len(all): 3, 0: 0} {
		log.take()
		records, errs := l.InspectBatch(bounded(t), "", all[:n])
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		sent := log.take()
		if got := commandNames(sent); !slices.Equal(got, slices.Repeat([]string{"find"}, want)) {
			t.Errorf("%d names: sent %v, want %d of find", n, got, want)
		}
		for _, command := range sent {
			if _, err := command.LookupErr("projection", fieldData); err == nil {
				t.Error("the data were read")
			}
		}
		for i, r := range records {
			if r.State != driver.StateHeld || r.Token != uint64(i+1) || r.Owner != fmt.Sprint("owner-", i) || !r.RemainingKnown ||
				r.Remaining < 10*time.Second || r.Remaining > time.Minute {
				t.Fatalf("record %d: %+v", i, r)
			}
		}
	}
}

// A damaged record, an invalid name, a repeated name and an unused name each have their own
// result.
func TestInspectBatchOfDamagedRecords(t *testing.T) {
	t.Parallel()
	l := newTestLocker(t, mongotest.Collection(t))
	all := insertHeld(t, l, 8)
	overwrite(t, l.majority, all[2], field(fieldExpiresAt, 1))
	overwrite(t, l.majority, all[3], field(fieldLeaseID, removeField))
	overwrite(t, l.majority, all[5], field(fieldExpiresAt, time.Now().Add(-time.Second)))
	all[6] = "\xff"
	all = append(all, all[0], all[2], "never")
	want := []driver.State{2, 2, 0, 1, 2, 1, 0, 2, 2, 0, 1}
	records, errs := l.InspectBatch(bounded(t), "", all)
	for i, r := range records {
		if r.State != want[i] || (errs[i] != nil) != (want[i] == driver.StateUnknown) {
			t.Errorf("%d, %q: %v, error %v; want %v", i, all[i], r.State, errs[i], want[i])
		}
		var op *driver.OpError
		if errs[i] != nil && (!errors.As(errs[i], &op) || op.Name != all[i]) {
			t.Errorf("%d: %v does not name its lock", i, errs[i])
		}
	}
	var bad *badRecordError
	if !errors.As(errs[2], &bad) || !errors.As(errs[9], &bad) || !errors.Is(errs[6], driver.ErrInvalid) {
		t.Errorf("got %v, %v and %v, want a damaged record, twice, and an invalid name", errs[2], errs[9], errs[6])
	}
}

// A command that fails leaves its own names unknown and no others. One that hangs ends with
// the Locker's time limit.
func TestInspectBatchFails(t *testing.T) {
	serverprocess.Long(t, "waits for the time limits of batches")
	g := newSharedGuardFixture(t)
	l := newTestLocker(t, g.locker.majority, WithCommandTimeout(10*time.Second))
	all := insertHeld(t, l, 2*inspectChunkSize)
	failed := func(what string) {
		t.Helper()
		_, errs := l.InspectBatch(bounded(t), "", all)
		counts := [2]int{}
		for i, err := range errs {
			if err == nil {
				continue
			}
			counts[i/inspectChunkSize]++
			wantUnknown(t, err)
			if op := (*driver.OpError)(nil); !errors.As(err, &op) || op.Name != all[i] {
				t.Fatalf("%d: %v does not name its lock", i, err)
			}
		}
		if counts != [2]int{inspectChunkSize, 0} && counts != [2]int{0, inspectChunkSize} {
			t.Errorf("%s: errors in each half: %v, want all of one half", what, counts)
		}
	}
	failCommands(t, g, "find", 1, bson.D{{Key: "errorCode", Value: 2}})
	failed("refused")
	failCommands(t, g, "find", 1, bson.D{{Key: "blockConnection", Value: true}, {Key: "blockTimeMS", Value: 25_000}})
	failed("hung")
}
