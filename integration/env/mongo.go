package env

import (
	"cmp"
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

	"github.com/holdfast-go/holdfast/holdfastcontainers"
	"github.com/holdfast-go/holdfast/internal/mongoset"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// MongoOptions are the options of a replica set. The zero value means three members with fast
// elections.
type MongoOptions struct {
	// Members is the number of members; 0 means 3.
	Members int
	// Arbiter makes the last member an arbiter, which votes and stores no data.
	Arbiter bool
	// NoChaining makes every secondary replicate from the primary. A secondary that replicates
	// from a frozen one falls behind with it, and then no majority acknowledges a write.
	NoChaining bool
	// Args are additional arguments for every mongod.
	Args []string
	// TTLMonitorSecs is the interval of the TTL thread in seconds; 0 means 1.
	TTLMonitorSecs int
	// ElectionTimeout is how long secondaries wait for a silent primary; 0 means one second.
	// MongoDB's own default is ten.
	ElectionTimeout time.Duration
	// FakeClock enables SetClock.
	FakeClock bool
}

func (o MongoOptions) testing() mongotest.Options {
	return mongotest.Options{
		Members: o.Members, Arbiter: o.Arbiter, Args: o.Args,
		TTLMonitor: o.TTLMonitorSecs, ElectionTimeout: cmp.Or(o.ElectionTimeout, time.Second), NoChaining: o.NoChaining,
	}
}

// Mongo is a replica set. Members are numbered from 0. A fault returns when it has taken effect,
// or with an error that wraps [ErrUnsupported]; [Check] handles both. Its methods are safe for
// concurrent use, except for two faults of one member at the same time.
type Mongo struct {
	uri     string
	hosts   []string
	shared  bool          // it outlives a test
	set     *mongoset.Set // nil for a user's own servers
	members members       // nil for a user's own servers
}

// members injects faults into the members of a replica set.
type members interface {
	kill(ctx context.Context, member int) error
	restart(ctx context.Context, member int) error
	pause(ctx context.Context, member int) error
	resume(ctx context.Context, member int) error
	cutOff(ctx context.Context, member int) error
	rejoin(ctx context.Context, member int) error
	directAddress(ctx context.Context, member int) (host string, err error)
	setClock(ctx context.Context, member int, offset time.Duration) error
	remove() error
}

// replicaSetLimit limits how many replica sets run besides the shared one. However many tests run
// in parallel, the servers must be able to hold their elections in time.
var replicaSetLimit = make(chan struct{}, 3)

// StartMongo starts a replica set for this test alone and removes it at the end. It waits while
// three other tests have one.
func StartMongo(tb testing.TB, opts MongoOptions) *Mongo {
	tb.Helper()
	if suite.mode == Endpoints {
		skip(tb, "it injects faults into servers, which is not done to a user's own: it needs containers or processes")
	}
	replicaSetLimit <- struct{}{}
	tb.Cleanup(func() { <-replicaSetLimit })
	m, err := newMongo(tb.Context(), tb.TempDir(), tb.Name(), opts)
	Check(tb, err)
	tb.Cleanup(func() {
		if err := m.members.remove(); err != nil {
			tb.Error(err)
		}
	})
	countUse()
	return m
}

// SharedMongo returns a replica set of three that all tests of the package share, and in containers
// those of all packages. They inject faults only through proxies of their own.
func SharedMongo(tb testing.TB) *Mongo {
	tb.Helper()
	return suite.mongo.get(tb, func() (*Mongo, func() error, error) {
		if suite.mode == Endpoints {
			uri := os.Getenv(mongotest.EnvURI)
			if uri == "" {
				return nil, nil, fmt.Errorf("%w: %s is not set", ErrUnsupported, mongotest.EnvURI)
			}
			hosts, err := userHosts(uri)
			return &Mongo{uri: uri, hosts: hosts, shared: true}, nil, err
		}
		if suite.mode == Containers {
			c := holdfastcontainers.Mongo(tb, holdfastcontainers.WithImage(MongoImage()), holdfastcontainers.WithMembers(3))
			fmt.Printf("integration: shared: a replica set of %s at %v\n", MongoImage(), c.Hosts)
			return &Mongo{uri: c.URI, hosts: c.Hosts, shared: true, set: mongoset.At(c.Hosts)}, nil, nil
		}
		// The long timeout avoids elections on a busy machine: they would disturb all tests.
		m, err := newMongo(context.Background(), suite.dir, "shared", MongoOptions{ElectionTimeout: 10 * time.Second})
		if err != nil {
			return nil, nil, err
		}
		m.shared = true
		return m, m.members.remove, nil
	})
}

// userHosts asks the user's own servers for the addresses of the members.
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
		err = errors.New("not a replica set")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", mongotest.EnvURI, err)
	}
	return hello.Hosts, nil
}

func newMongo(ctx context.Context, dir, name string, opts MongoOptions) (*Mongo, error) {
	start := newMongoContainers
	if suite.mode == Processes {
		start = newMongoProcesses
	}
	set, servers, err := start(ctx, dir, name, opts)
	if err != nil {
		return nil, err
	}
	return &Mongo{uri: set.URI(), hosts: set.Hosts(), set: set, members: servers}, nil
}

