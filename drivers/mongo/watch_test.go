package mongo

import (
	"bytes"
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
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/holdfast-go/holdfast/internal/mongotest"
)

func TestWatchWakesWhenALockMayBeFree(t *testing.T) {
	t.Parallel()
	coll, seen := monitored(t)
	w := testWatcher(t, coll)
	for _, name := range []string{"a", "b"} {
		write(t, coll, name, holding)
	}
	a, stop := w.Watch("a")
	defer stop()
	awaitWake(t, a, "stream opened")
	b, stop := w.Watch("b")
	defer stop()
	awaitWake(t, b, "stream was open already")
	base := seen.events()

	// Each of these would be seen by the wake that follows, had it travelled.
	for range 5 {
		write(t, coll, "a", renewal)
	}
	write(t, coll, "a", bson.D{{Key: "$set", Value: bson.D{{Key: "data", Value: strings.Repeat("x", 100)}}}})
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
	write(t, coll, "b", release)
	expect("release")
	write(t, coll, "b", holding)
	write(t, coll, "b", bson.A{bson.D{{Key: "$set", Value: bson.D{{Key: "broken", Value: true}}}}})
	expect("break")
	if _, err := coll.ReplaceOne(t.Context(), bson.D{{Key: "_id", Value: "b"}}, bson.D{{Key: "token", Value: 2}}); err != nil {
		t.Fatal(err)
	}
	expect("release that shows as a replacement")
	if _, err := coll.DeleteOne(t.Context(), bson.D{{Key: "_id", Value: "b"}}); err != nil {
		t.Fatal(err)
	}
	expect("removal")
	if woken(a) {
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

func TestWatchSharesOneStream(t *testing.T) {
	t.Parallel()
	coll, seen := monitored(t)
	w := testWatcher(t, coll)
	w.linger = 0
	const watches = 1000
	var stops []func()
	var wakes []<-chan struct{}
	for i := range watches {
		wake, stop := w.Watch(fmt.Sprint("name", i%500))
		wakes, stops = append(wakes, wake), append(stops, stop)
	}
	for _, wake := range wakes {
		awaitWake(t, wake, "stream opened")
	}
	write(t, coll, "name7", holding)
	write(t, coll, "name7", release)
	awaitWake(t, wakes[7], "release")
	awaitWake(t, wakes[507], "release")
	if slices.ContainsFunc(wakes, woken) {
		t.Error("a release woke the waiter of another name")
	}
	if n := seen.count("aggregate"); n != 1 {
		t.Errorf("%d watches opened %d streams", watches, n)
	}
	if n := seen.mostAtOnce("getMore"); n != 1 {
		t.Errorf("%d getMore commands at once, want 1", n)
	}
	for _, stop := range stops {
		stop()
		stop()
	}
	await(t, "stream closed after the last watch", func() bool { return seen.count("killCursors") == 1 })
	wake, stop := w.Watch("again")
	defer stop()
	awaitWake(t, wake, "stream opened again")
	if n := seen.count("aggregate"); n != 2 {
		t.Errorf("%d streams opened, want 2", n)
	}
}

func TestWatchLingersForTheNextWaiter(t *testing.T) {
	t.Parallel()
	coll, seen := monitored(t)
	w := testWatcher(t, coll)
	for range 2 {
		wake, stop := w.Watch("a")
		awaitWake(t, wake, "watch in effect")
		stop()
		asked := seen.count("getMore")
		await(t, "another request for events", func() bool { return seen.count("getMore") > asked })
	}
	if n := seen.count("aggregate"); n != 1 {
		t.Errorf("%d streams for two waiters one after the other, want 1", n)
	}
}

// A fail point has the server answer as it does in the situation that the
// error stands for; making it lose its history for real takes gigabytes. The
// server has only one such fail point, so this test does not run beside others.
func TestWatchWakesAfterAGap(t *testing.T) {
	for _, test := range []struct {
		name    string
		failure bson.E
	}{
		{"history lost", bson.E{Key: "errorCode", Value: 286}},
		{"resumed by the driver", bson.E{Key: "closeConnection", Value: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			coll, seen := monitored(t, options.Client().SetAppName(test.name))
			w := testWatcher(t, coll)
			wake, stop := w.Watch("a")
			defer stop()
			awaitWake(t, wake, "stream opened")
			failCommand(t, coll.Database().Client(), bson.D{
				{Key: "failCommands", Value: bson.A{"getMore"}}, {Key: "appName", Value: test.name}, test.failure,
			})
			awaitWake(t, wake, "stream opened after the gap")
			if n := seen.count("aggregate"); n != 2 {
				t.Errorf("%d streams opened, want 2", n)
			}
			awaitRelease(t, coll, wake, "a")
		})
	}
}

func TestWatchOnAStandaloneStaysQuiet(t *testing.T) {
	t.Parallel()
	seen := newCommands()
	coll := mongotest.CollectionOf(t, mongotest.Connect(t, mongotest.Standalone(t), options.Client().SetMonitor(seen.monitor())))
	logger, log := logged()
	w := newWatcher(coll, logger)
	defer w.close()
	wake, stop := w.Watch("a")
	await(t, "warning", func() bool { return strings.Count(log.String(), "level=WARN") == 1 })
	stop()
	for range 10 {
		_, stop := w.Watch("a")
		stop()
	}
	if n := seen.count("aggregate"); n != 1 {
		t.Errorf("the server was asked for a stream %d times, want once", n)
	}
	if woken(wake) {
		t.Error("woken although watching is impossible")
	}
	w.close()
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("want one line of log, got:\n%s", log.String())
	}
}

func TestWatchRetryPause(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection reset")
	for failures := range 100 {
		want := retryMost
		if failures < 8 {
			want = retryFirst << failures
		}
		if got := retryPause(broken, failures); got < want/2 || got > want {
			t.Errorf("pause after %d failures is %v, want %v to %v", failures, got, want/2, want)
		}
		refusal := mongo.CommandError{Code: 40573}
		if got := retryPause(fmt.Errorf("watch: %w", refusal), failures); got < retryRefused/2 {
			t.Errorf("pause after a refusal is %v", got)
		}
	}
}

func TestWatchCloses(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	for i := range 20 { // every other time before the stream is open
		w := newWatcher(coll, discard)
		var watching sync.WaitGroup
		for i := range 8 {
			watching.Go(func() {
				for range 20 {
					_, stop := w.Watch(fmt.Sprint(i))
					stop()
				}
				_, _ = w.Watch("never stopped")
			})
		}
		if wake, _ := w.Watch("b"); i%2 == 0 {
			awaitWake(t, wake, "stream opened")
		}
		w.close()
		if w.running {
			t.Error("the stream is still there after close")
		}
		watching.Wait()
		w.close()
		wake, stop := w.Watch("a")
		stop()
		if woken(wake) {
			t.Error("woken after close")
		}
	}
}

// TestWatchDelay compares the wake after a release with what the release itself
// takes until a majority has acknowledged it.
func TestWatchDelay(t *testing.T) {
	coll, _ := monitored(t)
	w := testWatcher(t, coll)
	wake, stop := w.Watch("a")
	defer stop()
	awaitWake(t, wake, "stream opened")
	var acknowledged, woke []time.Duration
	for range 50 {
		write(t, coll, "a", holding)
		begin := time.Now()
		done := make(chan time.Duration)
		go func() {
			<-wake
			done <- time.Since(begin)
		}()
		write(t, coll, "a", release)
		acknowledged = append(acknowledged, time.Since(begin))
		woke = append(woke, <-done)
	}
	slices.Sort(acknowledged)
	slices.Sort(woke)
	t.Logf("from the release's start, median of %d: majority acknowledgement %v, wake %v", len(woke), acknowledged[25], woke[25])
	if woke[25] > acknowledged[25]+500*time.Millisecond {
		t.Errorf("waiters wake %v after the acknowledgement", woke[25]-acknowledged[25])
	}
}

func testWatcher(t *testing.T, coll *mongo.Collection) *watcher {
	t.Helper()
	w := newWatcher(coll, slog.New(slog.NewTextHandler(t.Output(), nil)))
	t.Cleanup(w.close)
	return w
}

// The writes that a Locker makes, as far as the stream tells them apart.
var (
	holding = bson.A{bson.D{{Key: "$set", Value: bson.D{
		{Key: "v", Value: 1}, {Key: "kid", Value: "k1"}, {Key: "owner", Value: "somebody"}, {Key: "token", Value: int64(1)},
		{Key: "ts", Value: "$$NOW"}, {Key: "expiresAt", Value: bson.D{{Key: "$add", Value: bson.A{"$$NOW", 30_000}}}},
	}}}, bson.D{{Key: "$unset", Value: "broken"}}}
	renewal = bson.A{bson.D{{Key: "$set", Value: bson.D{
		{Key: "ts", Value: "$$NOW"}, {Key: "expiresAt", Value: bson.D{{Key: "$add", Value: bson.A{"$$NOW", 30_000}}}},
	}}}}
	release = bson.A{bson.D{{Key: "$set", Value: bson.D{{Key: "expiresAt", Value: "$$NOW"}}}}, bson.D{{Key: "$unset", Value: "kid"}}}
)

func write(t *testing.T, coll *mongo.Collection, name string, update any) {
	t.Helper()
	if err := tryWrite(t.Context(), coll, name, update); err != nil {
		t.Fatal(err)
	}
}

func tryWrite(ctx context.Context, coll *mongo.Collection, name string, update any) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	coll = coll.Clone(options.Collection().SetWriteConcern(writeconcern.Majority()))
	_, err := coll.UpdateByID(ctx, name, update, options.UpdateOne().SetUpsert(true))
	return err
}

