package mongolock_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/migrating/mongolock"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

func makeTTLIndex(t *testing.T, c *mongo.Collection, name string, keys ...string) {
	t.Helper()
	var fields bson.D
	for _, key := range keys {
		fields = append(fields, bson.E{Key: key, Value: 1})
	}
	index := options.Index().SetName(name)
	if len(keys) == 1 {
		index.SetExpireAfterSeconds(3600)
	}
	if _, err := c.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: fields, Options: index}); err != nil {
		t.Fatal(err)
	}
}

// An index that would remove the documents of held locks is refused until it is dropped. The indexes that
// remove none are accepted, and the question is asked once.
func TestTTLIndex(t *testing.T) {
	t.Parallel()
	c, ctx := mongotest.Collection(t), t.Context()
	makeTTLIndex(t, c, "over", "lockUntil")
	makeTTLIndex(t, c, "by holder", "lockedBy", "lockedAt")
	l := newLock(t, c, mongolock.ShedLock())
	for _, field := range []string{"lockedAt", "createdAt"} { // the second is no field of the schema
		makeTTLIndex(t, c, "old", field)
		for range 2 {
			err := l.Acquire(ctx, claim("a"))
			var invalid *driver.InvalidError
			if !errors.As(err, &invalid) || !strings.Contains(err.Error(), `TTL index old of `) || !strings.Contains(err.Error(), field) {
				t.Errorf("with a TTL index on %s: %v", field, err)
			}
		}
		if n, err := c.CountDocuments(ctx, bson.M{}); n != 0 || err != nil {
			t.Errorf("%d documents (%v) after a refusal", n, err)
		}
		if err := c.Indexes().DropOne(ctx, "old"); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Acquire(ctx, claim("a")); err != nil {
		t.Fatal(err)
	}
	makeTTLIndex(t, c, "old", "lockedAt")
	if err := l.Acquire(ctx, claim("a")); err != nil {
		t.Errorf("the indexes were listed again: %v", err)
	}
}

// Who may not list indexes gets the lock without that check. Another failure is returned.
func TestIndexesCannotBeListed(t *testing.T) {
	t.Parallel()
	rs := mongotest.StartReplicaSet(t, mongotest.Options{Members: 1})
	control := mongotest.Connect(t, rs.URI())
	for code, ok := range map[int]bool{13: true, 8000: false} {
		c := mongotest.CollectionOf(t, mongotest.Connect(t, rs.URI(), options.Client().SetAppName("checked")))
		if err := control.Database("admin").RunCommand(t.Context(), bson.D{
			{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: bson.M{"times": 1}},
			{Key: "data", Value: bson.M{"appName": "checked", "failCommands": bson.A{"listIndexes"}, "errorCode": code}},
		}).Err(); err != nil {
			t.Fatal(err)
		}
		l := newLock(t, c, mongolock.ShedLock())
		if err := l.Acquire(t.Context(), claim("a")); (err == nil) != ok || errors.Is(err, driver.ErrHeld) {
			t.Errorf("code %d: %v", code, err)
		}
		if err := l.Acquire(t.Context(), claim("a")); err != nil {
			t.Errorf("after code %d: %v", code, err)
		}
	}
}

// The server's time limit may be reached just before the caller's own.
func TestServersTimeLimit(t *testing.T) {
	t.Parallel()
	rs := mongotest.StartReplicaSet(t, mongotest.Options{Members: 1})
	const codeMaxTimeMSExpired = 50
	l := newLock(t, mongotest.CollectionOf(t, mongotest.Connect(t, rs.URI(), options.Client().SetAppName("limited"))), mongolock.ShedLock())
	if err := l.Acquire(t.Context(), claim("a")); err != nil {
		t.Fatal(err)
	}
	if err := mongotest.Connect(t, rs.URI()).Database("admin").RunCommand(t.Context(), bson.D{
		{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: bson.M{"times": 1}},
		{Key: "data", Value: bson.M{"appName": "limited", "failCommands": bson.A{"update"},
			"writeConcernError": bson.M{"code": codeMaxTimeMSExpired, "errmsg": "operation exceeded time limit"}}},
	}).Err(); err != nil {
		t.Fatal(err)
	}
	if err := l.Renew(t.Context(), claim("a")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Renew: %v", err)
	}
}
