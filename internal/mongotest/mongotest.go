// Package mongotest gives tests a real MongoDB: it finds or fetches mongod,
// starts what a test asks for on loopback, and removes it at the end, so that
// plain "go test" works on a new machine.
//
// A package's tests call it from TestMain:
//
//	func TestMain(m *testing.M) { mongotest.Main(m) }
//
// The replica set of [URI] and the server of [Standalone] are started when a
// test first asks for them and serve all tests of the package. Tests that stop
// or freeze servers start their own with [StartReplicaSet].
//
// Nothing is ever skipped: where no server can be had the test fails and says
// what to do.
package mongotest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/testservers"
)

// EnvURI and EnvStandaloneURI name the variables that point tests to servers
// that run already.
const (
	EnvURI           = testservers.EnvMongoURI
	EnvStandaloneURI = "HOLDFAST_TEST_MONGODB_STANDALONE_URI"
)

// Main runs the tests, stops the servers, fails the run if goroutines are left
// over, and exits.
func Main(m *testing.M) {
	code := Run(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "mongotest:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Run runs the tests, stops the servers, and returns the exit code. m is a *testing.M,
// or runs one in turn.
func Run(m interface{ Run() int }) int {
	dir, err := os.MkdirTemp("", "holdfast-mongotest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "mongotest:", err)
		return 1
	}
	servers.dir = dir
	code := m.Run()
	if err := errors.Join(servers.stop(), os.RemoveAll(dir)); err != nil {
		fmt.Fprintln(os.Stderr, "mongotest:", err)
		return 1
	}
	return code
}

// servers are what the tests of this process share.
var servers shared

type shared struct {
	dir   string // empty unless Run is at work
	stops []func() error

	mu         sync.Mutex // held while a server starts: who comes second waits for it
	replicaSet server
	standalone server
}

// server is a started server, or the reason why there is none.
type server struct {
	started bool
	uri     string
	err     error
}

// URI is the connection string of a replica set that the tests share.
func URI(tb testing.TB) string {
	tb.Helper()
	return servers.get(tb, &servers.replicaSet, EnvURI, func(ctx context.Context, path, dir string) (string, func() error, error) {
		// An election in the middle of a test, because the machine is busy, would
		// be of use to none of them.
		rs, err := startReplicaSet(ctx, path, dir, Options{ElectionTimeout: 10 * time.Second})
		if err != nil {
			return "", nil, err
		}
		return rs.URI(), rs.Remove, nil
	})
}

// Standalone is the connection string of a server outside any replica set.
func Standalone(tb testing.TB) string {
	tb.Helper()
	return servers.get(tb, &servers.standalone, EnvStandaloneURI, func(ctx context.Context, path, dir string) (string, func() error, error) {
		p, err := newProcess(ctx, path, dir, append(common(), "--bind_ip", host, "--setParameter", "ttlMonitorSleepSecs=1")...)
		if err != nil {
			return "", nil, err
		}
		if err := p.start(ctx); err != nil {
			return "", nil, errors.Join(err, p.remove())
		}
		if err := p.ready(ctx); err != nil {
			return "", nil, errors.Join(err, p.remove())
		}
		return "mongodb://" + p.addr() + "/?directConnection=true", p.remove, nil
	})
}

type starter func(ctx context.Context, path, dir string) (uri string, stop func() error, err error)

// get returns the URI of s, which it takes from the environment or starts.
func (sh *shared) get(tb testing.TB, s *server, env string, start starter) string {
	tb.Helper()
	if uri := os.Getenv(env); uri != "" {
		return uri
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.dir == "" {
		tb.Fatal("mongotest: TestMain must call mongotest.Main")
	}
	if !s.started {
		s.started = true
		s.uri, s.err = sh.start(start)
	}
	if s.err != nil {
		tb.Fatalf("mongotest: %v", s.err)
	}
	return s.uri
}

func (sh *shared) start(start starter) (string, error) {
	ctx := context.Background() // it outlives the test that asks first
	path, err := testservers.Mongod(ctx)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(sh.dir, rand.Text())
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	uri, stop, err := start(ctx, path, dir)
	if err == nil {
		sh.stops = append(sh.stops, stop)
	}
	return uri, err
}

func (sh *shared) stop() error {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	var errs []error
	for _, stop := range sh.stops {
		errs = append(errs, stop())
	}
	sh.stops = nil
	return errors.Join(errs...)
}

// Connect is a client of its own for the test, disconnected at the end. Its writes are
// acknowledged by a majority unless opts say otherwise, as is the default since MongoDB 5.0.
func Connect(tb testing.TB, uri string, opts ...*options.ClientOptions) *mongo.Client {
	tb.Helper()
	client, err := mongo.Connect(append([]*options.ClientOptions{
		options.Client().ApplyURI(uri).SetWriteConcern(writeconcern.Majority())}, opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := client.Disconnect(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return client
}

// Collection is a fresh collection of the shared replica set, in a database of
// its own that is dropped at the end.
func Collection(tb testing.TB) *mongo.Collection {
	tb.Helper()
	return CollectionOf(tb, Connect(tb, URI(tb)))
}

// CollectionOf is like [Collection], through a client of the test's choice.
func CollectionOf(tb testing.TB, client *mongo.Client) *mongo.Collection {
	tb.Helper()
	db := client.Database("holdfast_test_" + rand.Text())
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if err := db.Drop(ctx); err != nil {
			tb.Error(err)
		}
	})
	return db.Collection("locks")
}
