package mongo

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/guard"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// testHold is a hold that nobody renews and that does not notice its end, like that of a
// paused process. It ends when the test says so.
type testHold struct {
	lease driver.Lease
	ctx   context.Context
	err   error
}

func (h testHold) Lease() driver.Lease      { return h.lease }
func (h testHold) Context() context.Context { return h.ctx }
func (h testHold) Err() error               { return errors.Join(h.err, context.Cause(h.ctx)) }

// guardFixture is a lock and a journal to which its holders write.
type guardFixture struct {
	t       *testing.T
	locker  *Locker
	guard   *Guard
	journal *mongo.Collection
	hooks   *hooks
}

func newGuardFixture(t *testing.T, uri string, opts ...*options.ClientOptions) *guardFixture {
	t.Helper()
	hooks := &hooks{}
	client := mongotest.Connect(t, uri, append(opts, options.Client().SetMonitor(hooks.monitor()).SetAppName(t.Name()))...)
	coll := mongotest.CollectionOf(t, client)
	locker := newTestLocker(t, coll)
	guard, err := NewGuard(locker, coll.Database())
	if err != nil {
		t.Fatal(err)
	}
	return &guardFixture{t: t, locker: locker, guard: guard, journal: coll.Database().Collection("journal"), hooks: hooks}
}

func newSharedGuardFixture(t *testing.T) *guardFixture {
	t.Helper()
	return newGuardFixture(t, mongotest.URI(t))
}

// hold acquires the lock "job", waiting for its last lease to expire.
func (g *guardFixture) hold(id string, ttl time.Duration) testHold {
	g.t.Helper()
	req := request("job", id)
	req.TTL = ttl
	var hold testHold
	eventually(g.t, id+" gets the lock", func() bool {
		lease, err := g.locker.TryAcquire(g.t.Context(), req)
		hold = testHold{lease: lease, ctx: g.t.Context()}
		return err == nil
	})
	return hold
}

// follow releases a hold, which does not notice, and acquires the lock for another.
func (g *guardFixture) follow(a testHold, id string) testHold {
	g.t.Helper()
	if err := g.locker.Release(g.t.Context(), a.lease); err != nil {
		g.t.Error(err)
	}
	return g.hold(id, time.Minute)
}

// note returns a function for Do that adds a line to the journal.
func (g *guardFixture) note(line string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := g.journal.InsertOne(ctx, bson.D{{Key: "line", Value: line}})
		return err
	}
}

// never is a function that must not run.
func (g *guardFixture) never(context.Context) error {
	g.t.Error("the function was run although the hold is refused")
	return nil
}

func (g *guardFixture) lines() string {
	g.t.Helper()
	cursor, err := g.journal.Find(g.t.Context(), bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		g.t.Fatal(err)
	}
	var docs []struct{ Line string }
	if err := cursor.All(g.t.Context(), &docs); err != nil {
		g.t.Fatal(err)
	}
	var lines []string
	for _, d := range docs {
		lines = append(lines, d.Line)
	}
	return strings.Join(lines, " ")
}

func (g *guardFixture) do(h guard.Hold, fn func(context.Context) error) error {
	return g.guard.Do(g.t.Context(), h, fn)
}

func (g *guardFixture) must(h guard.Hold, fn func(context.Context) error) {
	g.t.Helper()
	if err := g.do(h, fn); err != nil {
		g.t.Fatal(err)
	}
}

func (g *guardFixture) wantLines(want string) {
	g.t.Helper()
	if got := g.lines(); got != want {
		g.t.Errorf("the journal says %q, want %q", got, want)
	}
}

func (g *guardFixture) wantErr(err, want error) {
	g.t.Helper()
	if !errors.Is(err, want) {
		g.t.Errorf("got %v, want %v", err, want)
	}
	if err != nil && !strings.HasPrefix(err.Error(), "holdfast: guard ") {
		g.t.Errorf("the error does not begin with its operation: %v", err)
	}
	if err != nil && strings.Contains(err.Error(), "secret") {
		g.t.Errorf("the error shows a lease ID: %v", err)
	}
}

// hooks run before a command is sent.
type hooks struct {
	mu sync.Mutex
	by map[string]func()
}

func (h *hooks) before(command string, fn func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.by = map[string]func(){command: fn}
}

func (h *hooks) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		key := e.CommandName
		if coll, ok := e.Command.Lookup(key).StringValueOK(); ok {
			key += " " + coll
		}
		h.mu.Lock()
		fn := h.by[key]
		delete(h.by, key)
		h.mu.Unlock()
		if fn != nil {
			fn()
		}
	}}
}
