package mongo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// A server has only one fail point, so this test does not run in parallel with others.
func TestGuardRetries(t *testing.T) {
	serverprocess.Long(t, "waits for elections and frozen members")
	labels := func(labels ...any) bson.E { return bson.E{Key: "errorLabels", Value: bson.A(labels)} }
	for _, test := range []struct {
		name    string
		command string
		failure bson.D
		runs    int // of the function
	}{
		{"conflict in the function", "insert", bson.D{{Key: "errorCode", Value: 112}, labels(labelTransient)}, 2},
		{"connection lost in the function", "insert", bson.D{{Key: "closeConnection", Value: true}}, 2},
		{"raise unanswered", "findAndModify", bson.D{{Key: "closeConnection", Value: true}}, 1},
		{"conflict at the last write", "update", bson.D{{Key: "errorCode", Value: 112}, labels(labelTransient)}, 2},
		{"transaction gone at the commit", "commitTransaction", bson.D{{Key: "errorCode", Value: 251}, labels(labelTransient)}, 2},
		{"commit unanswered", "commitTransaction", bson.D{{Key: "closeConnection", Value: true}}, 1},
		{"commit refused for now", "commitTransaction", bson.D{{Key: "errorCode", Value: 189}, labels("RetryableWriteError")}, 1},
		{"commit applied, not acknowledged", "commitTransaction", bson.D{
			{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: 64}, {Key: "errmsg", Value: "waiting for replication timed out"}}},
		}, 1},
		{"commit takes too long", "commitTransaction", bson.D{{Key: "blockConnection", Value: true}, {Key: "blockTimeMS", Value: 400}}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := newSharedGuardFixture(t)
			a := g.hold("secret a", time.Minute)
			if test.name == "commit takes too long" { // only the commit has a short limit
				g.hooks.before("update "+FencesCollection, func() { g.guard.timeout = 200 * time.Millisecond })
			}
			failCommands(t, g, test.command, 2, test.failure) // the Go driver itself repeats some of these
			runs := 0
			g.must(a, func(ctx context.Context) error {
				runs++
				return g.note("a")(ctx)
			})
			if runs < test.runs || test.runs == 1 && runs > 1 {
				t.Errorf("the function was run %d times, want %d", runs, test.runs)
			}
			g.wantLines("a")
		})
	}

	for _, code := range []int{64, 79, 91, 100} {
		t.Run(fmt.Sprintf("unknown commit after write concern error %d", code), func(t *testing.T) {
			g := newSharedGuardFixture(t)
			g.guard.commitWindow = 1200 * time.Millisecond // a pause must not end it before the first commit
			a := g.hold("secret a", time.Minute)
			failCommands(t, g, "commitTransaction", 1000, bson.D{
				{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: code}, {Key: "errmsg", Value: "not acknowledged"}}},
			})
			ctx, cancel := context.WithCancel(t.Context())
			g.hooks.before("commitTransaction", cancel) // retries, although the caller's context has ended
			g.wantErr(g.guard.Do(ctx, a, g.note("a")), ErrInDoubt)
			g.wantLines("a")
		})
	}
}

// unacknowledged is a commit that is applied.
var unacknowledged = bson.D{{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: 64}, {Key: "errmsg", Value: "not acknowledged"}}}}

// A commit whose outcome is unknown is in doubt, whatever else happens: the loss of the hold does not
// mean that nothing was written, and neither does a refusal of the repeated commit.
func TestGuardUnknownCommit(t *testing.T) {
	t.Run("loss", func(t *testing.T) {
		g := newSharedGuardFixture(t)
		g.guard.commitWindow = 1200 * time.Millisecond
		a := g.hold("secret a", time.Minute)
		ctx, lose := context.WithCancelCause(t.Context())
		a.ctx = ctx
		failCommands(t, g, "commitTransaction", 1000, unacknowledged)
		g.hooks.before("commitTransaction", func() { lose(driver.ErrLost) })
		err := g.do(a, g.note("a"))
		g.wantErr(err, ErrInDoubt)
		if errors.Is(err, driver.ErrLost) {
			t.Errorf("%v matches ErrLost, which says that nothing was written", err)
		}
		g.wantLines("a")
	})
	again := append(bson.D{{Key: "errorLabels", Value: bson.A{"RetryableWriteError"}}}, unacknowledged...)
	refused := bson.D{{Key: "errorCode", Value: 20}}
	for name, answers := range map[string][2]bson.D{
		"refusal of the repeated commit":            {unacknowledged, refused},
		"refusal of the Go driver's own second try": {again, refused},
		"refusal for now of the Go driver's own second try": {again,
			{{Key: "errorCode", Value: 112}, {Key: "errorLabels", Value: bson.A{labelTransient}}}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newSharedGuardFixture(t)
			g.guard.commitWindow = 1200 * time.Millisecond
			a := g.hold("secret a", time.Minute)
			failCommands(t, g, "commitTransaction", 1000, answers[0])
			g.hooks.before("commitTransaction", func() {
				g.hooks.before("commitTransaction", func() { failCommands(t, g, "commitTransaction", 1000, answers[1]) })
			})
			g.wantErr(g.do(a, g.note("a")), ErrInDoubt)
			g.wantLines("a")
		})
	}
}

