package mongo

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// The cursors of all Lockers on one client leave a connection, and what is known of the client lasts as
// long as one of them uses it.
func TestCursorsLeaveAConnection(t *testing.T) {
	t.Parallel()
	client := &mongo.Client{}
	c, leave := connectionsOf(client, 3)
	other, leaveOther := connectionsOf(client, 0)
	if other != c {
		t.Fatal("two Lockers on one client do not share its connections")
	}
	var free []func()
	for range 2 {
		f, err := c.forCursor(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		free = append(free, f)
	}
	if missing := c.reserve(); missing != 4 {
		t.Errorf("for a third cursor %d connections must be shown, want 4", missing)
	}
	free[0]()
	free[0]()
	if missing := c.reserve(); missing != 0 {
		t.Error("the connection of a closed cursor is not free")
	}
	leave()
	leave()
	if again, leave := connectionsOf(client, 0); again != c {
		t.Error("one of two Lockers has taken the knowledge with it")
	} else {
		leave()
	}
	leaveOther()
	allConnections.mu.Lock()
	defer allConnections.mu.Unlock()
	if _, there := allConnections.byClient[client]; there {
		t.Error("the client is not forgotten")
	}
}

// Only a command that the primary has held shows a connection: one that another member answers, or that
// the primary answers at once because its role has changed, shows nothing.
func TestOnlyHeldCommandsShowConnections(t *testing.T) {
	t.Parallel()
	client := mongotest.Connect(t, mongotest.URI(t))
	reply, err := hello(bounded(t), client)
	if err != nil {
		t.Fatal(err)
	}
	now := reply.Lookup("topologyVersion")
	process, counter := now.Document().Lookup("processId").ObjectID(), now.Document().Lookup("counter").Int64()
	version := func(process bson.ObjectID, counter int64) bson.RawValue {
		return mustMarshal(docOf("v", doc{field("processId", process), field("counter", counter)})).Lookup("v")
	}
	for what, test := range map[string]struct {
		version bson.RawValue
		held    bool
	}{
		"the same state":   {now, true},
		"another process":  {version(bson.NewObjectID(), counter), false},
		"an earlier state": {version(process, counter-1), false},
		"no version":       {bson.RawValue{}, false},
	} {
		for _, ctx := range []context.Context{t.Context(), bounded(t)} { // with a time limit the reply is an error
			begin := time.Now()
			held, err := holdHello(ctx, client, test.version)
			if held != test.held || err != nil || held && time.Since(begin) < leastHeld {
				t.Errorf("%s: held %v after %v, %v", what, held, time.Since(begin), err)
			}
		}
	}
}

// A client shows as many connections as it has, and not one more.
func TestConnectionsAreShown(t *testing.T) {
	t.Parallel()
	for size := range uint64(4) {
		for _, server := range []string{mongotest.URI(t), mongotest.Standalone(t)} {
			client := mongotest.Connect(t, server, options.Client().SetMaxPoolSize(size+1))
			eventually(t, "all connections at the same time", func() bool { // a busy machine may be too slow
				err := showConnections(bounded(t), client, int(size)+1)
				if err != nil && !errors.Is(err, errFewConnections) {
					t.Fatal(err)
				}
				return err == nil
			})
			if err := showConnections(bounded(t), client, int(size)+2); !errors.Is(err, errFewConnections) {
				t.Errorf("%d connections showed one more: %v", size+1, err)
			}
		}
	}
}

// The way to a far server and back counts once, however many commands are under way.
func TestConnectionsToAFarServerAreShown(t *testing.T) {
	t.Parallel()
	at, err := url.Parse(mongotest.Standalone(t))
	if err != nil {
		t.Fatal(err)
	}
	at.Host = forward(t, at.Host, func(hello doc) doc {
		time.Sleep(55 * time.Millisecond)
		return hello
	})
	client := mongotest.Connect(t, at.String(), options.Client().SetMaxPoolSize(2))
	eventually(t, "both connections at the same time", func() bool { // a busy machine may be too slow
		err := showConnections(t.Context(), client, 2) // without a time limit, so that forward delays the replies
		if err != nil && !errors.Is(err, errFewConnections) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// A server that holds no command, since its replies to hello have no version, shows no connections.
func TestServerThatHoldsNothingShowsNoConnections(t *testing.T) {
	t.Parallel()
	at, err := url.Parse(mongotest.Standalone(t))
	if err != nil {
		t.Fatal(err)
	}
	at.Host = forward(t, at.Host, func(hello doc) doc {
		return slices.DeleteFunc(hello, func(e bson.E) bool { return e.Key == "topologyVersion" })
	})
	if err := showConnections(bounded(t), mongotest.Connect(t, at.String()), 2); !errors.Is(err, errFewConnections) {
		t.Error(err)
	}
}

// [Open] adds connections for waiting to those that the URL allows for commands.
func TestOpenMakesRoomForWaiting(t *testing.T) {
	t.Parallel()
	base := mongotest.Collection(t)
	for param, want := range map[string]uint64{"maxPoolSize=1": 2, "maxPoolSize=50": 51, "maxPoolSize=0": 0,
		"retryWrites=true": defaultPoolSize} {
		l, err := connect(urlOf(mongotest.URI(t), base, param), []Option{WithLogger(discard)})
		if err != nil {
			t.Fatal(err)
		}
		size := l.dial.MaxPoolSize
		if size == nil || *size != want {
			t.Errorf("%s: %v connections, want %d", param, size, want)
		}
		for range waitingConnections {
			if _, err := l.connections.forCursor(t.Context()); err != nil {
				t.Errorf("%s: %v", param, err)
			}
		}
		if err := errors.Join(l.disconnect(t.Context())); err != nil {
			t.Error(err)
		}
		l.cancel()
		l.leave()
	}
}

// [Open] has the Go driver close connections that were idle for as long as a firewall may need to forget them, unless the
// URL says when.
func TestOpenClosesIdleConnections(t *testing.T) {
	for param, want := range map[string]time.Duration{"": 30 * time.Second, "&maxIdleTimeMS=5000": 5 * time.Second, "&maxIdleTimeMS=0": 0} {
		l, err := connect("mongodb://127.0.0.1:1/app?directConnection=true"+param, []Option{WithLogger(discard)})
		if err != nil {
			t.Fatal(err)
		}
		if idle := l.dial.MaxConnIdleTime; idle == nil || *idle != want {
			t.Errorf("%q: connections may be idle for %v, want %v", param, idle, want)
		}
		if err := l.disconnect(t.Context()); err != nil {
			t.Error(err)
		}
		l.cancel()
		l.leave()
	}
}

// With maxPoolSize=1 in the URL hints are followed, and commands go on while the server holds the requests
// for hints. Behind a load balancer, too, where a cursor occupies its connection all the time.
func TestWaitingLeavesTheOnlyConnectionFree(t *testing.T) {
	t.Parallel()
	direct := mongotest.URI(t)
	reply, err := hello(bounded(t), mongotest.Connect(t, direct))
	if err != nil {
		t.Fatal(err)
	}
	balanced := "mongodb://" + loadBalancer(t, reply.Lookup("primary").StringValue()) + "/?loadBalanced=true"
	for what, uri := range map[string]string{"direct": direct, "load balancer": balanced} {
		t.Run(what, func(t *testing.T) { testTheOnlyConnection(t, uri) })
	}
}

func testTheOnlyConnection(t *testing.T, uri string) {
	t.Helper()
	base := mongotest.Collection(t)
	l, err := Open(bounded(t), urlOf(uri, base, "maxPoolSize=1", "commandTimeout=20s"), WithLogger(discard))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeLocker(t, l) })
	mine := acquire(t, l, longRequest("mine", "mine"))
	job := acquire(t, newTestLocker(t, base), longRequest("job", "holder"))
	c := newClient(t, l, holdfast.WithTTL(long))
	got := lockSoon(t, c, "job", hintsOnly)
	awaitFollowed(t, l, "job")
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		if _, err := l.Renew(bounded(t), mine); err != nil { // a request for hints takes longer than its time limit
			t.Fatal(err)
		}
	}
	if err := newTestLocker(t, base).Release(bounded(t), job); err != nil {
		t.Fatal(err)
	}
	if err := awaitHold(t, got, "by a hint").Release(bounded(t)); err != nil {
		t.Fatal(err)
	}
}

// Nothing waits in the server on the only connection of the program's client. A waiter polls.
func TestTheOnlyConnectionOfAProgram(t *testing.T) {
	t.Parallel()
	base := mongotest.Collection(t)
	seen := newCommandCounter()
	client := mongotest.Connect(t, mongotest.URI(t), options.Client().SetMaxPoolSize(1).SetMonitor(seen.monitor()))
	logger, log := locktest.NewLog()
	l := newTestLocker(t, through(client, base), WithLogger(logger))
	c := newClient(t, l)
	holder := newTestLocker(t, base)
	lease := acquire(t, holder, longRequest("job", "holder"))
	got := lockSoon(t, c, "job")
	eventually(t, "no hints", func() bool {
		return strings.Contains(log.String(), "no hints, waiters poll") && strings.Contains(log.String(), "is maxPoolSize too small")
	})
	if err := holder.Release(bounded(t), lease); err != nil {
		t.Fatal(err)
	}
	if err := awaitHold(t, got, "by polling").Release(bounded(t)); err != nil {
		t.Fatal(err)
	}
	if n := seen.count("getMore"); n > 0 {
		t.Errorf("%d commands that wait in the server were sent", n)
	}
}

// Several Lockers share a client with few connections. Some of them follow their hints, the others poll,
// and one connection stays free.
func TestLockersShareFewConnections(t *testing.T) {
	serverprocess.Long(t, "counts what many waiters ask in half a minute")
	t.Parallel()
	const size, lockers = 4, 5
	base := mongotest.Collection(t)
	seen := newCommandCounter()
	client := mongotest.Connect(t, mongotest.URI(t), options.Client().SetMaxPoolSize(size).SetMonitor(seen.monitor()))
	coll := through(client, base)
	mine := newTestLocker(t, coll, WithCommandTimeout(20*time.Second))
	lease := acquire(t, mine, longRequest("mine", "mine"))
	var all []*Locker
	for range lockers {
		l := newTestLocker(t, coll)
		all = append(all, l)
		defer l.Wake("job", me, func(driver.Wakeup) {})()
	}
	eventually(t, "cursors of some", func() bool {
		open, tried := 0, 0
		for _, l := range all {
			if l.queue.isOpen() {
				open++
			}
			if l.queue.isOpen() || !l.queue.usable() {
				tried++
			}
		}
		return open > 0 && tried == lockers
	})
	for range 20 {
		if _, err := mine.Renew(bounded(t), lease); err != nil {
			t.Fatal(err)
		}
	}
	if most := seen.maxAtOnce("getMore"); most == 0 || most > size-1 {
		t.Errorf("%d of %d connections were occupied by cursors at the same time", most, size)
	}
}

// An idle waiter sends its requests at the poll interval, and one for hints every 30 s.
func TestIdleWaiterSendsFewCommands(t *testing.T) {
	serverprocess.Long(t, "counts what many waiters ask in half a minute")
	t.Parallel()
	base := mongotest.Collection(t)
	holder, _ := newProcess(t, base, holdfast.WithTTL(30*time.Second))
	mustLock(t, holder, "job")
	coll, seen := monitoredCollection(t)
	coll = through(coll.Database().Client(), base)
	c, l := newProcess(t, coll, holdfast.WithTTL(30*time.Second))
	lockSoon(t, c, "job")
	awaitFollowed(t, l, "job")
	for range 4 {
		opened := l.queue.opened()
		seen.reset()
		time.Sleep(30 * time.Second)
		got := seen.all()
		if opened.IsZero() || !l.queue.opened().Equal(opened) || got["find"] > 0 {
			continue // the cursor was opened again, which costs more commands, or is being opened
		}
		// The intervals are 12 to 24 s and 30 s.
		if got["findAndModify"] > 3 || got["getMore"] > 2 {
			t.Errorf("in 30 s a waiter sent %v", got)
		}
		return
	}
	t.Error("a cursor was opened in each of the measurements")
}
