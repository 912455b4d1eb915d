package mongo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/guard"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

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

// The fence and the lock are written and read with a majority, whatever the program's client does:
// what one member alone has can be gone after a change of the primary.
func TestGuardConcerns(t *testing.T) {
	t.Parallel()
	log := &commandLog{}
	client := mongotest.Connect(t, mongotest.URI(t), options.Client().SetMonitor(log.monitor()).
		SetWriteConcern(writeconcern.W1()).SetReadConcern(readconcern.Local()).SetReadPreference(readpref.Nearest()))
	coll := mongotest.CollectionOf(t, client)
	locker := newTestLocker(t, coll)
	lease := acquire(t, locker, request("job", "a"))
	guard, err := NewGuard(locker, coll.Database())
	if err != nil {
		t.Fatal(err)
	}
	log.take()
	if err := guard.Do(t.Context(), testHold{lease: lease, ctx: t.Context()}, func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	sent := log.take()
	for command, concern := range map[string][]string{
		"findAndModify":     {"writeConcern", "w"},
		"commitTransaction": {"writeConcern", "w"},
		"find":              {"readConcern", "level"}, // the one outside the transaction
	} {
		found := false
		for _, c := range sent {
			if _, err := c.LookupErr(command); err != nil {
				continue
			}
			value, _ := c.Lookup(concern...).StringValueOK()
			found = found || value == "majority"
			if preference, ok := c.Lookup("$readPreference", "mode").StringValueOK(); ok && preference != "primary" {
				t.Errorf("%s goes to %s", command, preference)
			}
		}
		if !found {
			t.Errorf("no %s has the %s majority: %v", command, concern[0], sent)
		}
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
	if err := g.do(a, func(ctx context.Context) error { return errors.Join(g.note("error")(ctx), mine) }); err == nil ||
		err.Error() != "mine" {
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
	g.wantErr(err, guard.ErrTransactionEnded)
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

// wrapping is a Locker that wraps one of this driver.
type wrapping struct{ driver.Locker }

func (w wrapping) Unwrap() driver.Locker { return w.Locker }

func TestGuardOfAWrappedLocker(t *testing.T) {
	t.Parallel()
	l, c := &Locker{}, mongotest.Collection(t)
	l.majority = c
	if _, err := NewGuard(wrapping{wrapping{l}}, c.Database()); err != nil {
		t.Error(err)
	}
	if _, err := NewGuard(wrapping{nil}, c.Database()); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("nothing wrapped: %v", err)
	}
}
