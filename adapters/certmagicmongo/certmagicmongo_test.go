package certmagicmongo

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/adapters/internal/filestest"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

type keyInfo = filestest.KeyInfo

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func newFiles(t *testing.T, collection *mongo.Collection) *Files[keyInfo] {
	t.Helper()
	files, err := NewFiles[keyInfo](collection)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestFiles(t *testing.T) {
	filestest.Run(t, func(t *testing.T) func() filestest.Files {
		collection := mongotest.Collection(t)
		return func() filestest.Files { return newFiles(t, collection) }
	})
	if _, err := NewFiles[keyInfo](nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("no collection: %v", err)
	}
}

// The server's details of a failed validation quote the value, which may be a private key.
func TestErrorsDoNotQuoteValues(t *testing.T) {
	ctx, collection := bounded(t), mongotest.Collection(t)
	rule := bson.D{{Key: fieldValue, Value: bson.D{{Key: "$type", Value: "string"}}}}
	if err := collection.Database().CreateCollection(ctx, collection.Name(), options.CreateCollection().SetValidator(rule)); err != nil {
		t.Fatal(err)
	}
	value := []byte("PRIVATE KEY")
	quoted := func(err error) bool {
		return strings.Contains(err.Error(), "UFJJVkFURSBLRVk") || strings.Contains(err.Error(), "PRIVATE")
	}
	if _, err := collection.InsertOne(ctx, bson.D{{Key: fieldValue, Value: bson.Binary{Data: value}}}); err == nil || !quoted(err) {
		t.Fatalf("the server's own error does not quote the value, so this test shows nothing: %v", err)
	}
	err := newFiles(t, collection).Store(ctx, "key", value)
	if err == nil || quoted(err) || !strings.Contains(err.Error(), "failed validation") {
		t.Errorf("Store: %v", err)
	}
}

// Open has the locks and the values on one connection, which Shutdown closes.
func TestOpen(t *testing.T) {
	ctx, database := bounded(t), mongotest.Collection(t).Database()
	base, query, _ := strings.Cut(mongotest.URI(t), "?")
	url := strings.TrimSuffix(base, "/") + "/" + database.Name() + "?" + query
	storage, client, err := Open[keyInfo](ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(storage.Lock(ctx, "issue"), storage.Store(ctx, "a/b", []byte("value")), storage.Unlock(ctx, "issue")); err != nil {
		t.Error(err)
	}
	if n, err := database.Collection(Collection).CountDocuments(ctx, bson.D{}); n != 1 || err != nil {
		t.Errorf("%d documents, %v", n, err)
	}
	if text := storage.String(); !strings.Contains(text, database.Name()+"."+Collection) {
		t.Errorf("String: %s", text)
	}
	if err := client.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if _, err := storage.Load(ctx, "a/b"); !errors.Is(err, mongo.ErrClientDisconnected) {
		t.Errorf("Load after Shutdown: %v", err)
	}
	for _, bad := range []string{"mongodb://127.0.0.1", "file:/tmp"} {
		if _, _, err := Open[keyInfo](ctx, bad); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Open(%q): %v", bad, err)
		}
	}
}
