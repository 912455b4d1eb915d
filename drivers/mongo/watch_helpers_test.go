package mongo

import (
	"bytes"
	"context"
	"log/slog"
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
	"github.com/holdfast-go/holdfast/internal/mongotest"
)

func testWatcher(t *testing.T, coll *mongo.Collection) *watcher {
	t.Helper()
	w := newWatcher(coll, slog.New(slog.NewTextHandler(t.Output(), nil)))
	t.Cleanup(func() { w.close(context.WithoutCancel(t.Context())) })
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

// watchName has a channel get a value, unless one is there, for each call of wake.
func watchName(w driver.Watcher, name string) (<-chan struct{}, func()) {
	wake := make(chan struct{}, 1)
	return wake, w.Watch(name, func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
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

// patience bounds a wait: after a primary's death the others can need the better part of a
// minute until a majority acknowledges again.
const patience = 2 * time.Minute

func awaitWake(t *testing.T, wake <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-wake:
	case <-time.After(patience):
		t.Fatalf("no wake: %s", what)
	}
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(10 * time.Millisecond) {
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