// awaitRelease takes and releases the lock until its waiter wakes.
func awaitRelease(t *testing.T, coll *mongo.Collection, wake <-chan struct{}, name string) {
	t.Helper()
	await(t, "wake by a release", func() bool {
		for _, update := range []bson.A{holding, release} {
			if err := tryWrite(t.Context(), coll, name, update); err != nil {
				return false
			}
		}
		return woken(wake)
	})
}

func awaitWake(t *testing.T, wake <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-wake:
	case <-time.After(30 * time.Second):
		t.Fatalf("no wake: %s", what)
	}
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func woken(wake <-chan struct{}) bool {
	select {
	case <-wake:
		return true
	default:
		return false
	}
}

// failCommand has the server fail one command as data says.
func failCommand(t *testing.T, client *mongo.Client, data bson.D) {
	t.Helper()
	err := client.Database("admin").RunCommand(t.Context(), bson.D{
		{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: bson.D{{Key: "times", Value: 1}}}, {Key: "data", Value: data},
	}).Err()
	if err != nil {
		t.Fatal(err)
	}
}

// commands counts what a client sends and what comes through its stream.
type commands struct {
	mu      sync.Mutex
	started map[string]int
	now     map[string]int
	most    map[string]int
	batches []bson.Raw
}

func newCommands() *commands {
	return &commands{started: map[string]int{}, now: map[string]int{}, most: map[string]int{}}
}

func monitored(t *testing.T, opts ...*options.ClientOptions) (*mongo.Collection, *commands) {
	t.Helper()
	seen := newCommands()
	opts = append(opts, options.Client().SetMonitor(seen.monitor()))
	return mongotest.CollectionOf(t, mongotest.Connect(t, mongotest.URI(t), opts...)), seen
}

func (c *commands) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.started[e.CommandName]++
			c.now[e.CommandName]++
			c.most[e.CommandName] = max(c.most[e.CommandName], c.now[e.CommandName])
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.now[e.CommandName]--
			if e.CommandName != "getMore" {
				return
			}
			batch, err := e.Reply.Lookup("cursor", "nextBatch").Array().Values()
			if err != nil {
				panic(err)
			}
			for _, doc := range batch {
				c.batches = append(c.batches, bytes.Clone(doc.Document()))
			}
		},
		Failed: func(_ context.Context, e *event.CommandFailedEvent) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.now[e.CommandName]--
		},
	}
}

func (c *commands) count(command string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.started[command]
}

func (c *commands) mostAtOnce(command string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most[command]
}

func (c *commands) events() int { return len(c.documents()) }

func (c *commands) documents() []bson.Raw {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.batches)
}
