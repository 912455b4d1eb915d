package mongo

import (
	"context"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// openThroughGate opens a Locker whose client knows one member, the primary, at the address of a gate.
func openThroughGate(t *testing.T, direct string) (*locktest.Gate, *Locker) {
	t.Helper()
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := hello(bounded(t), mongotest.Connect(t, direct))
	if err != nil {
		t.Fatal(err)
	}
	g := locktest.NewGate(t, reply.Lookup("primary").StringValue())
	u.Host, u.Path = g.Addr, "/"+mongotest.Collection(t).Database().Name()
	query := u.Query()
	query.Del("replicaSet")
	query.Set("directConnection", "true")
	u.RawQuery = query.Encode()
	l, err := Open(bounded(t), u.String(), WithLogger(discard))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeLocker(t, l) })
	return g, l
}

// A command for which no server can be selected was not sent.
func TestDeadAddress(t *testing.T) {
	t.Parallel()
	g, l := openThroughGate(t, mongotest.URI(t))
	g.CheckDeadAddress(t, l, 3*time.Second)
}

// The Go driver repeats a command whose answer was lost. That no server can be selected for the repetition says nothing of the
// first try.
func TestLostAnswerIsInDoubt(t *testing.T) {
	t.Parallel()
	g, l := openThroughGate(t, mongotest.URI(t))
	direct := newTestLocker(t, mongotest.Connect(t, mongotest.URI(t)).Database(l.majority.Database().Name()).Collection(l.majority.Name()))
	g.CheckLostAnswer(t, l, direct, request("lost answer", "a"))
	if _, err := l.TryAcquire(bounded(t), request("next", "b")); !driver.NotSent(err) {
		t.Errorf("the next request: %v: not sent: %v", err, driver.NotSent(err))
	}
}

// The server has applied a request, and the Go driver has repeated it: the answer is the stored document, so the driver asks again. That
// no server can be selected for that says nothing of the request before.
func TestRequestAfterARepetitionIsInDoubt(t *testing.T) {
	t.Parallel()
	v := newVictimServer(t)
	u, err := url.Parse(v.rs.URI())
	if err != nil {
		t.Fatal(err)
	}
	g := locktest.NewGate(t, u.Host)
	var answers atomic.Int32
	gone := make(chan struct{}, 100)
	client := mongotest.Connect(t, "mongodb://"+g.Addr+"/?directConnection=true&appName=victim&serverSelectionTimeoutMS=1000",
		options.Client().SetServerMonitor(&event.ServerMonitor{ServerDescriptionChanged: func(e *event.ServerDescriptionChangedEvent) {
			if e.NewDescription.Kind == "Unknown" && e.PreviousDescription.Kind != "Unknown" {
				gone <- struct{}{}
			}
		}}).SetMonitor(&event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			if e.CommandName == "findAndModify" && answers.Add(1) == 2 { // that to the repetition
				g.Close()
				<-gone
			}
		}}))
	l := newTestLocker(t, through(client, v.base))
	answers.Store(0)
	v.fail(t, docOf("times", 1), list{"findAndModify"}, field("errorLabels", list{"RetryableWriteError"}),
		field("writeConcernError", doc{field("code", codeWriteConcernTimeout), field("errmsg", "timed out")}))
	_, err = l.TryAcquire(bounded(t), request("n", "a"))
	if err == nil || driver.OutcomeKnown(err) || driver.NotSent(err) || unreachable(err) == nil {
		t.Errorf("%v: not sent: %v; want that no server can be selected, and an unknown outcome", err, driver.NotSent(err))
	}
	if r := inspect(t, newTestLocker(t, v.base), "n"); r.State != driver.StateHeld {
		t.Errorf("the lock is %v, want it held", r.State)
	}
}
