package mongo

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// A waiter that nothing but a hint can wake is woken by a release, by a break and by a release of a
// Locker that follows no hints itself, also on a standalone server.
func TestHintsWake(t *testing.T) {
	t.Parallel()
	for server, coll := range map[string]*mongo.Collection{
		"replica set": mongotest.Collection(t),
		"standalone":  mongotest.CollectionOf(t, mongotest.Connect(t, mongotest.Standalone(t))),
	} {
		quiet := newTestLocker(t, coll, WithWake(WakePoll))
		for what, free := range map[string]func(name string, lease driver.Lease) error{
			"a release": func(_ string, lease driver.Lease) error { return quiet.Release(bounded(t), lease) },
			"a release by a holder that knows of waiters": func(_ string, lease driver.Lease) error {
				lease.Contended = true
				return quiet.Release(bounded(t), lease)
			},
			"a break": func(name string, _ driver.Lease) error {
				return quiet.BreakNow(bounded(t), name, driver.BreakAnybody())
			},
		} {
			lease := acquire(t, quiet, longRequest(what, "holder"))
			c, l := newProcess(t, coll, hintsOnly)
			got := lockSoon(t, c, what)
			awaitFollowed(t, l, what)
			if err := free(what, lease); err != nil {
				t.Fatal(err)
			}
			awaitHold(t, got, server+": "+what)
		}
	}
}

