package mongo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/mongotest"
)

var _ Hold = (*holdfast.Hold)(nil)

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

func newGuardFixture(t *testing.T, uri string) *guardFixture {
	t.Helper()
	hooks := &hooks{}
	client := mongotest.Connect(t, uri, options.Client().SetMonitor(hooks.monitor()).SetAppName(t.Name()))
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

func (g *guardFixture) do(h Hold, fn func(context.Context) error) error {
	return g.guard.Do(g.t.Context(), h, fn)
}

func (g *guardFixture) must(h Hold, fn func(context.Context) error) {
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

func TestGuardCommits(t *testing.T) {
	t.Parallel()
	g := newSharedGuardFixture(t)
	a := g.hold("secret a", time.Minute)
	for i := range 3 {
		g.must(a, g.note(fmt.Sprint(i)))
	}
	g.wantLines("0 1 2")
	var fence struct{ Token, Commits int64 }
	err := g.journal.Database().Collection(FencesCollection).FindOne(t.Context(), docOf("_id", "job")).Decode(&fence)
	if err != nil || fence.Token != int64(a.lease.Token) || fence.Commits != 3 {
		t.Errorf("the fence is %+v, %v", fence, err)
	}
}

func TestGuardRefuses(t *testing.T) {
	t.Parallel()
	t.Run("a holder after a later one raised the fence", func(t *testing.T) {
		t.Parallel()
		g := newSharedGuardFixture(t)
		a := g.hold("secret a", 100*time.Millisecond)
		b := g.hold("secret b", time.Minute)
		g.must(b, g.note("b"))
		err := g.do(a, g.never)
		g.wantErr(err, ErrFenced)
		g.wantErr(err, driver.ErrLost)
		g.wantLines("b")
	})
	t.Run("a holder that has a successor", func(t *testing.T) {
		t.Parallel()
		g := newSharedGuardFixture(t)
		a := g.hold("secret a", 100*time.Millisecond)
		g.hold("secret b", time.Minute)
		g.wantErr(g.do(a, g.never), driver.ErrLost)
	})
	t.Run("an expired lease without a successor", func(t *testing.T) {
		t.Parallel()
		g := newSharedGuardFixture(t)
		a := g.hold("secret a", 100*time.Millisecond)
		eventually(t, "expiry", func() bool {
			record, err := g.locker.Inspect(t.Context(), "job")
			return err == nil && record.State == driver.StateFree
		})
		g.wantErr(g.do(a, g.never), driver.ErrLost)
	})
	t.Run("a released lease", func(t *testing.T) {
		t.Parallel()
		g := newSharedGuardFixture(t)
		a := g.hold("secret a", time.Minute)
		if err := g.locker.Release(t.Context(), a.lease); err != nil {
			t.Fatal(err)
		}
		g.wantErr(g.do(a, g.never), driver.ErrLost)
	})
	t.Run("a holder that gets a successor while its function runs", func(t *testing.T) {
		t.Parallel()
		g := newSharedGuardFixture(t)
		a := g.hold("secret a", time.Minute)
		follow := func() { g.follow(a, "secret b") }
		g.wantErr(g.do(a, func(ctx context.Context) error {
			follow()
			return g.note("a")(ctx)
		}), driver.ErrLost)
		g.wantLines("")
	})
	t.Run("a holder whose lock is handed over while its function runs", func(t *testing.T) {
		t.Parallel()
		g := newSharedGuardFixture(t)
		a := g.hold("secret a", time.Minute)
		var b testHold
		g.wantErr(g.do(a, func(ctx context.Context) error {
			b = testHold{lease: handOver(t, g.locker, a.lease, request("job", "secret b")), ctx: t.Context()}
			return g.note("a")(ctx)
		}), driver.ErrLost)
		g.wantErr(g.do(a, g.never), driver.ErrLost)
		g.must(b, g.note("b"))
		g.wantErr(g.do(a, g.never), ErrFenced)
		g.wantLines("b")
	})
	t.Run("a hold that ended, whatever its function returns", func(t *testing.T) {
		t.Parallel()
		g := newSharedGuardFixture(t)
		a := g.hold("secret a", time.Minute)
		ctx, lose := context.WithCancelCause(t.Context())
		a.ctx = ctx
		g.wantErr(g.do(a, func(ctx context.Context) error {
			if err := g.note("a")(ctx); err != nil {
				return err
			}
			lose(driver.ErrLost)
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Second):
				t.Error("the function's context outlives the hold")
			}
			return nil
		}), driver.ErrLost)
		g.wantErr(g.do(a, g.never), driver.ErrLost)
		g.wantLines("")
	})
	t.Run("a hold that is over, although its context has not ended yet", func(t *testing.T) {
		t.Parallel()
		g := newSharedGuardFixture(t)
		a := g.hold("secret a", time.Minute)
		a.err = driver.ErrLost
		g.wantErr(g.do(a, g.note("a")), driver.ErrLost)
		g.wantLines("")
	})
	t.Run("a caller whose context ended", func(t *testing.T) {
		t.Parallel()
		g := newSharedGuardFixture(t)
		a := g.hold("secret a", time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		g.wantErr(g.guard.Do(ctx, a, func(ctx context.Context) error {
			cancel()
			return g.note("a")(ctx)
		}), context.Canceled)
		g.wantLines("")
	})
	t.Run("invalid arguments", func(t *testing.T) {
		t.Parallel()
		g := newSharedGuardFixture(t)
		for _, lease := range []driver.Lease{{Name: "job"}, {Name: "job", Token: 1 << 63}, {Token: 1}} {
			g.wantErr(g.do(testHold{lease: lease, ctx: t.Context()}, g.never), driver.ErrInvalid)
		}
		g.wantErr(g.do(nil, g.never), driver.ErrInvalid)
		g.wantErr(g.do(testHold{}, nil), driver.ErrInvalid)
		_, err := NewGuard(nil, g.journal.Database())
		g.wantErr(err, driver.ErrInvalid)
		_, err = NewGuard(g.locker, nil)
		g.wantErr(err, driver.ErrInvalid)
	})
	t.Run("a damaged fence", func(t *testing.T) {
		t.Parallel()
		g := newSharedGuardFixture(t)
		a := g.hold("secret a", time.Minute)
		upsert(t, g.journal.Database().Collection(FencesCollection), "job", docOf("$set", docOf("token", "9")))
		if err := g.do(a, g.never); err == nil || !strings.Contains(err.Error(), FencesCollection) {
			t.Errorf("got %v, want an error that names the collection", err)
		}
	})
	t.Run("a server without transactions", func(t *testing.T) {
		t.Parallel()
		g := newGuardFixture(t, mongotest.Standalone(t))
		a := g.hold("secret a", time.Minute)
		if err := g.do(a, g.never); err == nil || !strings.Contains(err.Error(), "replica set") {
			t.Errorf("got %v, want an error that says what is needed", err)
		}
	})
}

func TestGuardAborts(t *testing.T) {
	t.Parallel()
	g := newSharedGuardFixture(t)
	a := g.hold("secret a", time.Minute)
	mine := errors.New("mine")
	if err := g.do(a, func(ctx context.Context) error { return errors.Join(g.note("error")(ctx), mine) }); err == nil || err.Error() != "mine" {
		t.Errorf("got %v, want the function's own error", err)
	}
	func() {
		defer func() {
			if p := recover(); p != "oops" {
				t.Errorf("recovered %v", p)
			}
		}()
		_ = g.do(a, func(ctx context.Context) error {
			if err := g.note("panic")(ctx); err != nil {
				t.Error(err)
			}
			panic("oops")
		})
	}()
	err := g.do(a, func(ctx context.Context) error {
		if err := g.note("ended")(ctx); err != nil {
			return err
		}
		return mongo.SessionFromContext(ctx).AbortTransaction(ctx)
	})
	g.wantErr(err, errTransactionEnded)
	g.wantLines("")
	g.must(a, g.note("a"))
	g.wantLines("a")
}

// A guard inside the caller's own transaction has a transaction of its own.
func TestGuardIgnoresTheCallersSession(t *testing.T) {
	t.Parallel()
	g := newSharedGuardFixture(t)
	a := g.hold("secret a", time.Minute)
	session, err := g.journal.Database().Client().StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(t.Context())
	if err := session.StartTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := g.guard.Do(mongo.NewSessionContext(t.Context(), session), a, g.note("a")); err != nil {
		t.Fatal(err)
	}
	if err := session.AbortTransaction(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.wantLines("a")
}

// The guard's error matches the end of its own hold, not of another.
func TestGuardReportsWhichHoldEnded(t *testing.T) {
	t.Parallel()
	g := newSharedGuardFixture(t)
	a := g.hold("secret a", time.Minute)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fmt.Errorf("the outer hold: %w", driver.ErrLost))
	err := g.guard.Do(ctx, a, g.never)
	wantUnknown(t, err)
	if err == nil || !strings.Contains(err.Error(), "the outer hold") {
		t.Errorf("%v does not tell why", err)
	}
	a.ctx = ctx
	g.wantErr(g.do(a, g.never), driver.ErrLost)
	g.wantErr(g.guard.Do(ctx, a, g.never), driver.ErrLost)
}
