package integration

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	mongodriver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/azblob"
	"github.com/holdfast-go/holdfast/drivers/file"
	"github.com/holdfast-go/holdfast/drivers/mongo"
	"github.com/holdfast-go/holdfast/integration/env"
)

// The backends that scenarios run on, as their subtests are named.
const (
	onMongo = "mongodb"
	onAzure = "azblob"
	onFile  = "file"
)

// target is a place for locks of its own on a real backend.
type target struct {
	name string
	// url is what other processes open.
	url string
	// ttl is short, and yet bears a busy machine.
	ttl time.Duration
	// locker reaches the locks, through a link if there is one.
	locker func(tb testing.TB, through *link) holdfast.Locker
	// link is a new way to the backend.
	link func(tb testing.TB) *link
	// erase does what an operator does who deletes a lock's record by hand.
	erase func(tb testing.TB, name string)
	// collection has MongoDB's records.
	collection *mongodriver.Collection
}

// onEach runs a scenario on MongoDB and on Azurite, at the same time as others.
func onEach(t *testing.T, scenario func(t *testing.T, b target)) {
	t.Helper()
	t.Parallel()
	t.Run(onMongo, func(t *testing.T) { t.Parallel(); scenario(t, mongoTarget(t)) })
	t.Run(onAzure, func(t *testing.T) { t.Parallel(); scenario(t, azureTarget(t)) })
}

func mongoTarget(tb testing.TB) target {
	tb.Helper()
	m := env.SharedMongo(tb)
	own := m.Database(tb).Collection("holdfast_locks")
	database := own.Database().Name()
	hosts := m.Hosts()
	if hosts == nil { // the user's own
		u, err := url.Parse(m.URI())
		if err != nil {
			tb.Fatal(err)
		}
		hosts = strings.Split(u.Host, ",")
	}
	return target{
		name: onMongo, url: m.LockURL(database), ttl: 9 * time.Second, collection: own,
		link: func(tb testing.TB) *link { return newLink(tb, hosts...) },
		locker: func(tb testing.TB, through *link) holdfast.Locker {
			tb.Helper()
			opts := options.Client()
			if through != nil {
				opts.SetDialer(through)
			}
			l, err := mongo.New(bounded(tb), m.Connect(tb, opts).Database(database).Collection(own.Name()))
			if err != nil {
				tb.Fatal(err)
			}
			return l
		},
		erase: func(tb testing.TB, name string) {
			tb.Helper()
			if _, err := own.DeleteOne(bounded(tb), map[string]string{"_id": name}); err != nil {
				tb.Fatal(err)
			}
		},
	}
}

func azureTarget(tb testing.TB) target {
	tb.Helper()
	service := env.SharedAzurite(tb)
	room := service.Fresh(tb)
	endpoint, err := url.Parse(service.Endpoint)
	if err != nil {
		tb.Fatal(err)
	}
	return target{
		name: onAzure, url: service.URL(room), ttl: 15 * time.Second,
		link: func(tb testing.TB) *link { return newLink(tb, endpoint.Host) },
		locker: func(tb testing.TB, through *link) holdfast.Locker {
			tb.Helper()
			wrap := func(rt http.RoundTripper) http.RoundTripper {
				if through != nil {
					rt.(*http.Transport).DialContext = through.DialContext
				}
				return rt
			}
			l, err := azblob.New(service.Client(tb, room, wrap))
			if err != nil {
				tb.Fatal(err)
			}
			return l
		},
		erase: func(tb testing.TB, name string) {
			tb.Helper()
			// A blob that is leased cannot be deleted; its container can.
			if _, err := service.Client(tb, room, nil).Delete(bounded(tb), nil); err != nil {
				tb.Fatal(err)
			}
		},
	}
}

// bounded is the test's context with an end before go test's own.
func bounded(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	tb.Cleanup(cancel)
	return ctx
}

// fresh is a name that no other test has.
func fresh() string { return "lock-" + strings.ToLower(rand.Text()[:8]) }

// fileTarget is a folder. Its TTL bears a disk that others keep busy.
func fileTarget(tb testing.TB) target {
	tb.Helper()
	dir := tb.TempDir()
	return target{
		name: onFile, url: "file:" + dir, ttl: 12 * time.Second,
		locker: func(tb testing.TB, _ *link) holdfast.Locker {
			tb.Helper()
			l, err := file.New(dir)
			if err != nil {
				tb.Fatal(err)
			}
			return l
		},
	}
}