// Hints without a reason cause requests that are refused, and no more.
func TestHintsPromiseNothing(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	holder := newTestLocker(t, coll)
	lease := acquire(t, holder, longRequest("job", "holder"))
	c, l := newProcess(t, coll, hintsOnly)
	got := lockSoon(t, c, "job")
	awaitFollowed(t, l, "job")
	to := placeIn(t, l, "job")
	hint := func(name string, position int) {
		t.Helper()
		if err := sendHint(t, l, name, to, position); err != nil {
			t.Fatal(err)
		}
	}
	hint("job", 1) // late, or before the release that it reports
	hint("job", 1)
	hint("another", 1)
	hint("job", 2)
	hint("job", -1)
	if _, err := l.hints.coll.InsertMany(bounded(t), []any{docOf(hintTo, to), docOf(hintTo, list{to, 7}), docOf(hintTo, l.id),
		doc{field(hintTo, to), field(hintName, 7)}}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(driver.TurnLength)
	if r, err := holder.Inspect(bounded(t), "job"); err != nil || r.Token != lease.Token || r.Waiters != 1 {
		t.Errorf("after hints without a reason: %+v, %v", r, err)
	}
	select {
	case <-got:
		t.Error("granted although the lock is held")
	default:
	}
	if err := holder.Release(bounded(t), lease); err != nil {
		t.Fatal(err)
	}
	awaitHold(t, got, "after the release")
}

// A hint shows nothing secret.
func TestHintsHaveNoLeaseID(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	holder := newTestLocker(t, coll)
	const id = "d34db33f-secret"
	lease := acquire(t, holder, longRequest("job", id))
	c, l := newProcess(t, coll, hintsOnly)
	got := lockSoon(t, c, "job")
	awaitFollowed(t, l, "job")
	waiting := storedDocument(t, coll, "job").Lookup(fieldQueue).String()
	if err := holder.Release(bounded(t), lease); err != nil {
		t.Fatal(err)
	}
	h := awaitHold(t, got, "after the release")
	cursor, err := l.hints.coll.Find(bounded(t), docOf(hintName, "job"))
	if err != nil {
		t.Fatal(err)
	}
	var hints []bson.Raw
	if err := cursor.All(bounded(t), &hints); err != nil || len(hints) == 0 {
		t.Fatalf("%d hints, %v", len(hints), err)
	}
	if text := fmt.Sprint(hints, waiting); strings.Contains(text, id) || strings.Contains(text, h.Lease().ID.Reveal()) {
		t.Errorf("a lease ID is in %s", text)
	}
}

// A waiter that died in the queue costs a turn. Without the turns the waiter behind it would come at
// its poll interval.
func TestDeadWaiterCostsATurn(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	first, _ := newProcess(t, coll)
	held := mustLock(t, first, "job")
	enterQueue(t, coll, "job")
	c, l := newProcess(t, coll, hintsOnly)
	got := lockSoon(t, c, "job")
	awaitFollowed(t, l, "job")
	if err := held.Release(bounded(t)); err != nil {
		t.Fatal(err)
	}
	h := awaitHold(t, got, "behind a dead waiter")
	if r, err := l.Inspect(bounded(t), "job"); err != nil || r.Waiters != 0 {
		t.Errorf("%d waiters after the grant, %v", r.Waiters, err)
	}
	if err := h.Release(bounded(t)); err != nil {
		t.Fatal(err)
	}
}

// The removal of the hints, or a collection of that name that cannot be followed, delays no waiter
// for long.
func TestHintsCollectionIsMadeAgain(t *testing.T) {
	t.Parallel()
	for what, spoil := range map[string]func(hints *mongo.Collection) error{
		"dropped": func(hints *mongo.Collection) error { return hints.Drop(bounded(t)) },
		"renamed": func(hints *mongo.Collection) error {
			db := hints.Database()
			return db.Client().Database("admin").RunCommand(bounded(t), doc{
				field("renameCollection", db.Name()+"."+hints.Name()), field("to", db.Name()+".elsewhere"), field("dropTarget", true),
			}).Err()
		},
		"not capped": func(hints *mongo.Collection) error {
			_, err := hints.InsertOne(bounded(t), docOf(hintTo, ""))
			return errors.Join(hints.Drop(bounded(t)), err, hints.Database().CreateCollection(bounded(t), hints.Name()))
		},
	} {
		coll := mongotest.Collection(t)
		first, _ := newProcess(t, coll)
		held := mustLock(t, first, "job")
		c, l := newProcess(t, coll, hintsOnly)
		// The server notices the end of a collection at the end of the request that it holds.
		const await = time.Second
		l.hints.await, l.queue.source.await = await, await
		got := lockSoon(t, c, "job")
		awaitFollowed(t, l, "job")
		if err := spoil(l.hints.coll); err != nil {
			t.Fatal(what, err)
		}
		if err := held.Release(bounded(t)); err != nil {
			t.Fatal(err)
		}
		h := awaitHold(t, got, "hints "+what)
		other, m := newProcess(t, coll, hintsOnly)
		again := lockSoon(t, other, "job")
		awaitFollowed(t, m, "job")
		if err := h.Release(bounded(t)); err != nil {
			t.Fatal(err)
		}
		awaitHold(t, again, "after the hints were "+what)
	}
}

// A collection with other documents is left alone. Waiters poll, and the log says why.
func TestHintsLeaveOtherCollectionsAlone(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	logger, log := locktest.NewLog()
	l := newTestLocker(t, coll, WithLogger(logger))
	hints := l.hints.coll
	if _, err := hints.InsertOne(bounded(t), docOf("precious", true)); err != nil {
		t.Fatal(err)
	}
	c := locktest.NewClient(t, l)
	first, _ := newProcess(t, coll)
	held := mustLock(t, first, "job")
	got := lockSoon(t, c, "job")
	eventually(t, "a warning", func() bool { return strings.Contains(log.String(), "no hints") })
	if err := held.Release(bounded(t)); err != nil {
		t.Fatal(err)
	}
	awaitHold(t, got, "by polling")
	if n, err := hints.CountDocuments(bounded(t), docOf("precious", true)); err != nil || n != 1 {
		t.Errorf("%d documents, %v", n, err)
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings: %s", n, log.String())
	}
}

// A lock that nobody waits for costs one command to acquire and one to release, also for a process
// that would wait.
func TestNobodyWaitsCostsNothing(t *testing.T) {
	t.Parallel()
	commands := &commandLog{}
	coll := mongotest.CollectionOf(t, mongotest.Connect(t, mongotest.URI(t), options.Client().SetMonitor(commands.monitor())))
	c, _ := newProcess(t, coll)
	for range 3 {
		commands.take()
		h := mustLock(t, c, "job")
		if err := h.Release(bounded(t)); err != nil {
			t.Fatal(err)
		}
		if got := commandNames(commands.take()); !slices.Equal(got, []string{"findAndModify", "update"}) {
			t.Errorf("sent %v", got)
		}
	}
}

// A Locker that follows no hints leaves the queues as they are.
func TestQueueSurvivesOtherLockers(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll, WithWake(WakePoll))
	lease := acquire(t, l, request("job", "first"))
	enterQueue(t, coll, "job")
	queue := storedDocument(t, coll, "job").Lookup(fieldQueue).String()
	for what, do := range map[string]func() error{
		"renewal": func() error { return errOf(l.Renew(bounded(t), lease)) },
		"batch": func() error {
			return errors.Join(errOf(l.RenewBatch(bounded(t), []driver.Lease{lease, {Name: "x", ID: lease.ID, TTL: lease.TTL}}))[0])
		},
		"repeat":  func() error { _, err := l.TryAcquire(bounded(t), request("job", "first")); return err },
		"refusal": func() error { wantHeld(t, l, request("job", "second")); return nil },
		"data":    func() error { return l.WriteData(bounded(t), lease, []byte("x"), grantRevision(lease)) },
	} {
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if now := storedDocument(t, coll, "job").Lookup(fieldQueue).String(); now != queue {
			t.Errorf("%s: the queue became %s, was %s", what, now, queue)
		}
	}
}

