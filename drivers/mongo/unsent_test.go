package mongo

import (
	"net/url"
	"testing"
	"time"

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
