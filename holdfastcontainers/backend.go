// Package holdfastcontainers starts MongoDB, PostgreSQL or Azurite, Microsoft's emulator of Azure Blob
// Storage, in Docker containers for integration tests:
//
//	func TestBilling(t *testing.T) {
//		backend := holdfastcontainers.Mongo(t)
//		client := backend.Client()
//		err := client.Do(t.Context(), "billing", bill)
//		…
//	}
//
// All tests of all packages use the same container, and each test has a database or blob container
// of its own. The first test that needs a container starts it. It is removed when no test process
// has used it for 10 s; then the next one starts another. Nothing needs to be called at the end.
//
// It needs a Docker engine that testcontainers-go finds (DOCKER_HOST, TESTCONTAINERS_…). A test
// whose container cannot be started fails and says why.
package holdfastcontainers

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/drivers/azblob"   // for Open
	_ "github.com/holdfast-go/holdfast/drivers/mongo"    // for Open
	_ "github.com/holdfast-go/holdfast/drivers/postgres" // for Open
	"github.com/holdfast-go/holdfast/internal/blobservice"
	"github.com/holdfast-go/holdfast/internal/mongoset"
)

// The environment variables that name other images, and the images without them.
const (
	MongoImageVariable    = "HOLDFAST_TEST_MONGO_IMAGE"
	PostgresImageVariable = "HOLDFAST_TEST_POSTGRES_IMAGE"
	AzuriteImageVariable  = "HOLDFAST_TEST_AZURITE_IMAGE"

	DefaultMongoImage    = "mongo:6.0"
	DefaultPostgresImage = "postgres:18"
	DefaultAzuriteImage  = "mcr.microsoft.com/azure-storage/azurite:3.37.0"
)

const (
	idleLimit     = 10 * time.Second // an unused container is removed after this
	shutdownLimit = 20 * time.Second // for clients and databases at the end of a test
)

// Option changes what is started. Tests with different options use different containers.
type Option func(*spec)

// apply applies options. A nil one ends the test.
func (s *spec) apply(tb testing.TB, opts []Option) {
	tb.Helper()
	for _, o := range opts {
		if o == nil {
			tb.Fatalf("holdfastcontainers: %s with a nil option: want an Option", s.Kind)
		}
		o(s)
	}
}

// single returns the address of a server that is no set of several.
func single(tb testing.TB, kind, function, image string, opts []Option) string {
	tb.Helper()
	s := spec{Kind: kind, Image: image, Idle: idleLimit}
	s.apply(tb, opts)
	if s.Image == "" || s.membersSet {
		tb.Fatalf("holdfastcontainers: %s with image %q: want an image, and no option WithMembers", function, s.Image)
	}
	return share(tb, s).Hosts[0]
}

// WithImage sets the image. The default is that of the environment variable, or else the constant.
func WithImage(image string) Option { return func(s *spec) { s.Image = image } }

// WithMembers sets the number of members of the replica set, 1 to 7; the default is 1. Each member
// is a container.
func WithMembers(n int) Option {
	return func(s *spec) { s.Members, s.membersSet = n, true }
}

// MongoDB is a replica set, and a database of the test's own that is removed at its end.
type MongoDB struct {
	URL   string   // of the test's database, for holdfast.Open and for MongoDB's driver
	URI   string   // of the servers, without a database
	Hosts []string // the members' addresses

	tb testing.TB
}

// Mongo returns a replica set that is ready. If it cannot be started, it ends the test.
func Mongo(tb testing.TB, opts ...Option) *MongoDB {
	tb.Helper()
	s := spec{Kind: kindMongo, Image: cmp.Or(os.Getenv(MongoImageVariable), DefaultMongoImage), Members: 1, Idle: idleLimit}
	s.apply(tb, opts)
	if s.Image == "" || s.Members < 1 || s.Members > 7 {
		tb.Fatalf("holdfastcontainers: Mongo with image %q and %d members: want an image, and 1 to 7 members", s.Image, s.Members)
	}
	found := share(tb, s)
	uri := mongoset.At(found.Hosts).URI()
	own, err := url.Parse(uri)
	if err != nil {
		tb.Fatal(err)
	}
	own.Path = "/holdfast_" + strings.ToLower(rand.Text())
	m := &MongoDB{URL: own.String(), URI: uri, Hosts: found.Hosts, tb: tb}
	m.Database() // removes it at the end, whoever creates it
	return m
}

// Client returns a client for the test's database. It is shut down at the end of the test.
func (m *MongoDB) Client(opts ...holdfast.ClientOption) *holdfast.Client {
	m.tb.Helper()
	return open(m.tb, m.URL, opts)
}

// Database returns the test's database, for code that uses MongoDB itself.
func (m *MongoDB) Database() *mongo.Database {
	m.tb.Helper()
	own, err := url.Parse(m.URL)
	if err != nil {
		m.tb.Fatal(err)
	}
	client, err := mongo.Connect(options.Client().ApplyURI(m.URI).SetWriteConcern(writeconcern.Majority()))
	if err != nil {
		m.tb.Fatal(err)
	}
	db := client.Database(strings.TrimPrefix(own.Path, "/"))
	m.tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), shutdownLimit)
		defer cancel()
		if err := errors.Join(db.Drop(ctx), client.Disconnect(ctx)); err != nil {
			m.tb.Errorf("holdfastcontainers: remove database %s: %v", db.Name(), err)
		}
	})
	return db
}

// BlobService is Azurite, and a blob container of the test's own that is removed at its end.
type BlobService struct {
	URL      string // of the test's container, for holdfast.Open
	Endpoint string // of the account

	tb      testing.TB
	service *blobservice.Service
	name    string
}

// Azurite returns a blob service that is ready. If it cannot be started, it ends the test.
func Azurite(tb testing.TB, opts ...Option) *BlobService {
	tb.Helper()
	host := single(tb, kindAzurite, "Azurite", cmp.Or(os.Getenv(AzuriteImageVariable), DefaultAzuriteImage), opts)
	service := blobservice.Emulator("http://" + host + "/" + blobservice.Account)
	name := service.Fresh(tb)
	return &BlobService{URL: service.URL(name), Endpoint: service.Endpoint, tb: tb, service: service, name: name}
}

// Client returns a client for the test's container. It is shut down at the end of the test.
func (b *BlobService) Client(opts ...holdfast.ClientOption) *holdfast.Client {
	b.tb.Helper()
	return open(b.tb, b.URL, opts)
}

// Container returns the test's blob container, for code that uses blobs itself. A client of
// Holdfast, or Create, makes it exist.
func (b *BlobService) Container() *container.Client {
	b.tb.Helper()
	return b.service.Client(b.tb, b.name, nil)
}

func open(tb testing.TB, url string, opts []holdfast.ClientOption) *holdfast.Client {
	tb.Helper()
	c, err := holdfast.Open(tb.Context(), url, opts...)
	if err != nil {
		tb.Fatalf("holdfastcontainers: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), shutdownLimit)
		defer cancel()
		if err := c.Shutdown(ctx); err != nil {
			tb.Errorf("holdfastcontainers: %v", err)
		}
	})
	return c
}