// A record whose queue is damaged is reported, and left as it is.
func TestDamagedQueue(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	for i, fields := range [][]bson.E{
		{field(fieldReserve, "long")}, {field(fieldReserve, int64(emptied-1))}, {field(fieldReserve, int64(1)<<40)},
	} {
		name := fmt.Sprint("n", i)
		acquire(t, l, request(name, "a"))
		overwrite(t, coll, name, fields...)
		if _, err := l.Inspect(bounded(t), name); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: %v", fields, err)
		}
	}
}

// The server's clock may step back after a release, by half a minute or by a day. The lock is then not reserved for so long.
func TestReservationEndsWithAStepOfTheClock(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	for name, step := range map[string]int64{"half a minute": 30_000, "a day": 24 * 60 * 60_000} {
		lease := acquire(t, l, request(name, "a"))
		enterQueue(t, coll, name)
		if err := l.Release(bounded(t), lease); err != nil {
			t.Fatal(err)
		}
		overwrite(t, coll, name, field(fieldExpiresAt, nowPlus(step)))
		acquire(t, l, request(name, "b"))
	}
}

// The role's privileges are on the collection of the locks alone, so there are no hints.
func TestWithoutThePrivilegeForHints(t *testing.T) {
	t.Parallel()
	rs := mongotest.StartReplicaSet(t, mongotest.Options{Members: 1, Auth: true})
	coll := mongotest.CollectionOf(t, mongotest.Connect(t, rs.URI()))
	db := coll.Database()
	for _, command := range []bson.D{
		{
			{Key: "createRole", Value: "locker"}, {Key: "roles", Value: bson.A{}}, {Key: "privileges", Value: bson.A{bson.D{
				{Key: "resource", Value: bson.D{{Key: "db", Value: db.Name()}, {Key: "collection", Value: coll.Name()}}},
				{Key: "actions", Value: bson.A{"find", "insert", "update", "createIndex", "listIndexes"}},
			}}},
		},
		{{Key: "createUser", Value: "locker"}, {Key: "pwd", Value: "locker-password"}, {Key: "roles", Value: bson.A{"locker"}}},
	} {
		if err := db.RunCommand(t.Context(), command).Err(); err != nil {
			t.Fatal(err)
		}
	}
	client := mongotest.Connect(t, rs.URI(), options.Client().
		SetAuth(options.Credential{AuthSource: db.Name(), Username: "locker", Password: "locker-password"}))
	logger, log := locktest.NewLog()
	l := newTestLocker(t, client.Database(db.Name()).Collection(coll.Name()), WithLogger(logger))
	var seen locktest.Events
	c := locktest.NewClient(t, l, holdfast.WithObserver(seen.Observe))
	holder := newTestLocker(t, coll)
	for round := range 2 {
		lease := acquire(t, holder, request("job", fmt.Sprint("holder ", round)))
		got := lockSoon(t, c, "job")
		eventually(t, "a refusal", func() bool { return seen.Count(holdfast.EventHolderSeen) > round })
		if round == 0 {
			eventually(t, "a warning", func() bool { return strings.Contains(log.String(), "no hints") })
			// A grant to a waiter that hints wake would leave a queue that those that poll enter.
			eventually(t, "a position of a waiter that polls", func() bool {
				marked, _ := storedDocument(t, coll, "job").Lookup(fieldQueue, "0", fieldPolls).BooleanOK()
				return marked
			})
		} else if at := positionOf(t, l, "job"); at != 0 {
			t.Errorf("a waiter that only polls has position %d", at)
		}
		if err := holder.Release(bounded(t), lease); err != nil {
			t.Fatal(err)
		}
		h := awaitHold(t, got, "by polling")
		if err := h.Release(bounded(t)); err != nil {
			t.Fatal(err)
		}
	}
	if text := log.String(); strings.Count(text, "level=WARN") != 1 || strings.Contains(text, "password") ||
		!strings.Contains(text, coll.Name()+hintsSuffix) {
		t.Errorf("the log: %s", text)
	}
}
