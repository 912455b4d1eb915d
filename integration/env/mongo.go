package env

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/internal/mongotest"
)

// MongoOptions of a replica set. The zero value is three members with quick
// elections.
type MongoOptions struct {
	// Members is how many members it has; 0 means 3.
	Members int
	// Arbiter makes the last member an arbiter, which votes and has no data.
	Arbiter bool
	// NoChaining has every secondary follow the primary. One that follows a frozen
	// secondary falls behind with it, and no majority acknowledges a write.
	NoChaining bool
	// Args are further arguments for every mongod.
	Args []string
	// TTLMonitorSecs is how long the TTL thread sleeps between its rounds; 0 means 1.
	TTLMonitorSecs int
	// ElectionTimeout is how long the others wait for a silent primary; 0 means one
	// second. MongoDB's own default is ten.
	ElectionTimeout time.Duration
	// FakeClock makes SetClock possible.
	FakeClock bool
}

func (o MongoOptions) testing() mongotest.Options {
	return mongotest.Options{
		Members: o.Members, Arbiter: o.Arbiter, Args: o.Args,
		TTLMonitor: o.TTLMonitorSecs, ElectionTimeout: o.ElectionTimeout, NoChaining: o.NoChaining,
	}
}

// Mongo is a replica set. Members are numbered from 0. Faults return when they
// have come into effect, or an error that is [ErrUnsupported]; [Check] takes both.
// Its methods are safe for concurrent use, but for two faults of one member at
// the same time.
type Mongo struct {
	uri     string
	hosts   []string
	shared  bool           // it outlives the test
	set     *mongotest.Set // nil for the user's own
	members members        // nil for the user's own
}

// members are the servers of a replica set.
type members interface {
	kill(ctx context.Context, member int) error
	restart(ctx context.Context, member int) error
	pause(ctx context.Context, member int) error
	resume(ctx context.Context, member int) error
	cutOff(ctx context.Context, member int) error
	rejoin(ctx context.Context, member int) error
	outside(ctx context.Context, member int) (host string, err error)
	setClock(ctx context.Context, member int, offset time.Duration) error
	remove() error
}

// sets has a value for each replica set that a test has of its own: however many tests
// run in parallel, the servers must keep up with their own elections.
var sets = make(chan struct{}, 3)

// StartMongo starts a replica set for this test alone and removes it at the end. It
// waits while three other tests have one.
func StartMongo(tb testing.TB, opts MongoOptions) *Mongo {
	tb.Helper()
	if run.mode == Endpoints {
		skip(tb, "it disturbs servers, which is not done to a user's own: containers or processes are needed")
	}
	sets <- struct{}{}
	tb.Cleanup(func() { <-sets })
	m, err := newMongo(tb.Context(), tb.TempDir(), tb.Name(), opts)
	Check(tb, err)
	tb.Cleanup(func() {
		if err := m.members.remove(); err != nil {
			tb.Error(err)
		}
	})
	use()
	return m
}

// SharedMongo is a replica set of three that all tests of the package share. They
// disturb it only through proxies of their own.
func SharedMongo(tb testing.TB) *Mongo {
	tb.Helper()
	return run.mongo.get(tb, func() (*Mongo, func() error, error) {
		if run.mode == Endpoints {
			uri := os.Getenv(mongotest.EnvURI)
			if uri == "" {
				return nil, nil, fmt.Errorf("%w: %s is not set", ErrUnsupported, mongotest.EnvURI)
			}
			hosts, err := userHosts(uri)
			return &Mongo{uri: uri, hosts: hosts, shared: true}, nil, err
		}
		// An election in the middle of a test, because the machine is busy, would
		// be of use to none of them.
		m, err := newMongo(context.Background(), run.dir, "shared", MongoOptions{ElectionTimeout: 10 * time.Second})
		if err != nil {
			return nil, nil, err
		}
		m.shared = true
		return m, m.members.remove, nil
	})
}

// userHosts asks the user's own servers for the members' addresses.
func userHosts(uri string) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Disconnect(ctx) }()
	var hello struct{ Hosts []string }
	err = client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello)
	if err == nil && len(hello.Hosts) == 0 {
		err = errors.New("it is not a replica set")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", mongotest.EnvURI, err)
	}
	return hello.Hosts, nil
}

func newMongo(ctx context.Context, dir, name string, opts MongoOptions) (*Mongo, error) {
	start := newMongoContainers
	if run.mode == Processes {
		start = newMongoProcesses
	}
	set, servers, err := start(ctx, dir, name, opts)
	if err != nil {
		return nil, err
	}
	return &Mongo{uri: set.URI(), hosts: set.Hosts(), set: set, members: servers}, nil
}

// URI is the connection string.
func (m *Mongo) URI() string { return m.uri }

