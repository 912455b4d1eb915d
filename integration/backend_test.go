package integration

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	mongodriver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/azblob"
	"github.com/holdfast-go/holdfast/drivers/file"
	"github.com/holdfast-go/holdfast/drivers/mongo"
	"github.com/holdfast-go/holdfast/drivers/postgres"
	"github.com/holdfast-go/holdfast/integration/env"
)

// The backends that scenarios run on. Their subtests have the same names.
const (
	onMongo    = "mongodb"
	onPostgres = "postgres"
	onAzure    = "azblob"
	onFile     = "file"
)

// backend is a real backend with a database, container or folder of the test's own.
type backend struct {
	name string
	// url is the URL that other processes open.
	url string
	// ttl is short, but long enough for a busy machine.
	ttl time.Duration
	// locker connects to the backend, through a faulty network if one is given.
	locker func(tb testing.TB, through *faultyNetwork) holdfast.Locker
	// network makes a new network between a client and the backend, on which faults can be
	// injected.
	network func(tb testing.TB) *faultyNetwork
	// deleteRecord deletes a lock's record as an operator would by hand.
	deleteRecord func(tb testing.TB, name string)
	// collection holds the records on MongoDB.
	collection *mongodriver.Collection
}

// onEachBackend runs a scenario on MongoDB, PostgreSQL and Azurite, in parallel with other tests.
func onEachBackend(t *testing.T, scenario func(t *testing.T, b backend)) {
	t.Helper()
	t.Parallel()
	t.Run(onMongo, func(t *testing.T) { t.Parallel(); scenario(t, mongoBackend(t)) })
	t.Run(onPostgres, func(t *testing.T) { t.Parallel(); scenario(t, postgresBackend(t)) })
	t.Run(onAzure, func(t *testing.T) { t.Parallel(); scenario(t, azureBackend(t)) })
}

func mongoBackend(tb testing.TB) backend {
	tb.Helper()
	m := env.SharedMongo(tb)
	own := m.Database(tb).Collection("holdfast_locks")
	database := own.Database().Name()
	hosts := m.Hosts()
	if hosts == nil { // an endpoint of the user's own
		u, err := url.Parse(m.URI())
		if err != nil {
			tb.Fatal(err)
		}
		hosts = strings.Split(u.Host, ",")
	}
	return backend{
		name: onMongo, url: m.LockURL(database), ttl: 15 * time.Second, collection: own,
		network: func(tb testing.TB) *faultyNetwork { return newFaultyNetwork(tb, hosts...) },
		locker: func(tb testing.TB, through *faultyNetwork) holdfast.Locker {
			tb.Helper()
			connect := options.Client()
			if through != nil {
				connect.SetDialer(through)
			}
			l, err := mongo.New(testContext(tb), m.Connect(tb, connect).Database(database).Collection(own.Name()))
			if err != nil {
				tb.Fatal(err)
			}
			return l
		},
		deleteRecord: func(tb testing.TB, name string) {
			tb.Helper()
			if _, err := own.DeleteOne(testContext(tb), map[string]string{"_id": name}); err != nil {
				tb.Fatal(err)
			}
		},
	}
}

func postgresBackend(tb testing.TB) backend {
	tb.Helper()
	p := env.SharedPostgres(tb)
	rawURL := p.URL(tb)
	return backend{
		name: onPostgres, url: rawURL, ttl: 15 * time.Second,
		network: func(tb testing.TB) *faultyNetwork { return newFaultyNetwork(tb, p.Hosts()...) },
		locker: func(tb testing.TB, through *faultyNetwork) holdfast.Locker {
			tb.Helper()
			if through == nil {
				l, err := postgres.Open(testContext(tb), rawURL)
				env.Check(tb, err)
				return l
			}
			var hosts []string
			for _, host := range p.Hosts() {
				hosts = append(hosts, through.Mesh[host].Addr())
			}
			config, err := pgxpool.ParseConfig(p.Through(tb, rawURL, hosts...))
			env.Check(tb, err)
			// A statement is not sent before a ping or its preparation is answered. So that a reply can be lost, and not only
			// the request, there are none.
			config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
			config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
			pool, err := pgxpool.NewWithConfig(testContext(tb), config)
			env.Check(tb, err)
			tb.Cleanup(pool.Close)
			l, err := postgres.New(testContext(tb), pool)
			env.Check(tb, err)
			return l
		},
		deleteRecord: func(tb testing.TB, name string) {
			tb.Helper()
			c, err := pgx.Connect(testContext(tb), rawURL)
			if err != nil {
				tb.Fatal(err)
			}
			_, err = c.Exec(testContext(tb), "DELETE FROM "+postgres.DefaultTable+" WHERE name = $1", name)
			if err := errors.Join(err, c.Close(testContext(tb))); err != nil {
				tb.Fatal(err)
			}
		},
	}
}

func azureBackend(tb testing.TB) backend {
	tb.Helper()
	service := env.SharedAzurite(tb)
	container := service.Fresh(tb)
	endpoint, err := url.Parse(service.Endpoint)
	if err != nil {
		tb.Fatal(err)
	}
	return backend{
		name: onAzure, url: service.URL(container), ttl: 15 * time.Second,
		network: func(tb testing.TB) *faultyNetwork { return newFaultyNetwork(tb, endpoint.Host) },
		locker: func(tb testing.TB, through *faultyNetwork) holdfast.Locker {
			tb.Helper()
			wrap := func(rt http.RoundTripper) http.RoundTripper {
				if through != nil {
					rt.(*http.Transport).DialContext = through.DialContext
				}
				return rt
			}
			l, err := azblob.New(service.Client(tb, container, wrap))
			if err != nil {
				tb.Fatal(err)
			}
			return l
		},
		deleteRecord: func(tb testing.TB, name string) {
			tb.Helper()
			// Azure refuses to delete a leased blob, but not its container.
			if _, err := service.Client(tb, container, nil).Delete(testContext(tb), nil); err != nil {
				tb.Fatal(err)
			}
		},
	}
}

// testContext returns the test's context with a time limit, so that the test fails before go
// test's own timeout.
func testContext(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), waitLimit)
	tb.Cleanup(cancel)
	return ctx
}

// uniqueName returns a lock name that no other test uses.
func uniqueName() string { return "lock-" + strings.ToLower(rand.Text()[:8]) }

// fileBackend is a folder. Its TTL allows for a busy disk.
func fileBackend(tb testing.TB) backend {
	tb.Helper()
	dir := tb.TempDir()
	return backend{
		name: onFile, url: "file:" + dir, ttl: 12 * time.Second,
		locker: func(tb testing.TB, _ *faultyNetwork) holdfast.Locker {
			tb.Helper()
			l, err := file.New(dir)
			if err != nil {
				tb.Fatal(err)
			}
			return l
		},
	}
}
