package mongo

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/mongotest"
	"github.com/holdfast-go/holdfast/internal/serverprocess"
)

// hasRoom reports whether so many requests for hints may occupy connections for long.
func (c *connections) hasRoom(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.room >= n
}

// Requests are long only if it is known that another command has a connection as well, and take
// turns otherwise.
func TestConnectionsAreLeftForCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &mongo.Client{}
		c, leave := connectionsOf(client, 0)
		begin := func() (time.Duration, func()) {
			t.Helper()
			await, end, err := c.begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return await, end
		}
		idle := c.commandSent()
		c.commandAnswered(idle) // it proves nothing: no request was under way
		await, end := begin()
		if await != hintAwaitOnly {
			t.Errorf("the first request may take %v", await)
		}
		limited, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := c.begin(limited); err == nil {
			t.Error("a second request was sent although it may take the last connection")
		}
		time.Sleep(checkOutTime)
		crossed := c.commandSent()
		end()
		_, end = begin()
		if c.commandAnswered(crossed); c.hasRoom(1) {
			t.Error("a command proves that there is room although the request beside it has ended")
		}
		early := c.commandSent()
		time.Sleep(checkOutTime)
		if c.commandAnswered(early); c.hasRoom(1) {
			t.Error("a command proves that there is room although it may have asked for its connection before the request")
		}
		beside := c.commandSent()
		if c.commandAnswered(beside); !c.hasRoom(1) || c.hasRoom(2) {
			t.Errorf("room for %d requests after a command was answered beside one", c.room)
		}
		end()
		await, endLong := begin()
		other, leaveOther := connectionsOf(client, 0)
		if other != c || await != hintAwait {
			t.Errorf("a request may take %v", await)
		}
		await, end = begin()
		if await != hintAwaitOnly {
			t.Errorf("a request for which there was no room may take %v", await)
		}
		waiting := make(chan time.Duration)
		go func() {
			await, end, _ := other.begin(t.Context())
			waiting <- await
			end()
		}()
		synctest.Wait()
		endLong()
		end()
		if await := <-waiting; await != hintAwait {
			t.Errorf("a request that has waited for room may take %v", await)
		}
		if c.reopened(); c.hasRoom(1) {
			t.Error("what was inferred holds for another member as well")
		}
		leave()
		leave()
		if again, leave := connectionsOf(client, 0); again != c {
			t.Error("one of two Lockers has taken the knowledge with it")
		} else {
			leave()
		}
		leaveOther()
		if _, there := allConnections.byClient[client]; there {
			t.Error("the client is not forgotten")
		}
	})
}

// A request does not wait for another's short one once it is known that there is room for both: a
// hint for its Locker would come up to a second late.
func TestRequestBeginsWhenThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, leave := connectionsOf(&mongo.Client{}, 0)
		defer leave()
		_, end, err := c.begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		began, done := make(chan time.Duration, 1), make(chan struct{})
		go func() {
			await, end, _ := c.begin(t.Context())
			began <- await
			<-done
			end()
		}()
		synctest.Wait()
		time.Sleep(checkOutTime)
		c.commandAnswered(c.commandSent())
		synctest.Wait()
		select {
		case await := <-began:
			if await != hintAwait {
				t.Errorf("it may take %v", await)
			}
		default:
			t.Error("it waits for the end of the other request")
		}
		end()
		close(done)
	})
}

// A command that times out beside a long request shows that there may be no room for it.
func TestTimeoutBesideALongRequest(t *testing.T) {
	for poolSize, long := range map[int]time.Duration{0: hintAwaitOnly, 2: hintAwait} {
		c, leave := connectionsOf(&mongo.Client{}, poolSize)
		defer leave()
		c.commandAnswered(sentBeside{requests: 1})
		c.commandTimedOut()
		_, end, err := c.begin(t.Context())
		if err != nil || !c.hasRoom(1) {
			t.Fatalf("pool size %d: a timeout beside no request took the room, %v", poolSize, err)
		}
		c.commandTimedOut()
		end()
		await, end, err := c.begin(t.Context())
		if err != nil || await != long {
			t.Errorf("pool size %d: after the timeout a request may take %v, %v", poolSize, await, err)
		}
		end()
	}
}

