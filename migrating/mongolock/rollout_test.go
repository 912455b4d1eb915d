package mongolock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	locks "github.com/holdfast-go/holdfast/drivers/mongo"
	"github.com/holdfast-go/holdfast/migrating"
	"github.com/holdfast-go/holdfast/migrating/mongolock"
	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
	"github.com/holdfast-go/holdfast/test/testservers"
)

// holdWithin is how long the next hold of a fleet may take on a busy machine.
const holdWithin = 2 * time.Minute

// fleet is some programs that take the same lock again and again.
type fleet struct {
	t     *testing.T
	held  atomic.Int64
	stops []func()
}

// hasHeld counts a hold, and reports one that was not alone.
func (f *fleet) hasHeld(alone bool, who string) {
	if !alone {
		f.t.Errorf("%s held the lock together with others", who)
	}
	f.held.Add(1)
}

// waitFor waits until the fleets have held the lock more often.
func waitFor(t *testing.T, phase string, more int64, fleets ...*fleet) {
	t.Helper()
	var before []int64
	for _, f := range fleets {
		before = append(before, f.held.Load())
	}
	for i, f := range fleets {
		for last, deadline := before[i], time.Now().Add(holdWithin); ; time.Sleep(5 * time.Millisecond) {
			now := f.held.Load()
			if now >= before[i]+more {
				break
			}
			if now > last {
				last, deadline = now, time.Now().Add(holdWithin)
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: fleet %d held the lock %d times, want %d, and did not for %v", phase, i, now-before[i], more, holdWithin)
			}
		}
	}
}

func (f *fleet) stop() {
	for _, stop := range f.stops {
		stop()
	}
	f.stops = nil
}

// oldFleet starts programs in Python that are not migrated.
func oldFleet(t *testing.T, c *mongo.Collection, style string, n int) *fleet {
	t.Helper()
	path, err := testservers.PyMongo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t}
	for i := range n {
		p := exec.Command("python3", "testdata/old.py", mongotest.URI(t), c.Database().Name(), style, "job", fmt.Sprintf("old-%d", i))
		p.Env = append(os.Environ(), "PYTHONPATH="+path, "PYTHONDONTWRITEBYTECODE=1")
		in, out := serverprocess.Piped(t, p)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for lines := bufio.NewScanner(out); lines.Scan(); {
				f.hasHeld(lines.Text() == "held", p.Args[len(p.Args)-1]+": "+lines.Text())
			}
		}()
		f.stops = append(f.stops, sync.OnceFunc(func() {
			_ = in.Close()
			<-ended
			if err := p.Wait(); err != nil {
				t.Errorf("%v: %v", p.Args, err)
			}
		}))
	}
	t.Cleanup(f.stop)
	return f
}

// newFleet starts clients in this process, each with a Locker of its own.
func newFleet(t *testing.T, c *mongo.Collection, what string, n int, locker func() driver.Locker) *fleet {
	t.Helper()
	f := &fleet{t: t}
	for i := range n {
		who := fmt.Sprintf("%s-%d", what, i)
		client, err := holdfast.New(locker(), holdfast.WithOwner(who))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for ctx.Err() == nil {
				h, err := client.TryLock(ctx, "job")
				switch {
				case err == nil:
					f.hasHeld(work(t, c), who)
					if err := h.Release(context.Background()); err != nil {
						t.Errorf("%s: %v", who, err)
					}
				case !errors.Is(err, holdfast.ErrHeld) && ctx.Err() == nil:
					t.Errorf("%s: %v", who, err)
				}
				time.Sleep(20*time.Millisecond + rand.N(60*time.Millisecond))
			}
		}()
		f.stops = append(f.stops, sync.OnceFunc(func() {
			cancel()
			<-ended
			if err := client.Shutdown(context.Background()); err != nil {
				t.Errorf("%s: %v", who, err)
			}
		}))
	}
	t.Cleanup(f.stop)
	return f
}

// work reports whether nobody else was at work at its beginning. The others count in the same document.
func work(t *testing.T, c *mongo.Collection) bool {
	inside := c.Database().Collection("inside")
	var found struct{ N int }
	count := func(by int) {
		if err := inside.FindOneAndUpdate(context.Background(), bson.M{"_id": "n"}, bson.M{"$inc": bson.M{"n": by}},
			options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Decode(&found); err != nil {
			t.Error(err)
		}
	}
	count(1)
	alone := found.N == 1
	time.Sleep(rand.N(30 * time.Millisecond))
	count(-1)
	return alone
}

// A fleet moves in two rollouts. In every phase all fleets make progress, and no two programs hold
// the lock together.
func TestRollout(t *testing.T) {
	serverprocess.Long(t, "needs many processes")
	for style, schema := range map[string]mongolock.Schema{
		"shedlock": mongolock.ShedLock(),
		"expiry":   {Until: "expiresAt", Owner: "holder", DeleteOnRelease: true},
		"insert":   {Until: "expiresAt", Owner: "holder", HeldWhilePresent: true},
	} {
		t.Run(style, func(t *testing.T) {
			t.Parallel()
			c := mongotest.Collection(t)
			schema.Skew = 5 * time.Millisecond // one clock
			old := newLock(t, c.Database().Collection("old"), schema)
			newOnly := func() driver.Locker {
				l, err := locks.New(t.Context(), c.Database().Collection("new"))
				if err != nil {
					t.Fatal(err)
				}
				return l
			}
			both := func() driver.Locker {
				l, err := migrating.New(newOnly(), old)
				if err != nil {
					t.Fatal(err)
				}
				return l
			}
			const enough = 5
			oldOnes := oldFleet(t, c, style, 2)
			waitFor(t, "old", enough, oldOnes)
			bothOnes := newFleet(t, c, "both", 2, both)
			waitFor(t, "old and both", enough, oldOnes, bothOnes)
			oldOnes.stop()
			waitFor(t, "both", enough, bothOnes)
			newOnes := newFleet(t, c, "new", 2, newOnly)
			waitFor(t, "both and new", enough, bothOnes, newOnes)
			bothOnes.stop()
			waitFor(t, "new", enough, newOnes)
			newOnes.stop()
		})
	}
}