// Hosts are the members' addresses, in order.
func (m *Mongo) Hosts() []string { return slices.Clone(m.hosts) }

// URL is what holdfast.Open takes for a database of this test's own, which is
// removed at its end.
func (m *Mongo) URL(tb testing.TB) string {
	tb.Helper()
	return m.LockURL(m.Database(tb).Name())
}

// LockURL is what holdfast.Open takes for a database.
func (m *Mongo) LockURL(database string) string { return lockURL(m.uri, database) }

// DirectURL is like LockURL, but for clients that talk to one member alone, and do
// so also while it is cut off from the others.
func (m *Mongo) DirectURL(tb testing.TB, database string, member int) string {
	tb.Helper()
	if m.members == nil {
		Check(tb, ErrUnsupported)
	}
	host, err := m.members.outside(tb.Context(), member)
	Check(tb, err)
	return lockURL("mongodb://"+host+"/?directConnection=true", database)
}

// lockURL puts the database into a connection string.
func lockURL(uri, database string) string {
	before, query, _ := strings.Cut(uri, "?")
	scheme, rest, _ := strings.Cut(before, "://")
	hosts, _, _ := strings.Cut(rest, "/")
	if query != "" {
		query = "?" + query
	}
	return scheme + "://" + hosts + "/" + url.PathEscape(database) + query
}

// Database is one of this test's own, which is removed at its end, through a client
// of its own.
func (m *Mongo) Database(tb testing.TB) *mongo.Database {
	tb.Helper()
	db := m.Connect(tb).Database("holdfast_" + rand.Text())
	tb.Cleanup(func() {
		if !m.shared {
			return // the servers go too, and may not run any more
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := db.Drop(ctx); err != nil {
			tb.Error(err)
		}
	})
	return db
}

// Connect is a client of its own for the test, disconnected at the end.
func (m *Mongo) Connect(tb testing.TB, opts ...*options.ClientOptions) *mongo.Client {
	tb.Helper()
	return mongotest.Connect(tb, m.uri, opts...)
}

// Primary is the number of the member that is primary, once there is one.
func (m *Mongo) Primary(ctx context.Context) (int, error) {
	if m.set == nil {
		return 0, ErrUnsupported
	}
	return m.set.Primary(ctx)
}

// Admin runs a command on the primary's admin database.
func (m *Mongo) Admin(ctx context.Context, cmd bson.D) error {
	if m.set == nil {
		return ErrUnsupported
	}
	return m.set.Admin(ctx, cmd)
}

// StepDown has the primary give way to another member.
func (m *Mongo) StepDown(ctx context.Context) error {
	if m.set == nil {
		return ErrUnsupported
	}
	return m.set.StepDown(ctx)
}

// Kill ends a member as a crash does (SIGKILL).
func (m *Mongo) Kill(ctx context.Context, member int) error {
	return m.fault(ctx, "kill", member, members.kill)
}

// Restart starts a killed member again and waits until it takes connections.
func (m *Mongo) Restart(ctx context.Context, member int) error {
	return m.fault(ctx, "restart", member, members.restart)
}

// Pause freezes a member: its connections stay open and nothing answers.
func (m *Mongo) Pause(ctx context.Context, member int) error {
	return m.fault(ctx, "pause", member, members.pause)
}

// Resume ends a Pause.
func (m *Mongo) Resume(ctx context.Context, member int) error {
	return m.fault(ctx, "resume", member, members.resume)
}

// CutOff takes a member off the set's network: neither the others nor clients
// with the set's URI reach it. Clients of [Mongo.DirectURL] do.
func (m *Mongo) CutOff(ctx context.Context, member int) error {
	return m.fault(ctx, "cut off", member, members.cutOff)
}

// Rejoin ends a CutOff.
func (m *Mongo) Rejoin(ctx context.Context, member int) error {
	return m.fault(ctx, "rejoin", member, members.rejoin)
}

// SetClock moves the wall clock of one member so that it is ahead of the machine's
// by offset, at once and for good, also over a restart. It needs FakeClock.
func (m *Mongo) SetClock(ctx context.Context, member int, offset time.Duration) error {
	return m.fault(ctx, "set the clock of", member, func(ms members, ctx context.Context, member int) error {
		return ms.setClock(ctx, member, offset)
	})
}

func (m *Mongo) fault(ctx context.Context, what string, member int, do func(members, context.Context, int) error) error {
	if m.members == nil {
		return fmt.Errorf("%s member %d of a replica set of the user's own: %w", what, member, ErrUnsupported)
	}
	if err := do(m.members, ctx, member); err != nil {
		return fmt.Errorf("%s member %d: %w", what, member, err)
	}
	return nil
}

// errNoClock is for a replica set that was started without FakeClock.
var errNoClock = errors.New("the replica set was started without FakeClock")
