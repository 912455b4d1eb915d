package mongo

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// waitingRequest is the request of a waiter.
func waitingRequest(name string) driver.Request {
	req := longRequest(name, "waiter")
	req.QueueFor = time.Hour
	return req
}

// storeMixedQueue gives a lock a queue as a text says: each letter is a waiter, p one that polls, x one whose
// time is over, and m one with the ID me. The others are alive, and hints wake them. The IDs are the numbers.
func storeMixedQueue(t *testing.T, coll *mongo.Collection, name, kinds, me string) {
	t.Helper()
	queue, reserved := bson.A{}, 0
	for i, kind := range kinds {
		waiter := bson.D{{Key: fieldWaiter, Value: fmt.Sprint(i + 1)}, {Key: fieldUntil, Value: time.Now().Add(time.Hour)}}
		switch reserved = len(kinds); kind {
		case 'p':
			waiter = append(waiter, field("polls", true))
		case 'm':
			waiter[0].Value = me
		case 'x':
			waiter[1].Value = time.Now().Add(-time.Minute)
		}
		queue = append(queue, waiter)
	}
	overwrite(t, coll, name, field(fieldQueue, queue), field(fieldReserve, driver.Turn(reserved+1).Milliseconds()))
}

// leftHints lists the hints of a name, in their order.
func leftHints(t *testing.T, l *Locker, name string, waiters ...string) (hints []string) {
	t.Helper()
	for _, waiter := range waiters {
		cursor, err := l.hints.collectionOf(waiter).Find(bounded(t), doc{field(hintName, name), field(hintTo, waiter)})
		if err != nil {
			t.Fatal(err)
		}
		var found []bson.Raw
		if err := cursor.All(bounded(t), &found); err != nil {
			t.Fatal(err)
		}
		for _, hint := range found {
			hints = append(hints, fmt.Sprintf("%s at %d", waiter, hint.Lookup(hintPosition).AsInt64()))
		}
	}
	return hints
}

// A release wakes the first waiters that a hint can wake, with their positions among all.
func TestHintsPassWaitersThatPollOrAreGone(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	for kinds, want := range map[string][]string{
		"hhh":                               {"1 at 1", "2 at 2"},
		"pph":                               {"3 at 3"},
		"phphh":                             {"2 at 2", "4 at 4"},
		"xpxhh":                             {"4 at 4", "5 at 5"},
		"p":                                 nil,
		strings.Repeat("p", 21) + "hh":      {"22 at 22", "23 at 23"},
		"p" + strings.Repeat("h", 21):       {"2 at 2"},
		"pp" + strings.Repeat("h", 20):      {"3 at 3", "4 at 4"},
		"pp" + strings.Repeat("x", 5) + "h": {"8 at 8"},
	} {
		lease := acquire(t, l, longRequest(kinds, "holder"))
		storeMixedQueue(t, coll, kinds, kinds, "")
		if err := l.Release(bounded(t), lease); err != nil {
			t.Fatal(err)
		}
		if got := leftHints(t, l, kinds, numbered(len(kinds))...); !slices.Equal(got, want) {
			t.Errorf("%s: hints for %v, want %v", kinds, got, want)
		}
	}
}

// A grant removes the caller, those that were woken before it, and those that poll and had their turn before
// it. Turns of their own have the first five.
func TestGrantRemovesPollersThatMissedTheirTurn(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	for kinds, want := range map[string][]string{
		"ppm":         nil,
		"ppmhp":       {"4", "5"},
		"pphm":        nil,
		"phphhm":      {"5"},
		"mpp":         {"2", "3"},
		"ppppppphhh":  {"6", "7", "10"}, // the caller is not in the queue
		"ppppppphhhm": {"6", "7", "10"},
	} {
		l := newTestLocker(t, coll)
		acquire(t, l, longRequest(kinds, "holder"))
		storeMixedQueue(t, coll, kinds, kinds, placeOf(l.id, me))
		storeRelease(t, coll, kinds, 2*driver.MaxTurn.Milliseconds())
		req := waitingRequest(kinds)
		acquire(t, l, req)
		if got := storedQueue(t, coll, kinds); !slices.Equal(got, want) {
			t.Errorf("%s: the queue is %v, want %v", kinds, got, want)
		}
		wantReserve := driver.Turn(len(want) + 1).Milliseconds()
		if !slices.ContainsFunc(want, func(id string) bool { return kinds[number(t, id)-1] == 'h' }) {
			wantReserve = emptied
		}
		if got := storedDocument(t, coll, kinds).Lookup(fieldReserve).AsInt64(); got != wantReserve {
			t.Errorf("%s: the next release reserves the lock for %d ms, want %d", kinds, got, wantReserve)
		}
	}
}

