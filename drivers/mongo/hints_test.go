package mongo

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// Each collection of hints has as many Lockers as any other.
func TestLockersSpreadOverTheCollections(t *testing.T) {
	t.Parallel()
	const each = 500
	h := newHints((&mongo.Client{}).Database("db").Collection("locks"), "")
	lockers := map[string]int{}
	for range each * hintsCollections {
		lockers[h.collectionOf(newLockerID()).Name()]++
	}
	for name, n := range lockers {
		if n < each*7/10 || n > each*13/10 { // six times the standard deviation
			t.Errorf("%d of %d Lockers have %s", n, each*hintsCollections, name)
		}
	}
	if len(lockers) != hintsCollections {
		t.Errorf("%d collections", len(lockers))
	}
}

// The server may answer BadValue for other reasons than that the collection is not capped. Other
// processes follow it, so it is not dropped.
func TestOtherErrorsDropNoHints(t *testing.T) {
	t.Parallel()
	l := newVictim(t, nil)
	if err := l.hints.create(bounded(t)); err != nil {
		t.Fatal(err)
	}
	l.fail(t, "alwaysOn", list{"find"}, field("errorCode", codeBadValue),
		field("namespace", l.hints.coll.Database().Name()+"."+l.hints.coll.Name()))
	_, err := l.hints.open(bounded(t))
	l.spare(t)
	if !hasCode(err, codeBadValue) {
		t.Errorf("open: %v", err)
	}
	if n, err := l.hints.coll.CountDocuments(bounded(t), doc{}); err != nil || n != 1 {
		t.Errorf("%d documents are left, %v", n, err)
	}
}

// Many processes find the same collection without a limit, and each makes it anew. They come to follow one
// collection, and then nobody drops it any more.
func TestProcessesMendOneCollection(t *testing.T) {
	t.Parallel()
	const processes = 8
	base := mongotest.Collection(t)
	commands := newCommandCounter()
	client := mongotest.Connect(t, mongotest.URI(t), options.Client().SetMonitor(commands.monitor()))
	var all []*Locker
	for range processes {
		l := newTestLocker(t, through(client, base))
		l.hints.coll = l.hints.collectionOf("A")
		all = append(all, l)
	}
	coll := all[0].hints.coll
	if _, err := coll.InsertOne(bounded(t), docOf(hintTo, "somebody")); err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		defer l.Wake("job", me, func(driver.Wakeup) {})()
	}
	open := func() (since time.Time, ok bool) {
		for _, l := range all {
			at := l.queue.opened()
			if at.IsZero() {
				return time.Time{}, false
			}
			if at.After(since) {
				since = at
			}
		}
		return since, true
	}
	eventually(t, "cursors that stay open", func() bool {
		latest, ok := open()
		return ok && time.Since(latest) > time.Second
	})
	if drops := commands.count("drop"); drops < 1 || drops > 2*processes {
		t.Errorf("%d processes dropped the collection %d times", processes, drops)
	}
	specs, err := coll.Database().ListCollectionSpecifications(bounded(t), docOf("name", coll.Name()))
	if err != nil || len(specs) != 1 {
		t.Fatal(specs, err)
	}
	if capped, _ := specs[0].Options.Lookup("capped").BooleanOK(); !capped {
		t.Error("the collection is not capped")
	}
}

// strictLocker is a Locker of a client with the strict Stable API, and its log.
func strictLocker(t *testing.T, coll *mongo.Collection) (*Locker, *locktest.Log) {
	t.Helper()
	client := mongotest.Connect(t, mongotest.URI(t), options.Client().SetServerAPIOptions(
		options.ServerAPI(options.ServerAPIVersion1).SetStrict(true).SetDeprecationErrors(true)))
	logger, log := locktest.NewLog()
	return newTestLocker(t, through(client, coll), WithLogger(logger)), log
}

// A client with the strict Stable API can use the locks. It cannot have hints, so its waiters poll.
func TestStrictStableAPI(t *testing.T) {
	t.Parallel()
	base := mongotest.Collection(t)
	l, log := strictLocker(t, base)
	lease := acquire(t, l, request("job", "a"))
	if _, err := l.Renew(bounded(t), lease); err != nil {
		t.Error(err)
	}
	lease.Contended = true
	if err := l.Release(bounded(t), lease); err != nil {
		t.Error(err)
	}
	holder, _ := newProcess(t, base)
	held := mustLock(t, holder, "job")
	c := newClient(t, l)
	got := lockSoon(t, c, "job")
	eventually(t, "a warning", func() bool { return strings.Contains(log.String(), "no hints") })
	if err := held.Release(bounded(t)); err != nil {
		t.Fatal(err)
	}
	if err := awaitHold(t, got, "by polling").Release(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Errorf("the log: %s", log.String())
	}
}

// What a client with the strict Stable API may not ask is not checked, and is no fault of the backend.
func TestCheckWithTheStrictStableAPI(t *testing.T) {
	t.Parallel()
	l, _ := strictLocker(t, mongotest.Collection(t))
	found := map[string]driver.Finding{}
	if err := l.Check(bounded(t), func(f driver.Finding) { found[f.Subject] = f }); err != nil {
		t.Fatal(err)
	}
	for subject, f := range found {
		if f.Level == driver.LevelWrong {
			t.Errorf("%s: %+v", subject, f)
		}
	}
	if f := found[subjectReachable]; f.Level != driver.LevelOK || f.Subject == "" || len(found) < 5 {
		t.Errorf("%d findings: %+v", len(found), found)
	}
}
