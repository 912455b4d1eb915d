// Package mongotest gives tests a real MongoDB: it finds or fetches mongod, starts the servers
// that a test needs on loopback, and removes them at the end. So "go test" needs no preparation
// on a new machine.
//
// A package's tests call it from TestMain:
//
//	func TestMain(m *testing.M) { mongotest.Main(m) }
//
// All tests of the package share the replica set of [URI] and the server of [Standalone], which
// start when a test first needs them. Tests that stop or pause servers start their own with
// [StartReplicaSet].
//
// No test is skipped: if no server can be started, the test fails and says what to do.
package mongotest

import (
	"context"
	"crypto/rand"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/holdfast-go/holdfast/internal/mongoset"
	"github.com/holdfast-go/holdfast/test/serverprocess"
	"github.com/holdfast-go/holdfast/test/testservers"
)

// EnvURI and EnvStandaloneURI name the variables that make the tests use servers that are
// running already.
const (
	EnvURI           = testservers.EnvMongoURI
	EnvStandaloneURI = "HOLDFAST_TEST_MONGODB_STANDALONE_URI"
)

const dropTimeout = 20 * time.Second

// Main runs the tests, stops the shared servers, fails if goroutines are left over, and exits.
func Main(m *testing.M) { serverprocess.Main(m) }

var (
	// The default timeout avoids an election in the middle of a test on a busy machine.
	sharedReplicaSet = serverprocess.Shared(func(ctx context.Context, dir string) (*ReplicaSet, error) {
		return NewReplicaSet(ctx, dir, Options{ElectionTimeout: 10 * time.Second})
	})
	sharedStandalone = serverprocess.Shared(func(ctx context.Context, dir string) (*serverprocess.Server, error) {
		path, err := testservers.Mongod.Path(ctx)
		if err != nil {
			return nil, err
		}
		return serverprocess.StartOne(ctx, dir, mongod(path, nil, append(mongoset.Common(), "--setParameter", "ttlMonitorSleepSecs=1")...))
	})
)

// URI is the connection string of a replica set that the tests share.
func URI(tb testing.TB) string {
	tb.Helper()
	if uri := os.Getenv(EnvURI); uri != "" {
		return uri
	}
	return sharedReplicaSet(tb).URI()
}

// Standalone is the connection string of a server that the tests share and that is in no
// replica set.
func Standalone(tb testing.TB) string {
	tb.Helper()
	if uri := os.Getenv(EnvStandaloneURI); uri != "" {
		return uri
	}
	return "mongodb://" + sharedStandalone(tb).Addr() + "/?directConnection=true"
}

// WithDatabase adds a database to a connection string.
func WithDatabase(uri, database string) string {
	before, query, _ := strings.Cut(uri, "?")
	scheme, rest, _ := strings.Cut(before, "://")
	hosts, _, _ := strings.Cut(rest, "/")
	if query != "" {
		query = "?" + query
	}
	return scheme + "://" + hosts + "/" + url.PathEscape(database) + query
}

// Connect returns a client for this test alone, disconnected at the end. Its writes are
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

// Collection returns a new collection of the shared replica set, in a database of its own that
// is dropped at the end.
func Collection(tb testing.TB) *mongo.Collection {
	tb.Helper()
	return CollectionOf(tb, Connect(tb, URI(tb)))
}

// CollectionOf is like [Collection], through the given client.
func CollectionOf(tb testing.TB, client *mongo.Client) *mongo.Collection {
	tb.Helper()
	db := client.Database("holdfast_test_" + rand.Text())
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
		defer cancel()
		if err := db.Drop(ctx); err != nil {
			tb.Error(err)
		}
	})
	return db.Collection("locks")
}
