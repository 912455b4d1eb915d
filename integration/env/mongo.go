package env

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
	tcmongo "github.com/testcontainers/testcontainers-go/modules/mongodb"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/holdfastcontainers"
	"github.com/holdfast-go/holdfast/internal/mongoset"
	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
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
		Members: cmp.Or(o.Members, 3), Arbiter: o.Arbiter, Args: o.Args,
		TTLMonitor: o.TTLMonitorSecs, ElectionTimeout: cmp.Or(o.ElectionTimeout, time.Second), NoChaining: o.NoChaining,
	}
}

// Mongo is a replica set. Members are numbered from 0. A fault returns when it has taken effect,
// or with an error that wraps [ErrUnsupported]; [Check] handles both. Its methods are safe for
// concurrent use, except for two faults of one member at the same time.
type Mongo struct {
	*servers // nil for those of a user, and for containers of all packages
	uri      string
	hosts    []string
	shared   bool          // it outlives a test
	set      *mongoset.Set // nil for a user's own servers
}

// StartMongo starts a replica set for this test alone and removes it at the end. It waits while
// three other tests have servers of several members.
func StartMongo(tb testing.TB, opts MongoOptions) *Mongo {
	tb.Helper()
	waitForTurn(tb)
	return own(tb, func(ctx context.Context, dir string) (*Mongo, error) { return newMongo(ctx, dir, opts) })
}

// SharedMongo returns a replica set of three that all tests of the package share, and in containers
// those of all packages. They inject faults only through proxies of their own.
func SharedMongo(tb testing.TB) *Mongo {
	tb.Helper()
	return suite.mongo.get(tb, func() (*Mongo, error) {
		if suite.mode == Endpoints {
			uri, err := endpoint(mongotest.EnvURI)
			if err != nil {
				return nil, err
			}
			hosts, err := userHosts(uri)
			return &Mongo{uri: uri, hosts: hosts, shared: true}, err
		}
		if suite.mode == Containers {
			c := holdfastcontainers.Mongo(tb, holdfastcontainers.WithImage(MongoImage()), holdfastcontainers.WithMembers(3))
			fmt.Printf("integration: shared: a replica set of %s at %v\n", MongoImage(), c.Hosts)
			return &Mongo{uri: c.URI, hosts: c.Hosts, shared: true, set: mongoset.At(c.Hosts)}, nil
		}
		// The long timeout avoids elections on a busy machine: they would disturb all tests.
		m, err := newMongo(context.Background(), suite.dir, MongoOptions{ElectionTimeout: 10 * time.Second})
		if err != nil {
			return nil, err
		}
		fmt.Printf("integration: shared: a replica set of processes at %v\n", m.hosts)
		m.shared = true
		return m, nil
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

func newMongo(ctx context.Context, dir string, opts MongoOptions) (*Mongo, error) {
	start := mongoContainers
	if suite.mode == Processes {
		start = mongoProcesses
	}
	set, started, err := start(ctx, dir, opts)
	if err != nil {
		return nil, err
	}
	return &Mongo{uri: set.URI(), hosts: set.Hosts(), set: set, servers: started}, nil
}

const replicaSet = "a replica set"

func mongoContainers(ctx context.Context, _ string, opts MongoOptions) (*mongoset.Set, *servers, error) {
	all := opts.testing()
	started, err := startContainers(ctx, all.Members, containers{
		what: replicaSet, name: "mongo", image: MongoImage(), port: "27017", ready: "Waiting for connections", fakeClock: opts.FakeClock,
		run: func(ctx context.Context, more ...testcontainers.ContainerCustomizer) (testcontainers.Container, error) {
			return notNil(tcmongo.Run(ctx, MongoImage(), append(more, testcontainers.WithCmd(mongoset.Arguments(all)...))...))
		},
	})
	if err != nil {
		return nil, nil, err
	}
	set, err := mongoset.Initiate(ctx, started.addresses(), all)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("start %s: %w", replicaSet, err), started.terminate())
	}
	return set, started, nil
}

func mongoProcesses(ctx context.Context, dir string, opts MongoOptions) (*mongoset.Set, *servers, error) {
	all := opts.testing()
	clocks := make([]*serverprocess.Clock, all.Members) // nil without FakeClock
	for i := range clocks {
		if !opts.FakeClock {
			break
		}
		var err error
		if clocks[i], err = serverprocess.NewClock(dir); err != nil {
			return nil, nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
	}
	all.Env = func(member int) []string { return clocks[member].Env() }
	set, err := mongotest.NewReplicaSet(ctx, dir, all)
	if err != nil {
		return nil, nil, err
	}
	started := &servers{what: replicaSet}
	for i, member := range set.Members() {
		started.all = append(started.all, process{member, clocks[i]})
	}
	return set.Set, started, nil
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
func (m *Mongo) LockURL(database string) string { return mongotest.WithDatabase(m.uri, database) }

// DirectURL is like LockURL, but its clients connect to one member alone, also while that member
// is cut off from the others.
func (m *Mongo) DirectURL(tb testing.TB, database string, member int) string {
	tb.Helper()
	host, err := m.directAddress(tb.Context(), member)
	Check(tb, err)
	return mongotest.WithDatabase("mongodb://"+host+"/?directConnection=true", database)
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
	return m.fault(ctx, "step up", member, func(s server, ctx context.Context) error {
		host, err := s.directAddr(ctx)
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

// SetClock moves the wall clock of one member to offset ahead of the machine's, at once and
// permanently, also over a restart. It needs FakeClock.
func (m *Mongo) SetClock(ctx context.Context, member int, offset time.Duration) error {
	return m.fault(ctx, "set the clock of", member, func(s server, ctx context.Context) error { return s.setClock(ctx, offset) })
}
