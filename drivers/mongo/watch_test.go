package mongo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/waitqueue"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

func TestWatchWakesWhenALockMayBeFree(t *testing.T) {
	t.Parallel()
	coll, seen := monitoredCollection(t)
	w := testWatcher(t, coll)
	for _, name := range []string{"a", "b"} {
		upsert(t, coll, name, writeHeld)
	}
	a, stop := watchName(w, "a")
	defer stop()
	awaitWake(t, a, "stream opened")
	b, stop := watchName(w, "b")
	defer stop()
	awaitWake(t, b, "stream was open already")
	base := seen.events()

	// An event of these writes would come before the one that follows.
	for range 5 {
		upsert(t, coll, "a", writeRenewed)
	}
	upsert(t, coll, "a", bson.D{{Key: "$set", Value: bson.D{{Key: "data", Value: strings.Repeat("x", 100)}}}})
	if _, err := coll.ReplaceOne(t.Context(), bson.D{{Key: "_id", Value: "a"}}, bson.D{{Key: "kid", Value: "k2"}}); err != nil {
		t.Fatal(err)
	}
	expect := func(what string) {
		t.Helper()
		awaitWake(t, b, what)
		if base++; seen.events() != base {
			t.Errorf("%s: %d events came to the client, want 1", what, seen.events()-base+1)
		}
	}
	upsert(t, coll, "b", writeReleased)
	expect("release")
	upsert(t, coll, "b", writeHeld)
	upsert(t, coll, "b", bson.D{{Key: "$set", Value: bson.D{{Key: "broken", Value: true}}}})
	expect("break")
	if _, err := coll.ReplaceOne(t.Context(), bson.D{{Key: "_id", Value: "b"}}, bson.D{{Key: "token", Value: 2}}); err != nil {
		t.Fatal(err)
	}
	expect("release that shows as a replacement")
	if _, err := coll.DeleteOne(t.Context(), bson.D{{Key: "_id", Value: "b"}}); err != nil {
		t.Fatal(err)
	}
	expect("removal")
	if wasWoken(a) {
		t.Error("the waiter for a was woken by renewals, or by what happened to b")
	}
	for _, doc := range seen.documents() {
		if _, err := doc.LookupErr("fullDocument"); err == nil || len(doc) > 300 {
			t.Errorf("more than the name travelled: %v", doc)
		}
	}
	if err := coll.Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitWake(t, a, "collection dropped")
	awaitWake(t, b, "collection dropped")
	awaitRelease(t, coll, a, "a") // the stream is open again
}

// Of a Locker's own writes only those that free or break a lock are events.
func TestWatchEventsOfALocker(t *testing.T) {
	t.Parallel()
	coll, seen := monitoredCollection(t)
	l := newTestLocker(t, coll)
	ctx := bounded(t)
	wake, stop := watchName(l.Capabilities().Waker, "a")
	defer stop()
	awaitWake(t, wake, "stream opened")
	lease := acquire(t, l, request("a", "id 1"))
	for what, do := range map[string]func() error{
		"renewal": func() error { return errOf(l.Renew(ctx, lease)) },
		"batch":   func() error { return errors.Join(errOf(l.RenewBatch(ctx, []driver.Lease{lease}))...) },
		"repeat":  func() error { _, err := l.TryAcquire(ctx, request("a", "id 1")); return err },
		"data":    func() error { return l.WriteData(ctx, lease, []byte("text"), grantRevision(lease)) },
	} {
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i, step := range []struct {
		what string
		do   func() error
	}{
		{"release", func() error { return l.Release(ctx, lease) }},
		{"break of the next holder", func() error {
			lease = acquire(t, l, request("a", "id 2"))
			return l.Break(ctx, "a", driver.BreakAnybody())
		}},
		{"release of the broken lock", func() error { return l.Release(ctx, lease) }},
		{"break, now, of the next holder", func() error {
			acquire(t, l, request("a", "id 3"))
			return l.BreakNow(ctx, "a", driver.BreakAnybody())
		}},
	} {
		if err := step.do(); err != nil {
			t.Errorf("%s: %v", step.what, err)
		}
		awaitWake(t, wake, step.what)
		if n := seen.events(); n != i+1 {
			t.Errorf("after the %s, %d events came to the client, want %d", step.what, n, i+1)
		}
	}
}

func TestWatchSharesOneStream(t *testing.T) {
	t.Parallel()
	coll, seen := monitoredCollection(t)
	w := testWatcher(t, coll, time.Nanosecond)
	const watches = 1000
	var stops []func()
	var wakes []<-chan struct{}
	for i := range watches {
		wake, stop := watchName(w, fmt.Sprint("name", i%500))
		wakes, stops = append(wakes, wake), append(stops, stop)
	}
	for _, wake := range wakes {
		awaitWake(t, wake, "stream opened")
	}
	// A watch that came while the stream was opened may be woken twice. When the stream has asked for
	// events, all have been woken.
	eventually(t, "a request for events", func() bool { return seen.count("getMore") > 0 })
	for _, wake := range wakes {
		wasWoken(wake)
	}
	upsert(t, coll, "name7", writeHeld)
	upsert(t, coll, "name7", writeReleased)
	awaitWake(t, wakes[7], "release")
	awaitWake(t, wakes[507], "release")
	if slices.ContainsFunc(wakes, wasWoken) {
		t.Error("a release woke the waiter of another name")
	}
	if n := seen.count("aggregate"); n != 1 {
		t.Errorf("%d watches opened %d streams", watches, n)
	}
	if n := seen.maxAtOnce("getMore"); n != 1 {
		t.Errorf("%d getMore commands at once, want 1", n)
	}
	for _, stop := range stops {
		stop()
		stop()
	}
	eventually(t, "stream closed after the last watch", func() bool { return seen.count("killCursors") == 1 })
	wake, stop := watchName(w, "again")
	defer stop()
	awaitWake(t, wake, "stream opened again")
	if n := seen.count("aggregate"); n != 2 {
		t.Errorf("%d streams opened, want 2", n)
	}
}

func TestWatchLingersForTheNextWaiter(t *testing.T) {
	t.Parallel()
	coll, seen := monitoredCollection(t)
	w := testWatcher(t, coll)
	for range 2 {
		wake, stop := watchName(w, "a")
		awaitWake(t, wake, "watch in effect")
		stop()
		asked := seen.count("getMore")
		eventually(t, "another request for events", func() bool { return seen.count("getMore") > asked })
	}
	if n := seen.count("aggregate"); n != 1 {
		t.Errorf("%d streams for two waiters one after the other, want 1", n)
	}
}

// A fail point makes the server answer as in the real situation; a real loss of its history
// takes gigabytes. A server has only one fail point, so this test does not run in parallel
// with others.
func TestWatchWakesAfterAGap(t *testing.T) {
	for _, test := range []struct {
		name    string
		failure bson.E
	}{
		{"history lost", bson.E{Key: "errorCode", Value: 286}},
		{"resumed by the driver", bson.E{Key: "closeConnection", Value: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			coll, seen := monitoredCollection(t, options.Client().SetAppName(test.name))
			w := testWatcher(t, coll)
			wake, stop := watchName(w, "a")
			defer stop()
			awaitWake(t, wake, "stream opened")
			setFailPoint(t, coll.Database().Client(), docOf("times", 1),
				field("failCommands", list{"getMore"}), field("appName", test.name), test.failure)
			awaitWake(t, wake, "stream opened after the gap")
			if n := seen.count("aggregate"); n != 2 {
				t.Errorf("%d streams opened, want 2", n)
			}
			awaitRelease(t, coll, wake, "a")
		})
	}
}

func TestWatchOnAStandaloneStopsAsking(t *testing.T) {
	t.Parallel()
	seen := newCommandCounter()
	coll := mongotest.CollectionOf(t, mongotest.Connect(t, mongotest.Standalone(t), options.Client().SetMonitor(seen.monitor())))
	logger, log := locktest.NewLog()
	w := newStreamWatcher(coll, logger)
	defer w.close(t.Context())
	wake, stop := watchName(w, "a")
	eventually(t, "warning", func() bool { return strings.Count(log.String(), "level=WARN") == 1 })
	stop()
	for range 10 {
		_, stop := watchName(w, "a")
		stop()
	}
	if n := seen.count("aggregate"); n != 1 {
		t.Errorf("tried to open a stream %d times, want once", n)
	}
	if wasWoken(wake) {
		t.Error("woken although watching is impossible")
	}
	w.close(t.Context())
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("want one line of log, got:\n%s", log.String())
	}
}

