package mongo

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/mongotest"
)

// Servers are told apart by their replies. Those of the services are the parts
// that tools which have to know go by.
func TestIdentify(t *testing.T) {
	for what, c := range map[string]struct {
		hello, buildInfo doc
		standalone       bool
		refused          string
	}{
		"replica set":     {hello: doc{{Key: "setName", Value: "rs"}, {Key: "maxWireVersion", Value: 17}}},
		"sharded cluster": {hello: doc{{Key: "msg", Value: "isdbgrid"}, {Key: "maxWireVersion", Value: 17}}},
		"standalone":      {hello: doc{{Key: "maxWireVersion", Value: 9}}, standalone: true},
		"MongoDB 4.2": {hello: doc{{Key: "setName", Value: "rs"}, {Key: "maxWireVersion", Value: 8}},
			buildInfo: doc{{Key: "version", Value: "4.2.24"}}, refused: `"4.2.24" (wire version 8)`},
		"Cosmos DB by its host": {hello: doc{{Key: "setName", Value: "globaldb"}, {Key: "maxWireVersion", Value: 17},
			{Key: "hosts", Value: list{"X-eastus.mongo.Cosmos.azure.com:10255"}}}, refused: "Azure Cosmos DB"},
		"Cosmos DB by its build": {hello: doc{{Key: "msg", Value: "isdbgrid"}, {Key: "maxWireVersion", Value: 17}},
			buildInfo: doc{{Key: "_t", Value: "BuildInfoResponse"}}, refused: "Azure Cosmos DB"},
		"Cosmos DB vCore": {hello: doc{{Key: "msg", Value: "isdbgrid"}, {Key: "maxWireVersion", Value: 17},
			{Key: "internal", Value: is("cosmos_versions", list{"1"})}}, refused: "DocumentDB on PostgreSQL"},
		"DocumentDB on PostgreSQL": {hello: doc{{Key: "maxWireVersion", Value: 17},
			{Key: "internal", Value: is("documentdb_versions", list{"0.117"})}}, refused: "DocumentDB on PostgreSQL"},
		"Amazon DocumentDB": {hello: doc{{Key: "setName", Value: "rs0"}, {Key: "maxWireVersion", Value: 13},
			{Key: "me", Value: "a.b.docdb.amazonaws.com:27017"}}, refused: "Amazon DocumentDB"},
		"Firestore": {hello: doc{{Key: "maxWireVersion", Value: 17}, {Key: "primary", Value: "x.firestore.goog:443"}}, refused: "Firestore"},
		"FerretDB":  {hello: doc{{Key: "maxWireVersion", Value: 21}}, buildInfo: doc{{Key: "ferretdb", Value: doc{}}}, refused: "FerretDB"},
	} {
		standalone, err := identify(raw(append(doc{}, c.hello...)), raw(append(doc{}, c.buildInfo...)))
		switch {
		case c.refused == "" && (err != nil || standalone != c.standalone):
			t.Errorf("%s: got standalone=%v, %v", what, standalone, err)
		case c.refused != "" && (!errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%s: got %v, want a refusal that names %s", what, err, c.refused)
		}
	}
}

func TestStandaloneIsWarnedOf(t *testing.T) {
	logger, text := logged()
	newTestLocker(t, mongotest.CollectionOf(t, mongotest.Connect(t, mongotest.Standalone(t))), WithLogger(logger))
	if !strings.Contains(text.String(), "not a replica set") {
		t.Errorf("logged %q", text)
	}
	logger, text = logged()
	newTestLocker(t, mongotest.Collection(t), WithLogger(logger))
	if text.String() != "" {
		t.Errorf("on a replica set: logged %q", text)
	}
}

// Under a collation two names would be one; a view cannot be written; a capped
// collection drops its oldest documents, held locks among them.
func TestUnfitCollections(t *testing.T) {
	coll := mongotest.Collection(t)
	db := coll.Database()
	ctx := bounded(t)
	if err := db.CreateCollection(ctx, "insensitive", options.CreateCollection().SetCollation(&options.Collation{Locale: "en", Strength: 1})); err != nil {
		t.Fatal(err)
	}
	if err := db.CreateView(ctx, "view", "insensitive", mongo.Pipeline{}); err != nil {
		t.Fatal(err)
	}
	if err := db.CreateCollection(ctx, "capped", options.CreateCollection().SetCapped(true).SetSizeInBytes(1<<20)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"insensitive": "collation", "view": "view", "capped": "remove locks that are held"} {
		if _, err := New(ctx, db.Collection(name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestOptions(t *testing.T) {
	coll := mongotest.Collection(t)
	for want, opt := range map[string]Option{
		"command timeout": WithCommandTimeout(0), "retention": WithRetention(time.Minute), "logger": WithLogger(nil),
		"whole seconds": WithRetention(time.Hour + time.Millisecond),
	} {
		if _, err := New(bounded(t), coll, opt); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
	if _, err := New(bounded(t), nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("without a collection: %v", err)
	}
}

func TestIndex(t *testing.T) {
	coll := mongotest.Collection(t)
	ctx := bounded(t)
	retention := func() time.Duration {
		t.Helper()
		specs, err := coll.Indexes().ListSpecifications(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range specs {
			if s.ExpireAfterSeconds != nil && leadingField(s.KeysDocument) == fieldExpiresAt {
				return time.Duration(*s.ExpireAfterSeconds) * time.Second
			}
		}
		return 0
	}
	for _, step := range []struct {
		opts    []Option
		want    time.Duration
		warning string
	}{
		{nil, 24 * time.Hour, ""},
		{nil, 24 * time.Hour, ""},
		{[]Option{WithRetention(2 * time.Hour)}, 24 * time.Hour, "another retention"},
		{[]Option{WithRetention(2 * time.Hour), WithIndexUpdate()}, 2 * time.Hour, ""},
	} {
		logger, text := logged()
		newTestLocker(t, coll, append(step.opts, WithLogger(logger))...)
		if got := retention(); got != step.want {
			t.Errorf("the index says %v, want %v", got, step.want)
		}
		if got := text.String(); !strings.Contains(got, step.warning) || step.warning == "" && got != "" {
			t.Errorf("logged %q, want %q", got, step.warning)
		}
	}
	// One on another field would remove locks that are held.
	other := coll.Database().Collection("other")
	if _, err := other.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: is(fieldRenewedAt, 1), Options: options.Index().SetExpireAfterSeconds(10)}); err != nil {
		t.Fatal(err)
	}
	if _, err := New(ctx, other); err == nil || !strings.Contains(err.Error(), "remove locks") {
		t.Errorf("got %v, want a refusal", err)
	}
}

// The index is made without waiting for members that are down. One that another process made
// at the same moment, with other settings, is reported.
func TestIndexMadeByTwo(t *testing.T) {
	t.Parallel()
	var log commandLog
	client := mongotest.Connect(t, mongotest.URI(t), options.Client().SetMonitor(log.monitor()))
	logger, text := logged()
	l := newTestLocker(t, mongotest.CollectionOf(t, client), WithLogger(logger))
	quorum := ""
	for _, c := range log.take() {
		if leadingField(c) == "createIndexes" {
			quorum, _ = c.Lookup("commitQuorum").StringValueOK()
		}
	}
	if quorum != "majority" {
		t.Errorf("createIndexes with commitQuorum %q, want majority", quorum)
	}
	l.config.retention = 2 * time.Hour
	if err := l.createIndex(bounded(t)); err != nil || !strings.Contains(text.String(), "other settings") {
		t.Errorf("%v, logged %q", err, text)
	}
}

// An index that only begins with expiresAt expires nothing.
func TestCompoundIndexIsAnothers(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	if _, err := coll.Indexes().CreateOne(bounded(t), mongo.IndexModel{Keys: doc{field(fieldExpiresAt, 1), field(fieldOwner, 1)}}); err != nil {
		t.Fatal(err)
	}
	newTestLocker(t, coll, WithIndexUpdate())
	specs, err := coll.Indexes().ListSpecifications(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(specs, func(s mongo.IndexSpecification) bool { return s.Name == indexName && s.ExpireAfterSeconds != nil }) {
		t.Errorf("no TTL index among %v", specs)
	}
}

// The server's TTL thread removes what expired a retention ago; the next token
// is still greater. A holder learns of the removal.
func TestRemovalByTheIndex(t *testing.T) {
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // a server of the user's own may look once a minute
	defer cancel()
	lease := acquire(t, l, request("old", "a"))
	change(t, coll, "old", field(fieldExpiresAt, time.Now().Add(-25*time.Hour)))
	for {
		r, err := l.Inspect(ctx, "old")
		if err != nil {
			t.Fatal(err)
		}
		if r.Token == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond) // the thread comes by every second on a server of mongotest
	}
	if err := l.Renew(ctx, lease); !errors.Is(err, driver.ErrLost) {
		t.Errorf("got %v, want lost", err)
	}
	if next := acquire(t, l, request("old", "b")); next.Token <= lease.Token {
		t.Errorf("token %d after %d", next.Token, lease.Token)
	}
}
