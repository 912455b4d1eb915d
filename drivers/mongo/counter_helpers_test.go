package mongo

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

func upsert(t *testing.T, coll *mongo.Collection, name string, update any) {
	t.Helper()
	coll = coll.Clone(options.Collection().SetWriteConcern(writeconcern.Majority()))
	if _, err := coll.UpdateByID(bounded(t), name, update, options.UpdateOne().SetUpsert(true)); err != nil {
		t.Fatal(err)
	}
}

// waitLimit limits a wait: after a primary's end it can take nearly a minute until a majority
// acknowledges again, and several minutes on a busy machine.
const waitLimit = 4 * time.Minute

var eventually = locktest.Eventually

// commandCounter counts a client's commands.
type commandCounter struct {
	mu         sync.Mutex
	started    map[string]int
	running    map[string]int
	maxRunning map[string]int
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
