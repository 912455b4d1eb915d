package certmagicmongo

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/mongotest"
)

// keyInfo has the fields of certmagic.KeyInfo.
type keyInfo struct {
	Key        string
	Modified   time.Time
	Size       int64
	IsTerminal bool
}

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

func TestValues(t *testing.T) {
	ctx, files := bounded(t), newFiles(t, mongotest.Collection(t))
	for name, value := range map[string][]byte{"empty": nil, "text": []byte("$key"), "longest": bytes.Repeat([]byte{0xff}, MaxValue)} {
		for range 2 { // the second replaces the first
			if err := files.Store(ctx, name, value); err != nil {
				t.Fatal(err)
			}
		}
		got, err := files.Load(ctx, name)
		if err != nil || got == nil || !bytes.Equal(got, value) {
			t.Errorf("Load of the %s value: %d bytes, %v", name, len(got), err)
		}
		info, err := files.Stat(ctx, name)
		if err != nil || info.Key != name || info.Size != int64(len(value)) || !info.IsTerminal || time.Since(info.Modified).Abs() > time.Hour {
			t.Errorf("Stat of the %s value: %+v, %v", name, info, err)
		}
	}
	err := files.Store(ctx, "long", make([]byte, MaxValue+1))
	if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "16 MB") || files.Exists(ctx, "long") {
		t.Errorf("a value that is too long: %v", err)
	}
}

func TestMissingKeys(t *testing.T) {
	ctx, files := bounded(t), newFiles(t, mongotest.Collection(t))
	check := func(path string) {
		t.Helper()
		_, load := files.Load(ctx, path)
		_, stat := files.Stat(ctx, path)
		_, list := files.List(ctx, path, true)
		for what, err := range map[string]error{"Load": load, "Stat": stat, "List": list} {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s of %q: %v", what, path, err)
			}
		}
		if files.Exists(ctx, path) {
			t.Errorf("%q exists", path)
		}
		if err := files.Delete(ctx, path); err != nil {
			t.Errorf("Delete of %q: %v", path, err)
		}
	}
	check("")
	check("a")
	if err := errors.Join(files.Store(ctx, "a/b", nil), files.Store(ctx, "a0", nil), files.Store(ctx, "a-", nil)); err != nil {
		t.Fatal(err)
	}
	check("a/b/c")
	check("A") // keys are case-sensitive
	check("a/b0")
	if err := files.Delete(ctx, "a/"); err != nil { // the directory, with all that is below it
		t.Error(err)
	}
	check("a")
	check("a/b")
	if keys, err := files.List(ctx, "", true); err != nil || !slices.Equal(keys, []string{"a-", "a0"}) {
		t.Errorf("what is left: %q, %v", keys, err)
	}
}

func TestInvalidArguments(t *testing.T) {
	ctx, files := bounded(t), newFiles(t, mongotest.Collection(t))
	_, none := NewFiles[keyInfo](nil)
	_, load := files.Load(ctx, "a\xff")
	_, stat := files.Stat(ctx, "a\x00")
	_, list := files.List(ctx, strings.Repeat("a", 1025), true)
	for what, err := range map[string]error{"no collection": none, "Load": load, "Stat": stat, "List": list,
		"Store at the root": files.Store(ctx, "/", nil), "Delete": files.Delete(ctx, "a\xff")} {
		if !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Many processes create the same key. None fails, and the value is one of theirs.
func TestConcurrentStores(t *testing.T) {
	ctx, collection := bounded(t), mongotest.Collection(t)
	var stores sync.WaitGroup
	for i := range byte(32) {
		files := newFiles(t, collection)
		stores.Go(func() {
			if err := files.Store(ctx, "key", bytes.Repeat([]byte{i}, 1000)); err != nil {
				t.Error(err)
			}
		})
	}
	stores.Wait()
	value, err := newFiles(t, collection).Load(ctx, "key")
	if err != nil || len(value) != 1000 || len(bytes.Trim(value, string(value[:1]))) != 0 {
		t.Errorf("Load: %d bytes, %v", len(value), err)
	}
}

// The server's details of a failed validation quote the value, which may be a private key.
func TestErrorsDoNotQuoteValues(t *testing.T) {
	ctx, collection := bounded(t), mongotest.Collection(t)
	rule := bson.D{{Key: "$jsonSchema", Value: bson.D{{Key: "required", Value: bson.A{"secret"}}}}}
	if err := collection.Database().CreateCollection(ctx, collection.Name(), options.CreateCollection().SetValidator(rule)); err != nil {
		t.Fatal(err)
	}
	err := newFiles(t, collection).Store(ctx, "key", []byte("PRIVATE KEY"))
	if err == nil || strings.Contains(err.Error(), "UFJJVkFURSBLRVk") || strings.Contains(err.Error(), "PRIVATE") {
		t.Errorf("Store: %v", err)
	}
}

func TestEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	files := newFiles(t, mongotest.Collection(t))
	if err := files.Store(ctx, "key", nil); !errors.Is(err, context.Canceled) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Store: %v", err)
	}
	if files.Exists(ctx, "key") {
		t.Error("a key exists whose Stat failed")
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
