package mongo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// heldLeases inserts held locks, and returns their leases.
func heldLeases(tb testing.TB, coll *mongo.Collection, n int) []driver.Lease {
	tb.Helper()
	leases, documents := make([]driver.Lease, n), make([]any, n)
	for i := range leases {
		leases[i] = driver.Lease{Name: fmt.Sprint("n-", i), ID: driver.NewLeaseID(fmt.Sprint("secret id-", i)), TTL: time.Minute}
		documents[i] = doc{field(fieldName, leases[i].Name), field(fieldVersion, schemaVersion), field(fieldLeaseID, leases[i].ID.Reveal()),
			field(fieldToken, int64(1)), field(fieldExpiresAt, time.Now().Add(time.Minute))}
	}
	if _, err := coll.InsertMany(tb.Context(), documents); err != nil {
		tb.Fatal(err)
	}
	return leases
}

// Two commands release up to 500 leases. What other leases hold stays as it is, and a lease that the
// batch did not match gets an answer of its own.
func TestReleaseBatch(t *testing.T) {
	t.Parallel()
	coll, log := loggedCollection(t)
	l := newTestLocker(t, coll)
	leases := heldLeases(t, coll, 2*batchChunkSize)
	first, second := leases[:batchChunkSize], leases[batchChunkSize:]
	log.take()
	if err := errors.Join(l.ReleaseBatch(bounded(t), first)...); err != nil {
		t.Fatal(err)
	}
	if got := commandNames(log.take()); !slices.Equal(got, []string{"update", "find"}) {
		t.Errorf("sent %v, want an update and a find", got)
	}

	const taken, freed, damaged, invalid, twice, swapped = 3, 13, 21, 34, 55, 89
	overwrite(t, coll, second[taken].Name, field(fieldLeaseID, "of another"))
	overwrite(t, coll, second[freed].Name, field(fieldLeaseID, removeField))
	overwrite(t, coll, second[damaged].Name, field(fieldExpiresAt, 1))
	kept := []string{second[taken].Name, second[freed].Name, second[damaged].Name, second[invalid].Name, second[swapped].Name,
		second[swapped+1].Name}
	before := map[string]bson.Raw{}
	for _, name := range kept {
		before[name] = storedDocument(t, coll, name)
	}
	second[invalid].Name, second[twice] = "", second[twice-1]
	second[swapped].ID, second[swapped+1].ID = second[swapped+1].ID, second[swapped].ID
	var bad *badRecordError
	for i, err := range l.ReleaseBatch(bounded(t), second) {
		switch {
		case i == invalid && !errors.Is(err, driver.ErrInvalid), i == damaged && !errors.As(err, &bad), i != invalid && i != damaged &&
			err != nil:
			t.Errorf("%d: %v", i, err)
		}
	}
	for _, name := range kept {
		if after := storedDocument(t, coll, name); !slices.Equal(before[name], after) {
			t.Errorf("changed from %v to %v", before[name], after)
		}
	}
	left, err := coll.CountDocuments(bounded(t), docOf(fieldLeaseID, docOf("$type", "string")))
	if want := int64(6); left != want || err != nil { // of another, damaged, invalid, swapped, doubled over
		t.Errorf("%d locks are held, want %d, %v", left, want, err)
	}
}

// A batch wakes the first waiter of each lock, which nothing else can wake.
func TestReleaseBatchWakes(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	c, waiting := newProcess(t, coll, hintsOnly)
	var leases []driver.Lease
	for i := range 12 {
		name := fmt.Sprint("job-", i)
		leases = append(leases, acquire(t, l, longRequest(name, "secret "+name)))
		got := lockSoon(t, c, name)
		awaitFollowed(t, waiting, name)
		defer func() { awaitHold(t, got, name) }()
	}
	if err := errors.Join(l.ReleaseBatch(bounded(t),
		append(leases, driver.Lease{Name: "other", ID: driver.NewLeaseID("lost")}))...); err != nil {
		t.Error(err)
	}
}

// Between a release and the read of whom it wakes another reader takes the lock. The readers in the queue can join it, and are woken.
func TestReleaseWakesReadersAlthoughAnotherCameFirst(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l, waiting := newTestLocker(t, coll), newTestLocker(t, coll)
	for what, release := range map[string]func(driver.Lease) error{
		"a release sent again": func(lease driver.Lease) error { return l.Release(bounded(t), lease) },
		"a batch": func(lease driver.Lease) error {
			return errors.Join(l.ReleaseBatch(bounded(t), []driver.Lease{lease, acquire(t, l, request("another", "a"))})...)
		},
	} {
		lease := acquire(t, l, longRequest(what, "holder"))
		reader := sharedRequest(what, "reader")
		reader.QueueFor = time.Hour
		woken := wokenBy(t, waiting, what)
		wantHeld(t, waiting, reader)
		awaitFollowed(t, waiting, what)
		wantHeld(t, waiting, reader) // before the cursor was open, the position was a short one
		if released, err := l.updateOne(bounded(t), heldBy(lease), releaseUpdate); !released || err != nil {
			t.Fatal(released, err)
		}
		acquire(t, l, sharedRequest(what, "newcomer"))
		wantNil(t, release(lease))
		wantWoken(t, woken, what)
	}
}

// After an error of the update the outcome is unknown. If the waiters cannot be read, it is, too: the
// release that follows wakes them.
func TestReleaseBatchErrors(t *testing.T) {
	g := newSharedGuardFixture(t)
	for _, command := range []string{"update", "find"} {
		leases := []driver.Lease{acquire(t, g.locker, request(command+" 1", "secret a")), acquire(t, g.locker, request(command+" 2", "secret b"))}
		failCommands(t, g, command, 10, bson.D{{Key: "errorCode", Value: codeBadValue}})
		for _, err := range g.locker.ReleaseBatch(bounded(t), leases) {
			wantUnknown(t, err)
		}
		failCommands(t, g, command, 0, nil)
		if err := errors.Join(g.locker.ReleaseBatch(bounded(t), leases)...); err != nil {
			t.Error(err)
		}
		acquire(t, g.locker, request(leases[0].Name, "secret c"))
	}
}

// While the primary changes no hint can be left. That takes little of the caller's time, of which the leases that need a call of
// their own get the rest.
func TestHintsOfABatchLeaveTimeForItsOtherLeases(t *testing.T) {
	t.Parallel()
	v := newVictim(t, nil)
	leases := []driver.Lease{acquire(t, v.Locker, request("job", "a")), acquire(t, v.Locker, request("damaged", "b"))}
	enterQueue(t, v.base, "job")
	overwrite(t, v.base, "damaged", field(fieldExpiresAt, 1))
	v.fail(t, "alwaysOn", list{"insert"}, field("errorCode", codeInterruptedByStateChange),
		field("errorLabels", list{"RetryableWriteError"}))
	defer v.spare(t)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second) // less than a call may take
	defer cancel()
	errs := v.ReleaseBatch(ctx, leases)
	if errs[0] != nil || !errors.Is(errs[1], driver.ErrDamaged) {
		t.Errorf("got %v", errs)
	}
}

// A batch that matches nothing may have met a deposed primary: each lease gets an answer of its own.
func TestReleaseBatchWithInconsistentAnswers(t *testing.T) {
	t.Parallel()
	m, l, leases := lockerWithHiddenRecord(t)
	if err := errors.Join(l.ReleaseBatch(bounded(t), leases)...); err != nil || m.hides != 0 {
		t.Error(err, m.hides)
	}
	acquire(t, l, request("n", "secret c"))
	acquire(t, l, request("m", "secret d"))
}
