package mongo

import (
	"context"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// hintAwait is how long the server holds a request for hints. The request occupies a connection for
// so long. A request that may occupy the last connection is short: a renewal must not wait for it.
const (
	hintAwait     = 30 * time.Second
	hintAwaitOnly = time.Second
)

// checkOutTime is how long after its beginning a request is certain to have asked for its connection.
// The Go driver does not report when it does.
const checkOutTime = 100 * time.Millisecond

// connections decides how long the requests for hints of all Lockers on one client of the Go driver
// may occupy its connections. The size of the client's pool is unknown, unless the Locker has made
// the client. It is inferred: if another command was answered while n requests were under way, the
// pool has room for n of them and a command. So many may be long. Of the others only one is sent at a
// time, and it is short. A command that times out beside a long request ends what was inferred.
type connections struct {
	turn chan struct{} // capacity 1: has a value while a short request is under way

	mu       sync.Mutex // guards the fields below; never held across I/O
	lockers  int        // that use it
	known    bool       // room is known from the size of the pool
	room     int        // for requests, beside a command
	underWay map[*hintRequest]struct{}
	long     int           // of these
	ended    int           // requests, ever
	roomier  chan struct{} // closed and replaced when another long request may begin
}

// hintRequest is one request for hints.
type hintRequest struct {
	begun time.Time
	long  bool
}

// allConnections has the connections of each client, while a Locker uses it.
var allConnections = struct {
	mu       sync.Mutex
	byClient map[*mongo.Client]*connections
}{byClient: map[*mongo.Client]*connections{}}

// connectionsOf returns the connections of a client until leave is called. poolSize is that of its
// pool, or 0 if it is unknown.
func connectionsOf(client *mongo.Client, poolSize int) (c *connections, leave func()) {
	allConnections.mu.Lock()
	defer allConnections.mu.Unlock()
	c = allConnections.byClient[client]
	if c == nil {
		c = &connections{turn: make(chan struct{}, 1), known: poolSize > 0, room: max(poolSize-1, 0), underWay: map[*hintRequest]struct{}{}, roomier: make(chan struct{})}
		allConnections.byClient[client] = c
	}
	c.lockers++
	return c, sync.OnceFunc(func() {
		allConnections.mu.Lock()
		defer allConnections.mu.Unlock()
		if c.lockers--; c.lockers == 0 {
			delete(allConnections.byClient, client)
		}
	})
}

// begin waits until a request for hints may be sent, and returns how long the server may hold it.
// end must be called after the request.
func (c *connections) begin(ctx context.Context) (await time.Duration, end func(), err error) {
	for {
		r, roomier := c.startLong()
		if r != nil {
			return hintAwait, func() { c.end(r) }, nil
		}
		select {
		case c.turn <- struct{}{}:
			r := c.startShort()
			return hintAwaitOnly, func() { c.end(r); <-c.turn }, nil
		case <-roomier: // or the hints of this Locker would wait until the short request of another has ended
		case <-ctx.Done():
			return 0, nil, ctx.Err()
		}
	}
}

// startLong begins a long request. Without room for it, it returns a channel that is closed when there
// may be room.
func (c *connections) startLong() (r *hintRequest, roomier <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.long >= c.room {
		return nil, c.roomier
	}
	c.long++
	return c.newRequest(true), nil
}

func (c *connections) startShort() *hintRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newRequest(false)
}

// newRequest must be called with the mutex.
func (c *connections) newRequest(long bool) *hintRequest {
	r := &hintRequest{begun: time.Now(), long: long}
	c.underWay[r] = struct{}{}
	return r
}

// announceRoom must be called with the mutex.
func (c *connections) announceRoom() {
	close(c.roomier)
	c.roomier = make(chan struct{})
}

func (c *connections) end(r *hintRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.long {
		c.long--
		c.announceRoom()
	}
	delete(c.underWay, r)
	c.ended++
}

// reopened forgets what was inferred, since each member of a replica set has a pool of its own: the
// commands that were answered may have gone to another member than the requests.
func (c *connections) reopened() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		c.room = 0
	}
}

// sentBeside has the requests that had asked for their connections when a command was sent, and how
// many had ended.
type sentBeside struct{ requests, ended int }

// commandSent notes that a command is sent. A request that has just begun does not count: the command
// may ask for a connection first.
func (c *connections) commandSent() sentBeside {
	c.mu.Lock()
	defer c.mu.Unlock()
	beside := sentBeside{ended: c.ended}
	for r := range c.underWay {
		if time.Since(r.begun) >= checkOutTime {
			beside.requests++
		}
	}
	return beside
}

// commandAnswered notes that the command was answered, be it by a refusal. It had a connection while
// those requests had theirs, because connections are assigned in the order in which they are asked
// for.
func (c *connections) commandAnswered(beside sentBeside) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == beside.ended && c.room < beside.requests {
		c.room = beside.requests
		c.announceRoom()
	}
}

// commandTimedOut notes that a command was not answered in time. If a request is long, it may have the
// connection that the command needed.
func (c *connections) commandTimedOut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known && c.long > 0 {
		c.room = 0
	}
}
