package mongo

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// storeQueue gives a held lock a queue of waiters that are alive.
func storeQueue(t *testing.T, coll *mongo.Collection, name string, waiters ...string) {
	t.Helper()
	queue := bson.A{}
	for _, id := range waiters {
		queue = append(queue, bson.D{{Key: fieldWaiter, Value: id}, {Key: fieldUntil, Value: time.Now().Add(time.Hour)}})
	}
	overwrite(t, coll, name, field(fieldQueue, queue), field(fieldReserve, driver.Turn(len(waiters)+1).Milliseconds()))
}

// storeRelease frees a lock. By the server's clock it became free so many milliseconds ago.
func storeRelease(t *testing.T, coll *mongo.Collection, name string, ago int64) {
	t.Helper()
	overwrite(t, coll, name, field(fieldLeaseID, removeField), field(fieldExpiresAt, nowPlus(-ago)))
}

// refusedWhileReserved prepares the queue of a lock, frees the lock in half of MaxTurn from now, so that it is reserved for
// longer than that, and returns what refuses the request. A grant is a fault unless the machine stood still until then.
func refusedWhileReserved(t *testing.T, l *Locker, coll *mongo.Collection, prepare func(), req driver.Request) driver.Record {
	t.Helper()
	for {
		prepare()
		begin := time.Now()
		storeRelease(t, coll, req.Name, -driver.MaxTurn.Milliseconds()/2)
		_, err := l.TryAcquire(bounded(t), req)
		if err == nil && time.Since(begin) >= driver.MaxTurn/2 {
			continue
		}
		var held *driver.HeldError
		if !errors.As(err, &held) {
			t.Fatalf("acquire: got %v, want held", err)
		}
		return held.Record
	}
}

// storedQueue lists the waiters of a lock.
func storedQueue(t *testing.T, coll *mongo.Collection, name string) (ids []string) {
	t.Helper()
	var stored struct {
		Queue []struct {
			Waiter string `bson:"w"`
		}
	}
	if err := bson.Unmarshal(storedDocument(t, coll, name), &stored); err != nil {
		t.Fatal(err)
	}
	for _, w := range stored.Queue {
		ids = append(ids, w.Waiter)
	}
	return ids
}

func numbered(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprint(i+1))
	}
	return ids
}

// A command that waited in the server for another's release keeps the time of its own arrival, so to it
// the lock becomes free in the future. It is refused like any other newcomer.
func TestNewcomerThatWaitedForTheReleasePassesNobody(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	acquire(t, l, longRequest("job", "holder"))
	first := func() { storeQueue(t, coll, "job", "first") }
	refusedWhileReserved(t, l, coll, first, request("job", "newcomer"))
	waiting := request("job", "newcomer")
	waiting.QueueFor = time.Hour
	if r := refusedWhileReserved(t, l, coll, first, waiting); r.Position != 2 {
		t.Errorf("the newcomer has position %d, want 2", r.Position)
	}
}

