package mongo

import (
	"errors"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// Servers are identified by their replies. The replies of the services have the parts that
// other tools check.
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
			{Key: "internal", Value: docOf("cosmos_versions", list{"1"})}}, refused: "DocumentDB on PostgreSQL"},
		"DocumentDB on PostgreSQL": {hello: doc{{Key: "maxWireVersion", Value: 17},
			{Key: "internal", Value: docOf("documentdb_versions", list{"0.117"})}}, refused: "DocumentDB on PostgreSQL"},
		"Amazon DocumentDB": {hello: doc{{Key: "setName", Value: "rs0"}, {Key: "maxWireVersion", Value: 13},
			{Key: "me", Value: "a.b.docdb.amazonaws.com:27017"}}, refused: "Amazon DocumentDB"},
		"Firestore": {hello: doc{{Key: "maxWireVersion", Value: 17}, {Key: "primary", Value: "x.firestore.goog:443"}}, refused: "Firestore"},
		"FerretDB":  {hello: doc{{Key: "maxWireVersion", Value: 21}}, buildInfo: doc{{Key: "ferretdb", Value: doc{}}}, refused: "FerretDB"},
	} {
		standalone, err := identify(mustMarshal(append(doc{}, c.hello...)), mustMarshal(append(doc{}, c.buildInfo...)))
		switch {
		case c.refused == "" && (err != nil || standalone != c.standalone):
			t.Errorf("%s: got standalone=%v, %v", what, standalone, err)
		case c.refused != "" && (!errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%s: got %v, want a refusal that names %s", what, err, c.refused)
		}
	}
}

func TestStandaloneIsLogged(t *testing.T) {
	logger, text := locktest.NewLog()
	newTestLocker(t, mongotest.CollectionOf(t, mongotest.Connect(t, mongotest.Standalone(t))), WithLogger(logger))
	if !strings.Contains(text.String(), "not a replica set") {
		t.Errorf("logged %q", text)
	}
	logger, text = locktest.NewLog()
	newTestLocker(t, mongotest.Collection(t), WithLogger(logger))
	if strings.Contains(text.String(), "not a replica set") {
		t.Errorf("on a replica set: logged %q", text)
	}
}

// Under a collation two names could be one, a view cannot be written, and a capped collection
// removes its oldest documents, also those of held locks.
func TestUnsuitableCollections(t *testing.T) {
	coll := mongotest.Collection(t)
	db := coll.Database()
	ctx := bounded(t)
	if err := db.CreateCollection(ctx, "insensitive", options.CreateCollection().SetCollation(&options.Collation{Locale: "en",
		Strength: 1})); err != nil {
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
