package mongo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

func handOver(t *testing.T, l *Locker, from driver.Lease, req driver.Request) driver.Lease {
	t.Helper()
	lease, err := l.HandOver(bounded(t), from, req)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func wantNotHandedOver(t *testing.T, l *Locker, from driver.Lease, req driver.Request) driver.Record {
	t.Helper()
	_, err := l.HandOver(bounded(t), from, req)
	var held *driver.HeldError
	if !errors.As(err, &held) {
		t.Fatalf("hand over: got %v, want held", err)
	}
	return held.Record
}

// The document is as after an acquire: only the data of the earlier lease stay, and the token
// is greater.
func TestHandOverDocument(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	req := request("n", "a")
	req.TTL, req.Data = time.Hour, []byte("kept")
	from := acquire(t, l, req)
	const far = int64(1) << 60
	overwrite(t, coll, "n", field(fieldToken, far))
	if err := l.Break(bounded(t), "n", driver.BreakAnybody()); err != nil {
		t.Fatal(err)
	}
	next := handOver(t, l, from, request("n", "b"))
	after := storedDocument(t, coll, "n")
	if next.Token != uint64(far)+1 || after.Lookup(fieldToken).Int64() != far+1 {
		t.Errorf("after token %d came %d", far, next.Token)
	}
	if got := after.Lookup(fieldExpiresAt).DateTime() - after.Lookup(fieldRenewedAt).DateTime(); got != next.TTL.Milliseconds() {
		t.Errorf("expires %d ms after the handoff", got)
	}
	if after.Lookup(fieldAcquiredAt).DateTime() != after.Lookup(fieldRenewedAt).DateTime() ||
		after.Lookup(fieldTTL).Int64() != next.TTL.Milliseconds() {
		t.Errorf("the times are not the new lease's: %v", after)
	}
	if _, data := after.Lookup(fieldData).Binary(); after.Lookup(fieldLeaseID).StringValue() != "b" ||
		after.Lookup(fieldOwner).StringValue() != next.Owner ||
		after.Lookup(fieldBroken).Boolean() || string(data) != "kept" {
		t.Errorf("after the handoff: %v", after)
	}
	before := storedDocument(t, coll, "n")
	wantNotHandedOver(t, l, from, request("n", "c"))
	if after := storedDocument(t, coll, "n"); !bytes.Equal(before, after) {
		t.Errorf("a refused handoff changed %v to %v", before, after)
	}
}

// A handoff to its own ID is a repeated acquire, which fails on a broken lease.
func TestHandOverToItself(t *testing.T) {
	t.Parallel()
	l := newTestLocker(t, mongotest.Collection(t))
	req := request("n", "a")
	lease := acquire(t, l, req)
	if again := handOver(t, l, lease, req); again.Token != lease.Token {
		t.Errorf("token %d after %d", again.Token, lease.Token)
	}
	if err := l.Break(bounded(t), "n", driver.BreakAnybody()); err != nil {
		t.Fatal(err)
	}
	if r := wantNotHandedOver(t, l, lease, req); !r.Broken {
		t.Errorf("the record does not say that it is broken: %+v", r)
	}
}

// An ID that looks like an expression is an ID like any other: it is not compared with the
// field that it names.
func TestHandOverIDsAreLiterals(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	for i, s := range []string{"$kid", "$$id", "$$from", "$$ROOT.kid", "$$REMOVE", "$", "{$ne: null}"} {
		name := fmt.Sprint("n", i)
		holder := acquire(t, l, request(name, "holder"))
		odd := driver.Lease{Name: name, ID: driver.NewLeaseID(s)}
		wantNotHandedOver(t, l, odd, request(name, "other"))
		handOver(t, l, holder, request(name, s))
		if raw := storedDocument(t, coll, name); raw.Lookup(fieldLeaseID).StringValue() != s {
			t.Errorf("ID %q became %v", s, raw.Lookup(fieldLeaseID))
		}
		handOver(t, l, odd, request(name, "next"))
	}
}

// Every expression costs the server time, so the pipeline of an acquire has none of a handoff;
// nor has a handoff that is a repeat.
func TestAcquirePipelineHasNoHandOver(t *testing.T) {
	req := request("n", "a")
	encoded := func(from string) []byte {
		return mustMarshal(docOf("p", acquirePipeline(from, asker{}, req, driver.DefaultHistory)))
	}
	if plain := encoded(""); bytes.Contains(plain, []byte(varFrom)) || !bytes.Equal(plain, encoded("a")) || bytes.Equal(plain, encoded("b")) {
		t.Errorf("the pipeline of an acquire: %v", bson.Raw(plain))
	}
}

// Waiters of other processes are not woken, because the lock is not free, however the server
// logs the change.
func TestHandOverWakesNoWaiter(t *testing.T) {
	t.Parallel()
	coll, seen := monitoredCollection(t)
	l, other := newTestLocker(t, coll), newTestLocker(t, coll)
	lease, marker := acquire(t, l, request("n", "secret 0")), acquire(t, l, request("marker", "secret m"))
	wake, stop := watchName(other.Capabilities().Waker, "n")
	defer stop()
	awaitWake(t, wake, "stream opened")
	marked, stop := watchName(other.Capabilities().Waker, "marker")
	defer stop()
	awaitWake(t, marked, "stream was open already")
	base := seen.events()
	for i, data := range [][]byte{nil, []byte("x"), bytes.Repeat([]byte("x"), 10_000), {}, nil} {
		req := request("n", fmt.Sprint("secret ", i+1))
		req.Owner, req.Data = strings.Repeat("o", 100*i), data
		lease = handOver(t, l, lease, req)
	}
	// A handoff's event would come before the one of this release.
	if err := l.Release(bounded(t), marker); err != nil {
		t.Fatal(err)
	}
	awaitWake(t, marked, "release of the other lock")
	if n := seen.events() - base; n != 1 || wasWoken(wake) {
		t.Errorf("%d events came to the client, want one, of the other lock", n)
	}
	if err := l.Release(bounded(t), lease); err != nil {
		t.Fatal(err)
	}
	awaitWake(t, wake, "release by the last holder")
}

// The same step removes the field broken. That is no event either.
func TestHandOverOfABrokenLeaseWakesNoWaiter(t *testing.T) {
	t.Parallel()
	coll, seen := monitoredCollection(t)
	l := newTestLocker(t, coll)
	wake, stop := watchName(l.Capabilities().Waker, "n")
	defer stop()
	awaitWake(t, wake, "stream opened")
	from := acquire(t, l, request("n", "secret a"))
	if err := l.Break(bounded(t), "n", driver.BreakAnybody()); err != nil {
		t.Fatal(err)
	}
	awaitWake(t, wake, "break")
	next := handOver(t, l, from, request("n", "secret b"))
	if err := l.Release(bounded(t), next); err != nil {
		t.Fatal(err)
	}
	awaitWake(t, wake, "release")
	if n := seen.events(); n != 2 {
		t.Errorf("%d events came to the client, want the break and the release", n)
	}
}

// handOverOutcomeUnknown is a part of TestFaults. The Go driver repairs a broken connection; a
// write concern error comes although the handoff was applied.
func (f faults) handOverOutcomeUnknown(t *testing.T) {
	ctx := bounded(t)
	from := acquire(t, f.locker, request("passed", "a"))
	f.fail(t, "findAndModify", field("closeConnection", true))
	next := handOver(t, f.locker, from, request("passed", "b"))
	f.fail(t, "findAndModify", field("writeConcernError",
		doc{{Key: "code", Value: 64}, {Key: "errmsg", Value: "waiting for replication timed out"}}))
	req := request("passed", "c")
	_, err := f.locker.HandOver(ctx, next, req)
	wantUnknown(t, err)
	made := storedDocument(t, f.locker.local, "passed")
	if made.Lookup(fieldLeaseID).StringValue() != "c" {
		t.Fatalf("the handoff was not made: %v", made)
	}
	req.TTL = time.Hour
	again := handOver(t, f.locker, next, req)
	after := storedDocument(t, f.locker.local, "passed")
	if again.Token != uint64(made.Lookup(fieldToken).Int64()) ||
		after.Lookup(fieldExpiresAt).DateTime() <= made.Lookup(fieldExpiresAt).DateTime() {
		t.Errorf("the repeat changed %v to %v", made, after)
	}
	for _, old := range []driver.Lease{from, next} {
		if _, err := f.locker.Renew(ctx, old); !errors.Is(err, driver.ErrLost) {
			t.Errorf("got %v, want lost", err)
		}
	}
	f.fail(t, "findAndModify", field("errorCode", 262)) // not applied, and retried by the Go driver
	_ = handOver(t, f.locker, again, request("passed", "d"))
}

// The server's error may quote either ID.
func TestHandOverShowsNoLeaseID(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	ids := []string{"5ec2e75e-0001-45ec-a2e7-5ec2e75ec2e7", "5ec2e75e-0002-45ec-a2e7-5ec2e75ec2e7"}
	from := acquire(t, l, request("n", ids[0]))
	refusing := doc{{Key: "collMod", Value: coll.Name()}, {Key: "validator", Value: docOf(fieldLeaseID, docOf("$type", "int"))},
		{Key: "validationLevel", Value: "strict"}}
	if err := coll.Database().RunCommand(bounded(t), refusing).Err(); err != nil {
		t.Fatal(err)
	}
	_, failed := l.HandOver(bounded(t), from, request("n", ids[1]))
	wantUnknown(t, failed)
	quoted := l.do(bounded(t), l.handOverOp(from, request("n", ids[1])), func(context.Context) error {
		return mongo.CommandError{Message: "kid was " + ids[0] + ", not " + ids[1]}
	})
	_, invalid := l.HandOver(bounded(t), from, request("other", ids[1]))
	for _, err := range []error{failed, quoted, invalid} {
		text := fmt.Sprintf("%v %+v %#v", err, err, err)
		if slices.ContainsFunc(ids, func(id string) bool { return strings.Contains(text, id) }) {
			t.Errorf("a lease ID is in: %v", err)
		}
		if !strings.Contains(text, "hand over") {
			t.Errorf("the error does not name the operation: %v", err)
		}
	}
}