// Several Lockers share a client with few connections. Their requests for hints together leave one
// for renewals.
func TestLockersShareFewConnections(t *testing.T) {
	serverprocess.Long(t, "counts what many waiters ask in half a minute")
	t.Parallel()
	const size, lockers = 3, 5
	var mu sync.Mutex
	long, most := map[int64]bool{}, 0
	end := func(id int64) {
		mu.Lock()
		defer mu.Unlock()
		delete(long, id)
	}
	monitor := &event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if ms, _ := e.Command.Lookup("maxTimeMS").AsInt64OK(); e.CommandName == "getMore" && ms == hintAwait.Milliseconds() {
				mu.Lock()
				defer mu.Unlock()
				long[e.RequestID] = true
				most = max(most, len(long))
			}
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) { end(e.RequestID) },
		Failed:    func(_ context.Context, e *event.CommandFailedEvent) { end(e.RequestID) },
	}
	base := mongotest.Collection(t)
	client := mongotest.Connect(t, mongotest.URI(t), options.Client().SetMaxPoolSize(size).SetMonitor(monitor))
	coll := client.Database(base.Database().Name()).Collection(base.Name())
	mine := newTestLocker(t, coll)
	lease := acquire(t, mine, longRequest("mine", "mine"))
	for range lockers {
		l := newTestLocker(t, coll)
		defer l.Capabilities().Queue.Wait("job", func(time.Duration) {})()
		eventually(t, "an open cursor", l.queue.watcher.isOpen)
	}
	begin := time.Now()
	for n := 0; !mine.connections.hasRoom(size-1) || n < 5; n++ {
		sent := time.Now()
		if err := mine.Renew(bounded(t), lease); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(sent); took > hintAwait/2 {
			t.Errorf("a renewal took %v", took)
		}
		if time.Since(begin) > waitLimit {
			t.Fatal("the requests for hints never became long")
		}
		time.Sleep(50 * time.Millisecond)
	}
	for range 5 { // meanwhile all that may be long become so
		if err := mine.Renew(bounded(t), lease); err != nil {
			t.Fatal(err)
		}
		time.Sleep(hintAwaitOnly / 5)
	}
	mu.Lock()
	defer mu.Unlock()
	if most == 0 || most > size-1 {
		t.Errorf("%d of %d connections were occupied for long at the same time", most, size)
	}
}

// A refused request is an answer as well: a process that only waits sends no others.
func TestRefusalsShowThatThereIsRoom(t *testing.T) {
	t.Parallel()
	base := mongotest.Collection(t)
	acquire(t, newTestLocker(t, base), longRequest("job", "holder"))
	l := newTestLocker(t, base)
	defer l.Capabilities().Queue.Wait("job", func(time.Duration) {})()
	eventually(t, "an open cursor", l.queue.watcher.isOpen)
	l.connections.reopened() // what was answered while the Locker was made does not count
	eventually(t, "a refused request beside a request for hints", func() bool {
		wantHeld(t, l, request("job", "another"))
		return l.connections.hasRoom(1)
	})
}

// An idle waiter sends its requests at the poll interval, and one for hints every 30 s.
func TestIdleWaiterSendsFewCommands(t *testing.T) {
	serverprocess.Long(t, "counts what many waiters ask in half a minute")
	t.Parallel()
	base := mongotest.Collection(t)
	holder, _ := newProcess(t, base, holdfast.WithTTL(30*time.Second))
	mustLock(t, holder, "job")
	coll, seen := monitoredCollection(t)
	coll = coll.Database().Client().Database(base.Database().Name()).Collection(base.Name())
	c, l := newProcess(t, coll, holdfast.WithTTL(30*time.Second))
	lockSoon(t, c, "job")
	awaitFollowed(t, l, "job")
	for range 4 {
		opened := l.queue.watcher.opened()
		eventually(t, "another command beside a request for hints", func() bool {
			wantHeld(t, l, request("job", "another"))
			return l.connections.hasRoom(1)
		})
		time.Sleep(2 * hintAwaitOnly) // the short request has ended
		seen.reset()
		time.Sleep(30 * time.Second)
		got := seen.all()
		if opened.IsZero() || !l.queue.watcher.opened().Equal(opened) {
			continue // the cursor was opened again, which costs more commands
		}
		// The intervals are 12 to 24 s and 30 s.
		if got["findAndModify"] > 3 || got["getMore"] > 2 || got["find"] > 0 {
			t.Errorf("in 30 s a waiter sent %v", got)
		}
		return
	}
	t.Error("the cursor was opened again in each of the measurements")
}