// URI returns the connection string.
func (m *Mongo) URI() string { return m.uri }

// Hosts returns the addresses of the members, in order.
func (m *Mongo) Hosts() []string { return slices.Clone(m.hosts) }

// URL returns a URL for holdfast.Open with a database of this test's own, which is removed at the
// end of the test.
func (m *Mongo) URL(tb testing.TB) string {
	tb.Helper()
	return m.LockURL(m.Database(tb).Name())
}

// LockURL returns a URL for holdfast.Open with the given database.
func (m *Mongo) LockURL(database string) string { return lockURL(m.uri, database) }

// DirectURL is like LockURL, but its clients connect to one member alone, also while that member
// is cut off from the others.
func (m *Mongo) DirectURL(tb testing.TB, database string, member int) string {
	tb.Helper()
	if m.members == nil {
		Check(tb, ErrUnsupported)
	}
	host, err := m.members.directAddress(tb.Context(), member)
	Check(tb, err)
	return lockURL("mongodb://"+host+"/?directConnection=true", database)
}

// lockURL adds the database to a connection string.
func lockURL(uri, database string) string {
	before, query, _ := strings.Cut(uri, "?")
	scheme, rest, _ := strings.Cut(before, "://")
	hosts, _, _ := strings.Cut(rest, "/")
	if query != "" {
		query = "?" + query
	}
	return scheme + "://" + hosts + "/" + url.PathEscape(database) + query
}

// Database returns a database of this test's own, which is removed at the end of the test.
func (m *Mongo) Database(tb testing.TB) *mongo.Database {
	tb.Helper()
	db := m.Connect(tb).Database("holdfast_" + rand.Text())
	tb.Cleanup(func() {
		if !m.shared {
			return // the servers are removed too, and may not run any more
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := db.Drop(ctx); err != nil {
			tb.Error(err)
		}
	})
	return db
}

// Connect returns a client of its own for the test, which is disconnected at the end.
func (m *Mongo) Connect(tb testing.TB, opts ...*options.ClientOptions) *mongo.Client {
	tb.Helper()
	return mongotest.Connect(tb, m.uri, opts...)
}

// Primary waits until there is a primary and returns its number.
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

// StepDown makes the primary step down in favor of another member.
func (m *Mongo) StepDown(ctx context.Context) error {
	if m.set == nil {
		return ErrUnsupported
	}
	return m.set.StepDown(ctx)
}

// StepUp makes a member, which knows no primary that runs, call an election at once. The error says
// why it could not be elected: it may not have noticed yet that the other members answer.
func (m *Mongo) StepUp(ctx context.Context, member int) error {
	return m.fault(ctx, "step up", member, func(ms members, ctx context.Context, member int) error {
		host, err := ms.directAddress(ctx, member)
		if err != nil {
			return err
		}
		client, err := mongo.Connect(options.Client().SetHosts([]string{host}).SetDirect(true))
		if err != nil {
			return err
		}
		defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
		return client.Database("admin").RunCommand(ctx, bson.D{{Key: "replSetStepUp", Value: 1}}).Err()
	})
}

// Kill ends a member like a crash (SIGKILL).
func (m *Mongo) Kill(ctx context.Context, member int) error {
	return m.fault(ctx, "kill", member, members.kill)
}

// Restart starts a killed member and waits until it accepts connections.
func (m *Mongo) Restart(ctx context.Context, member int) error {
	return m.fault(ctx, "restart", member, members.restart)
}

// Pause freezes a member: connections stay open, but nothing answers.
func (m *Mongo) Pause(ctx context.Context, member int) error {
	return m.fault(ctx, "pause", member, members.pause)
}

// Resume ends a Pause.
func (m *Mongo) Resume(ctx context.Context, member int) error {
	return m.fault(ctx, "resume", member, members.resume)
}

// CutOff disconnects a member from the network of the set: neither the other members nor clients
// with the set's URI can reach it. Clients of [Mongo.DirectURL] can.
func (m *Mongo) CutOff(ctx context.Context, member int) error {
	return m.fault(ctx, "cut off", member, members.cutOff)
}

// Rejoin ends a CutOff.
func (m *Mongo) Rejoin(ctx context.Context, member int) error {
	return m.fault(ctx, "rejoin", member, members.rejoin)
}

// SetClock moves the wall clock of one member to offset ahead of the machine's, at once and
// permanently, also over a restart. It needs FakeClock.
func (m *Mongo) SetClock(ctx context.Context, member int, offset time.Duration) error {
	return m.fault(ctx, "set the clock of", member, func(ms members, ctx context.Context, member int) error {
		return ms.setClock(ctx, member, offset)
	})
}

func (m *Mongo) fault(ctx context.Context, what string, member int, do func(members, context.Context, int) error) error {
	if m.members == nil {
		return fmt.Errorf("%s member %d of a user's own replica set: %w", what, member, ErrUnsupported)
	}
	if err := do(m.members, ctx, member); err != nil {
		return fmt.Errorf("%s member %d: %w", what, member, err)
	}
	return nil
}

// errNoClock is returned by SetClock without FakeClock.
var errNoClock = errors.New("the replica set was started without FakeClock")
