package mongo

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/waitqueue"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

func newStreamWatcher(coll *mongo.Collection, logger *slog.Logger) *watcher {
	return newWatcher(streamSource(coll), coll.Database().Name()+"."+coll.Name(), logger)
}

func testWatcher(t *testing.T, coll *mongo.Collection, linger ...time.Duration) *watcher {
	t.Helper()
	settings := waitqueue.Settings{}
	if len(linger) > 0 {
		settings.Linger = linger[0]
	}
	w := newWatcherWith(streamSource(coll), coll.Database().Name()+"."+coll.Name(), slog.New(slog.NewTextHandler(t.Output(), nil)), settings)
	t.Cleanup(func() { w.close(context.WithoutCancel(t.Context())) })
	return w
}

// The writes of a Locker, with the parts that the stream distinguishes.
var (
	writeHeld = bson.A{bson.D{{Key: "$set", Value: bson.D{
		{Key: "v", Value: 1}, {Key: "kid", Value: "k1"}, {Key: "owner", Value: "somebody"}, {Key: "token", Value: int64(1)},
		{Key: "ts", Value: "$$NOW"}, {Key: "expiresAt", Value: bson.D{{Key: "$add", Value: bson.A{"$$NOW", 30_000}}}},
	}}}, bson.D{{Key: "$unset", Value: "broken"}}}
	writeRenewed = bson.A{bson.D{{Key: "$set", Value: bson.D{
		{Key: "ts", Value: "$$NOW"}, {Key: "expiresAt", Value: bson.D{{Key: "$add", Value: bson.A{"$$NOW", 30_000}}}},
	}}}}
	writeReleased = bson.A{bson.D{{Key: "$set", Value: bson.D{{Key: "expiresAt", Value: "$$NOW"}}}}, bson.D{{Key: "$unset", Value: "kid"}}}
)

func upsert(t *testing.T, coll *mongo.Collection, name string, update any) {
	t.Helper()
	if err := tryUpsert(bounded(t), coll, name, update); err != nil {
		t.Fatal(err)
	}
}

func tryUpsert(ctx context.Context, coll *mongo.Collection, name string, update any) error {
	coll = coll.Clone(options.Collection().SetWriteConcern(writeconcern.Majority()))
	_, err := coll.UpdateByID(ctx, name, update, options.UpdateOne().SetUpsert(true))
	return err
}

// watchName returns a channel that gets a value, unless it has one, for each call of wake.
func watchName(w driver.Waker, name string) (<-chan struct{}, func()) {
	wake := make(chan struct{}, 1)
	return wake, w.Wake(name, "", func(up driver.Wakeup) {
		if up.Kind == driver.WakingEnded {
			return
		}
		select {
		case wake <- struct{}{}:
		default:
		}
	})
}

// awaitRelease acquires and releases the lock until its waiter wakes.
func awaitRelease(t *testing.T, coll *mongo.Collection, wake <-chan struct{}, name string) {
	t.Helper()
	eventually(t, "wake by a release", func() bool {
		for _, update := range []bson.A{writeHeld, writeReleased} {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			err := tryUpsert(ctx, coll, name, update)
			cancel()
			if err != nil {
				return false
			}
		}
		return wasWoken(wake)
	})
}

// waitLimit limits a wait: after a primary's end it can take nearly a minute until a majority
// acknowledges again, and several minutes on a busy machine.
const waitLimit = 4 * time.Minute

func awaitWake(t *testing.T, wake <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-wake:
	case <-time.After(waitLimit):
		t.Fatalf("no wake: %s", what)
	}
}

var eventually = locktest.Eventually

func wasWoken(wake <-chan struct{}) bool {
	select {
	case <-wake:
		return true
	default:
		return false
	}
}

// commandCounter counts a client's commands and collects the events of its stream.
type commandCounter struct {
	mu         sync.Mutex
	started    map[string]int
	running    map[string]int
	maxRunning map[string]int
	batches    []bson.Raw
}

func newCommandCounter() *commandCounter {
	return &commandCounter{started: map[string]int{}, running: map[string]int{}, maxRunning: map[string]int{}}
}

func monitoredCollection(t *testing.T, opts ...*options.ClientOptions) (*mongo.Collection, *commandCounter) {
	t.Helper()
	seen := newCommandCounter()
	opts = append(opts, options.Client().SetMonitor(seen.monitor()))
	return mongotest.CollectionOf(t, mongotest.Connect(t, mongotest.URI(t), opts...)), seen
}

func (c *commandCounter) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.started[e.CommandName]++
			c.running[e.CommandName]++
			c.maxRunning[e.CommandName] = max(c.maxRunning[e.CommandName], c.running[e.CommandName])
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.running[e.CommandName]--
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
			c.running[e.CommandName]--
		},
	}
}

func (c *commandCounter) count(command string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.started[command]
}

func (c *commandCounter) maxAtOnce(command string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.maxRunning[command]
}

func (c *commandCounter) events() int { return len(c.documents()) }

func (c *commandCounter) documents() []bson.Raw {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.batches)
}

// reset forgets all commands.
func (c *commandCounter) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started = map[string]int{}
}

// all returns how many commands there were of each kind.
func (c *commandCounter) all() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.started)
}