// A repeated commit that finds the connections closed is not sent, and the Go driver labels that as transient. It says nothing of the
// commit before, which was applied.
func TestGuardRepeatedCommitIsNotSent(t *testing.T) {
	var g *guardFixture
	var clears atomic.Bool
	client := options.Client().SetPoolMonitor(&event.PoolMonitor{Event: func(e *event.PoolEvent) {
		if e.Type == event.ConnectionCheckOutStarted && clears.Swap(false) {
			failCommands(t, g, "ping", 1, bson.D{{Key: "closeConnection", Value: true}})
			if err := g.journal.Database().RunCommand(t.Context(), docOf("ping", 1)).Err(); err == nil {
				t.Error("the connections were not closed")
			}
		}
	}})
	g = newGuardFixture(t, mongotest.URI(t), client)
	a := g.hold("secret a", time.Minute)
	failCommands(t, g, "commitTransaction", 1, unacknowledged)
	g.hooks.before("commitTransaction", func() { clears.Store(true) })
	runs := 0
	g.must(a, func(ctx context.Context) error {
		runs++
		return g.note("a")(ctx)
	})
	if runs != 1 || clears.Load() {
		t.Errorf("the function was run %d times", runs)
	}
	g.wantLines("a")
}

// An overloaded server refuses commands with labels that say that nothing was written. Do reports no success then.
func TestGuardOfAnOverloadedServer(t *testing.T) {
	for _, command := range []string{"findAndModify", "update", "commitTransaction"} {
		t.Run(command, func(t *testing.T) {
			g := newSharedGuardFixture(t)
			a := g.hold("secret a", time.Minute)
			failCommands(t, g, command, 1, bson.D{
				{Key: "errorCode", Value: 462}, {Key: "errorLabels", Value: bson.A{"SystemOverloadedError", "NoWritesPerformed"}},
			})
			err := g.do(a, g.note("a"))
			if committed := g.lines() == "a"; committed != (err == nil) {
				t.Errorf("committed: %v, but Do returned %v", committed, err)
			}
		})
	}
}

// No answer to a commit comes, and then no server is reachable. The error says that the commit is in doubt, too.
func TestGuardInDoubtWithoutAServer(t *testing.T) {
	t.Parallel()
	gate, l := openThroughGate(t, mongotest.URI(t))
	guard, err := NewGuard(l, l.majority.Database())
	if err != nil {
		t.Fatal(err)
	}
	guard.timeout, guard.commitWindow = time.Second, 3*time.Second // the first try of the commit repeats until its time limit
	hold := testHold{lease: acquire(t, l, longRequest("job", "holder")), ctx: bounded(t)}
	err = guard.Do(bounded(t), hold, func(ctx context.Context) error {
		gate.LoseAnswerTo("commitTransaction")
		_, err := l.majority.Database().Collection("journal").InsertOne(ctx, docOf("line", "a"))
		return err
	})
	for _, want := range []string{"the outcome of the commit is unknown", "no primary reachable"} {
		if !errors.Is(err, ErrInDoubt) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want ErrInDoubt and the text %q", err, want)
		}
	}
}

// failCommands makes the next commands of g's client fail that many times.
func failCommands(t *testing.T, g *guardFixture, command string, times int, failure bson.D) {
	t.Helper()
	mode := any("off")
	if times > 0 {
		mode = docOf("times", times)
		t.Cleanup(func() { failCommands(t, g, command, 0, nil) })
	}
	setFailPoint(t, mongotest.Connect(t, mongotest.URI(t)), mode,
		append(doc{field("failCommands", list{command}), field("appName", t.Name())}, failure...)...)
}

// TestGuardFaults shares one replica set among its server faults.
func TestGuardFaults(t *testing.T) {
	serverprocess.Long(t, "waits for elections and frozen members")
	t.Parallel()
	rs := mongotest.StartReplicaSet(t, mongotest.Options{})
	for _, test := range []struct {
		name  string
		fault func() (undo func() error, err error)
	}{
		{"primary steps down", func() (func() error, error) {
			return nil, rs.StepDown(t.Context())
		}},
		{"primary freezes", func() (func() error, error) {
			primary, err := rs.Primary(t.Context())
			if err != nil {
				return nil, err
			}
			return func() error { return rs.Resume(primary) }, rs.Pause(primary)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := newGuardFixture(t, rs.URI())
			g.guard.timeout = 2 * time.Second
			a := g.hold("secret a", time.Minute)
			runs := 0
			begin := time.Now()
			g.must(a, func(ctx context.Context) error {
				if err := g.note("a")(ctx); err != nil {
					return err
				}
				if runs++; runs > 1 {
					return nil
				}
				undo, err := test.fault()
				if undo != nil {
					t.Cleanup(func() {
						if err := undo(); err != nil {
							t.Error(err)
						}
					})
				}
				return err
			})
			t.Logf("committed after %v and %d runs", time.Since(begin).Round(time.Millisecond), runs)
			if runs < 2 {
				t.Error("the transaction survived, so the test shows nothing")
			}
			g.wantLines("a")
		})
	}
}