// A refusal that only a person can mend is not asked again soon, and neither is a cursor without a connection.
func TestWatchRetryBackoff(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want time.Duration
	}{
		{errors.New("connection reset"), 0},
		{fmt.Errorf("watch: %w", mongo.CommandError{Code: 40573}), retryPermanent},
		{fmt.Errorf("watch: %w", errFewConnections), waitqueue.LongestRetry},
	} {
		if got := leastBackoff(test.err); got != test.want {
			t.Errorf("%v: at least %v, want %v", test.err, got, test.want)
		}
	}
}

func TestWatchCloses(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	for i := range 20 { // every second time before the stream is open
		w := newStreamWatcher(coll, discard)
		var watching sync.WaitGroup
		for i := range 8 {
			watching.Go(func() {
				for range 20 {
					_, stop := watchName(w, fmt.Sprint(i))
					stop()
				}
				_, _ = watchName(w, "never stopped")
			})
		}
		if wake, _ := watchName(w, "b"); i%2 == 0 {
			awaitWake(t, wake, "stream opened")
		}
		w.close(t.Context())
		if w.Running() {
			t.Error("the stream is still there after close")
		}
		watching.Wait()
		w.close(t.Context())
		wake, stop := watchName(w, "a")
		stop()
		if wasWoken(wake) {
			t.Error("woken after close")
		}
	}
}

// Each release wakes by itself: no later event is needed to bring it.
func TestEachReleaseWakes(t *testing.T) {
	t.Parallel()
	coll, _ := monitoredCollection(t)
	w := testWatcher(t, coll)
	wake, stop := watchName(w, "a")
	defer stop()
	awaitWake(t, wake, "stream opened")
	for range 20 {
		upsert(t, coll, "a", writeHeld)
		upsert(t, coll, "a", writeReleased)
		awaitWake(t, wake, "release")
	}
}

// A cursor could not be opened, and then nobody waited any more. What is sent until the next watch opens it counts as sent by
// waiters that poll.
func TestUsableAgainAfterAFailure(t *testing.T) {
	t.Parallel()
	s := &scriptedSource{open: func(n int) (time.Duration, error) {
		if n == 1 {
			return 0, errors.New("no primary")
		}
		return -1, nil
	}}
	w := newWatcherWith(s.source(time.Minute), "test.hints", slog.New(slog.DiscardHandler), waitqueue.Settings{Linger: time.Millisecond})
	t.Cleanup(func() { w.close(context.WithoutCancel(t.Context())) })
	_, stop := watchName(w, "job")
	eventually(t, "the cursor cannot be opened", func() bool { return !w.usable() })
	stop()
	eventually(t, "nobody drives it", func() bool { return !w.Running() })
	if w.usable() {
		t.Error("a request would count as one that is woken")
	}
	watchName(w, "job")
	eventually(t, "the next watch opens it", w.usable)
}
