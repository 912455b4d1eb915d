package mongo

import (
	"context"
	"errors"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// connections counts the cursors that all Lockers on one client of the Go driver wait on. A cursor that
// waits in the server occupies a connection nearly always. A renewal must not wait for it, so a cursor is
// opened only if another connection is left for commands.
//
// The client has as many connections to each server. [Open] sets their number. That of the program's own
// client cannot be read, so it is shown by commands that are under way at the same time; see
// showConnections.
type connections struct {
	client *mongo.Client

	mu      sync.Mutex // guards the fields below; never held across I/O
	lockers int        // that use it
	shown   int        // the client has at least so many connections to each server
	cursors int        // that may occupy one of them each
}

// allConnections has the connections of each client, while a Locker uses it.
var allConnections = struct {
	mu       sync.Mutex
	byClient map[*mongo.Client]*connections
}{byClient: map[*mongo.Client]*connections{}}

// connectionsOf returns the connections of a client until leave is called. poolSize is how many it has to
// each server, or 0 if that is unknown.
func connectionsOf(client *mongo.Client, poolSize int) (c *connections, leave func()) {
	allConnections.mu.Lock()
	defer allConnections.mu.Unlock()
	c = allConnections.byClient[client]
	if c == nil {
		c = &connections{client: client, shown: poolSize}
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

// forCursor reserves a connection for a cursor, until free is called. It fails with errFewConnections if
// none would be left for commands.
func (c *connections) forCursor(ctx context.Context) (free func(), err error) {
	for {
		missing := c.reserve()
		if missing == 0 {
			return sync.OnceFunc(c.free), nil
		}
		if err := showConnections(ctx, c.client, missing); err != nil {
			return nil, err
		}
		c.noteShown(missing)
	}
}

// reserve reserves a connection. Otherwise it returns how many must be shown first.
func (c *connections) reserve() (missing int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if needed := c.cursors + 2; needed > c.shown {
		return needed
	}
	c.cursors++
	return 0
}

func (c *connections) free() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cursors--
}

func (c *connections) noteShown(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown = max(c.shown, n)
}

// errFewConnections also ends an attempt on a machine that was too busy to see that there are more.
var errFewConnections = errors.New("the client has no connection to spare for waiting; is maxPoolSize too small?")

// showTime is how long the server holds each command of showConnections. A client with a single
// connection does nothing else for a multiple of it.
const showTime = 100 * time.Millisecond

// leastHeld is how long the server holds such a command at least. Its clock may be late when it begins to hold one, which then is
// answered sooner: after 99.7 ms, as was seen, or a few milliseconds less.
const leastHeld = 7 * showTime / 8

// showConnections shows that the client has n connections to a server. It sends n commands each of which
// the primary holds for showTime. If all are answered before it can have held two of them one after the other, they were
// under way at the same time, each on a connection of its own. Commands of the program, and a long way to the server, can only
// make this fail.
func showConnections(ctx context.Context, client *mongo.Client, n int) error {
	const tries = 3 // the first one may have to make connections
	for range tries {
		reply, err := hello(ctx, client)
		if err != nil {
			return err
		}
		version := reply.Lookup("topologyVersion")
		begin := time.Now()
		held, errs := make([]bool, n), make([]error, n)
		var sending sync.WaitGroup
		for i := range n {
			sending.Go(func() { held[i], errs[i] = holdHello(ctx, client, version) })
		}
		sending.Wait()
		took := time.Since(begin)
		if err := errors.Join(errs...); err != nil {
			return err
		}
		if !slices.Contains(held, false) && took < 2*leastHeld {
			return nil
		}
	}
	return errFewConnections
}

// holdHello has the server hold a command for showTime. Only the process that has given the version does
// so, and only if its role does not change meanwhile. It then replies with the same version or, if the
// command has a time limit, even a longer one, with an error.
func holdHello(ctx context.Context, client *mongo.Client, version bson.RawValue) (held bool, err error) {
	if version.IsZero() {
		return false, nil
	}
	reply, err := hello(ctx, client, field("topologyVersion", version), field("maxAwaitTimeMS", showTime.Milliseconds()))
	if hasCode(err, codeMaxTimeMSExpired) {
		return ctx.Err() == nil, nil
	}
	return reply.Lookup("topologyVersion").Equal(version), err
}

// maxIdle is how long a connection of [Open]'s client may be idle. A firewall or load balancer forgets idle connections
// without a word, some after a few minutes. A pool full of them costs a renewal one time limit after the other, until the lease is
// lost. It is longer than the usual interval of renewals, so that these find a connection that is logged in.
const maxIdle = 30 * time.Second

// longestIdle is from when on firewalls are known to have forgotten a connection.
const longestIdle = 4 * time.Minute

// closeIdle has a client that is not yet connected close idle connections, unless the URL says when.
func closeIdle(client *options.ClientOptions) {
	if client.MaxConnIdleTime == nil {
		client.SetMaxConnIdleTime(maxIdle)
	}
}

// waitingConnections is how many cursors a Locker waits on: one, on its hints.
const waitingConnections = 1

// defaultPoolSize is that of the Go driver.
const defaultPoolSize = 100

// makeRoom has a client that is not yet connected make connections for waiting beside those for commands,
// and returns their number. Each server has as many.
func makeRoom(client *options.ClientOptions) (poolSize int) {
	switch size := client.MaxPoolSize; {
	case size == nil:
		return defaultPoolSize
	case *size == 0 || *size >= math.MaxInt-waitingConnections: // no limit
		return math.MaxInt
	default:
		client.SetMaxPoolSize(*size + waitingConnections)
		return int(*size) + waitingConnections
	}
}

// The server logs a connection out when its user is dropped, also if one of the same name is made at once. It then
// answers every command of this connection that it requires authentication, forever: the Go driver logs in only when it
// makes a connection. That is not a missing privilege, which has the same code.

// sockets are the connections of a client that [Open] made and that logs in. The Go driver replaces one that is closed.
type sockets struct {
	dialer net.Dialer

	mu   sync.Mutex // never held across I/O
	open map[*socket]time.Time
}

// watchSockets has a client that is not yet connected make its connections by the result. It returns nil for a client
// that does not log in.
func watchSockets(client *options.ClientOptions) *sockets {
	if client.Auth == nil || client.Dialer != nil {
		return nil
	}
	s := &sockets{open: map[*socket]time.Time{}}
	client.SetDialer(s)
	return s
}

// DialContext implements [options.ContextDialer].
func (s *sockets) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := s.dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	made := &socket{conn, s}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[made] = time.Now()
	return made, nil
}

// closeOlder closes the connections that were made before the time. Later ones have logged in since.
func (s *sockets) closeOlder(than time.Time) {
	var older []*socket
	s.mu.Lock()
	for c, made := range s.open {
		if made.Before(than) {
			older = append(older, c)
		}
	}
	s.mu.Unlock()
	for _, c := range older {
		_ = c.Close() // the Go driver notices it
	}
}

type socket struct {
	net.Conn
	of *sockets
}

// Close closes the connection, which its owner may have done already.
func (c *socket) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