func number(t *testing.T, id string) int {
	t.Helper()
	n, err := strconv.Atoi(id)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A waiter that polls enters the queue with one command, and asks with one, while there are waiters that hints
// wake. It writes its position only when a third of its time is over. Beside others that poll it waits
// without a position, the queue costs the holder nothing, and nobody keeps anybody in it.
func TestPollersWaitOnlyBesideOthers(t *testing.T) {
	t.Parallel()
	commands := &commandLog{}
	coll := mongotest.CollectionOf(t, mongotest.Connect(t, mongotest.URI(t), options.Client().SetMonitor(commands.monitor())))
	first, second, third := newTestLocker(t, coll, WithWake(WakePoll)), newTestLocker(t, coll, WithWake(WakePoll)),
		newTestLocker(t, coll, WithWake(WakePoll))
	lease := acquire(t, first, longRequest("job", "holder"))
	ask := func(l *Locker) driver.Record {
		t.Helper()
		commands.take()
		r := wantHeld(t, l, waitingRequest("job"))
		if got := commandNames(commands.take()); len(got) != 1 {
			t.Errorf("a request sent %v", got)
		}
		return r
	}
	if r := ask(first); r.Position != 0 || r.Waiters != 0 {
		t.Errorf("a waiter that polls has position %d of %d where nobody waits in the queue", r.Position, r.Waiters)
	}
	storeMixedQueue(t, coll, "job", "h", "")
	if r := ask(first); r.Position != 2 || r.Waiters != 2 {
		t.Errorf("position %d of %d", r.Position, r.Waiters)
	}
	if r := ask(second); r.Position != 3 || r.Waiters != 3 {
		t.Errorf("position %d of %d", r.Position, r.Waiters)
	}
	queue := storedDocument(t, coll, "job").Lookup(fieldQueue).String()
	ask(first)
	if now := storedDocument(t, coll, "job").Lookup(fieldQueue).String(); now != queue {
		t.Errorf("a poll after a moment has written the queue %s, which was %s", now, queue)
	}
	if _, err := coll.UpdateOne(bounded(t), docOf(fieldName, "job"), leaveUpdate("1")); err != nil {
		t.Fatal(err)
	}
	if r := ask(second); r.Position != 2 || r.Waiters != 0 {
		t.Errorf("position %d beside %d that a hint wakes, want 2 beside none", r.Position, r.Waiters)
	}
	if r := ask(third); r.Position != 0 {
		t.Errorf("position %d where nobody but others that poll waits in the queue", r.Position)
	}
	if r, err := first.Inspect(bounded(t), "job"); err != nil || r.Waiters != 0 {
		t.Errorf("%d waiters, %v", r.Waiters, err)
	}
	commands.take()
	if err := first.Release(bounded(t), lease); err != nil {
		t.Fatal(err)
	}
	if got := commandNames(commands.take()); !slices.Equal(got, []string{"update"}) {
		t.Errorf("the release sent %v", got)
	}
	acquire(t, third, waitingRequest("job")) // nothing is reserved for those that poll beside each other
}

// A waiter that hints wake waits behind those that poll, although nobody else is in the queue.
func TestWaiterBehindPollers(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	lease := acquire(t, l, longRequest("job", "holder"))
	prepare := func() {
		storeMixedQueue(t, coll, "job", "pp", "")
		overwrite(t, coll, "job", field(fieldReserve, int64(0)))
	}
	prepare()
	if err := l.Release(bounded(t), lease); err != nil {
		t.Fatal(err)
	}
	if r := refusedWhileReserved(t, l, coll, prepare, waitingRequest("job")); r.Position != 3 || r.Waiters != 3 {
		t.Errorf("position %d of %d behind two that poll", r.Position, r.Waiters)
	}
}

// A waiter whose cursor on the hints is lost is marked by its next poll, and one whose cursor is opened is no
// longer marked.
func TestMarkFollowsTheCursor(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	acquire(t, l, longRequest("job", "holder"))
	storeMixedQueue(t, coll, "job", "h", "")
	for _, lost := range []bool{false, true, false, true} {
		l.queue.usable = func() bool { return !lost }
		if r := wantHeld(t, l, waitingRequest("job")); r.Position != 2 {
			t.Errorf("position %d", r.Position)
		}
		marked, _ := storedDocument(t, coll, "job").Lookup(fieldQueue, "1", "polls").BooleanOK()
		if marked != lost {
			t.Errorf("the waiter is marked: %v, and its cursor is lost: %v", marked, lost)
		}
	}
	// Alone it is marked, too, so that nobody takes it for a waiter that hints wake.
	l.queue.usable = func() bool { return true }
	wantHeld(t, l, waitingRequest("job"))
	if _, err := coll.UpdateOne(bounded(t), docOf(fieldName, "job"), leaveUpdate("1")); err != nil {
		t.Fatal(err)
	}
	l.queue.usable = func() bool { return false }
	if r := wantHeld(t, l, waitingRequest("job")); r.Position != 1 || r.Waiters != 0 {
		t.Errorf("position %d beside %d that a hint wakes", r.Position, r.Waiters)
	}
}