// A grant removes the caller and those that were woken before it: two of a short queue, one of a long
// queue, and nobody if the lock was not free.
func TestGrantKeepsWaitersThatNobodyWoke(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	for name, c := range map[string]struct {
		length, position int // position 0: not in the queue
		replaced         bool
		gone             []string
	}{
		"first":                  {6, 1, false, []string{"1"}},
		"the only one":           {1, 1, false, []string{"1"}},
		"second":                 {6, 2, false, []string{"1", "2"}},
		"third":                  {6, 3, false, []string{"1", "2", "3"}},
		"fourth":                 {6, 4, false, []string{"1", "2", "4"}},
		"newcomer":               {6, 0, false, []string{"1", "2"}},
		"third of many":          {driver.LongQueue + 1, 3, false, []string{"1", "3"}},
		"newcomer beside many":   {driver.LongQueue + 1, 0, false, []string{"1"}},
		"fourth, by replacement": {6, 4, true, []string{"4"}},
		"newcomer that replaces": {6, 0, true, nil},
	} {
		l := newTestLocker(t, coll)
		lease := acquire(t, l, longRequest(name, "holder"))
		waiters := numbered(c.length)
		if c.position > 0 {
			waiters[c.position-1] = placeOf(l.id, me)
		}
		storeQueue(t, coll, name, waiters...)
		req := longRequest(name, "next")
		if c.replaced {
			req.Replace = wantHeld(t, l, longRequest(name, "another")).Revision
		} else {
			storeRelease(t, coll, name, 2*driver.MaxTurn.Milliseconds())
		}
		if r, err := l.apply(bounded(t), req, asker{id: placeOf(l.id, me)}); err != nil || r.leaseID != "next" ||
			uint64(r.token) <= lease.Token {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		want := slices.DeleteFunc(numbered(c.length), func(id string) bool { return slices.Contains(c.gone, id) })
		if got := storedQueue(t, coll, name); !slices.Equal(got, want) {
			t.Errorf("%s: the queue is %v, want %v", name, got, want)
		}
		wantReserve := driver.Turn(len(want) + 1).Milliseconds()
		if len(want) == 0 {
			wantReserve = emptied
		}
		if reserve := storedDocument(t, coll, name).Lookup(fieldReserve).AsInt64(); reserve != wantReserve {
			t.Errorf("%s: the next release reserves the lock for %d ms, want %d", name, reserve, wantReserve)
		}
	}
}

// A queue has MaxWaiters positions. Another waiter has none, and changes nothing.
func TestQueueFullOfLiveWaiters(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	acquire(t, l, longRequest("job", "holder"))
	for length, want := range map[int]int64{driver.MaxWaiters - 1: driver.MaxWaiters, driver.MaxWaiters: 0} {
		storeQueue(t, coll, "job", numbered(length)...)
		req := longRequest("job", "newcomer")
		req.QueueFor = time.Hour
		r, err := l.apply(bounded(t), req, asker{id: placeOf(l.id, me)})
		if err != nil || r.position != want {
			t.Fatalf("behind %d waiters: %+v, %v; want position %d", length, r, err, want)
		}
		if n := len(storedQueue(t, coll, "job")); n != driver.MaxWaiters {
			t.Errorf("%d waiters after a newcomer came to %d", n, length)
		}
	}
}

// The reservation of a queue shrinks with each waiter that leaves and ends with the last one. From then on
// the lock costs what it cost before anybody waited.
func TestLeavingEndsTheReservation(t *testing.T) {
	t.Parallel()
	commands := &commandLog{}
	coll := mongotest.CollectionOf(t, mongotest.Connect(t, mongotest.URI(t), options.Client().SetMonitor(commands.monitor())))
	l := newTestLocker(t, coll)
	lease := acquire(t, l, longRequest("job", "holder"))
	storeQueue(t, coll, "job", "1", "2", "3")
	for i, want := range []time.Duration{driver.Turn(3), driver.Turn(2), 0} {
		if _, err := coll.UpdateOne(bounded(t), docOf(fieldName, "job"), leaveUpdate(fmt.Sprint(i+1))); err != nil {
			t.Fatal(err)
		}
		if got := storedDocument(t, coll, "job").Lookup(fieldReserve).AsInt64(); got != want.Milliseconds() {
			t.Errorf("the lock is reserved for %d ms after %d waiters of 3 have left, want %v", got, i+1, want)
		}
	}
	commands.take()
	if err := l.Release(bounded(t), lease); err != nil {
		t.Fatal(err)
	}
	lease = acquire(t, l, longRequest("job", "next"))
	if got := commandNames(commands.take()); lease.Contended || !slices.Equal(got, []string{"update", "findAndModify"}) {
		t.Errorf("a release and an acquire sent %v, and the holder is said to have waiters: %v", got, lease.Contended)
	}
}

// A client that shuts down while it waits leaves the queue before that.
func TestShutdownLeavesTheQueue(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	acquire(t, newTestLocker(t, coll), longRequest("job", "holder"))
	c, l := newProcess(t, coll)
	lockSoon(t, c, "job")
	awaitFollowed(t, l, "job")
	if err := c.Shutdown(bounded(t)); err != nil {
		t.Fatal(err)
	}
	if ids := storedQueue(t, coll, "job"); len(ids) > 0 {
		t.Errorf("%d waiters after Shutdown", len(ids))
	}
}

// A refused request is told how long the lock is reserved for its own position, and how much of that is left.
func TestReservationOfEachPosition(t *testing.T) {
	t.Parallel()
	const freedAgo = 50 * time.Millisecond
	now := time.Now()
	for position, want := range map[int64]time.Duration{1: 0, 2: driver.Turn(2) - freedAgo, 3: driver.Turn(3) - freedAgo,
		0: driver.Turn(5) - freedAgo} {
		r := record{name: "job", now: now, expiresAt: now.Add(-freedAgo), reserve: driver.Turn(5), waiters: 4, position: position}
		held := r.refusal()
		if !held.Reserved || !held.Record.RemainingKnown || held.Record.Remaining != want || held.Record.Position != int(position) {
			t.Errorf("position %d is refused with %+v, want %v", position, held, want)
		}
	}
}
