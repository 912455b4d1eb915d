package mongolock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/migrating"
	"github.com/holdfast-go/holdfast/migrating/mongolock"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

func TestMain(m *testing.M) { mongotest.Main(m) }

func newLock(t *testing.T, c *mongo.Collection, schema mongolock.Schema) *mongolock.Lock {
	t.Helper()
	l, err := mongolock.New(c, schema)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func claim(owner string) migrating.Claim {
	return migrating.Claim{Name: "job", Owner: owner, Proof: strings.Repeat(owner[:1], 32), TTL: 30 * time.Second}
}

// lockAsShedLock is ShedLock's MongoLockProvider.lock. It reports whether the lock was granted.
func lockAsShedLock(t *testing.T, c *mongo.Collection, name string, at time.Time) bool {
	t.Helper()
	err := c.FindOneAndUpdate(t.Context(), bson.M{"_id": name, "lockUntil": bson.M{"$lte": at}},
		bson.M{"$set": bson.D{{Key: "lockUntil", Value: at.Add(time.Minute)}, {Key: "lockedAt", Value: at},
			{Key: "lockedBy", Value: "old-host"}}},
		options.FindOneAndUpdate().SetUpsert(true)).Err()
	switch {
	case mongo.IsDuplicateKeyError(err):
		return false
	case err != nil && !errors.Is(err, mongo.ErrNoDocuments):
		t.Fatal(err)
	}
	return true
}

func document(t *testing.T, c *mongo.Collection, name string) bson.Raw {
	t.Helper()
	raw, err := c.FindOne(t.Context(), bson.M{"_id": name}).Raw()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func shape(t *testing.T, raw bson.Raw) (out []string) {
	t.Helper()
	elements, err := raw.Elements()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range elements {
		out = append(out, e.Key()+" "+e.Value().Type.String())
	}
	return out
}

// A document has the fields of ShedLock's own, of the same types and in the same order, whoever
// made it and took it last.
func TestDocumentOfShedLock(t *testing.T) {
	t.Parallel()
	c := mongotest.Collection(t)
	l := newLock(t, c, mongolock.ShedLock())
	lockAsShedLock(t, c, "theirs", time.Now())
	want := shape(t, document(t, c, "theirs"))
	if err := l.Acquire(t.Context(), claim("a")); err != nil {
		t.Fatal(err)
	}
	if got := shape(t, document(t, c, "job")); !slices.Equal(got, want) {
		t.Errorf("made here: %v, want %v", got, want)
	}
	if err := l.Release(t.Context(), claim("a")); err != nil {
		t.Fatal(err)
	}
	if !lockAsShedLock(t, c, "job", time.Now()) {
		t.Fatal("ShedLock does not get a released lock")
	}
	if got := shape(t, document(t, c, "job")); !slices.Equal(got, want) {
		t.Errorf("taken by ShedLock: %v, want %v", got, want)
	}
}

func TestEitherExcludesTheOther(t *testing.T) {
	t.Parallel()
	c, ctx := mongotest.Collection(t), t.Context()
	schema := mongolock.ShedLock()
	schema.Skew = time.Minute // longer than a pause of this test
	l := newLock(t, c, schema)
	a, b := claim("a"), claim("b")
	for range 2 { // the second is a repeat
		if err := l.Acquire(ctx, a); err != nil {
			t.Fatal(err)
		}
	}
	if lockAsShedLock(t, c, "job", time.Now()) {
		t.Fatal("ShedLock takes a lock that is held")
	}
	if lockAsShedLock(t, c, "job", time.Now().Add(a.TTL+schema.Skew/2)) {
		t.Fatal("a clock that is fast by less than Skew takes a lock that is held")
	}
	var held *driver.HeldError
	if err := l.Acquire(ctx, b); !errors.As(err, &held) || held.Record.Owner != "a" || !held.Record.RemainingKnown ||
		held.Record.Remaining < 2*time.Minute || held.Record.Remaining > 151*time.Second {
		t.Errorf("another claim: %v", err)
	}
	if err := l.Release(ctx, b); err != nil {
		t.Fatal(err)
	}
	if err := l.Renew(ctx, a); err != nil {
		t.Fatalf("after the release by another: %v", err)
	}
	if err := l.Renew(ctx, b); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a renewal by another: %v", err)
	}
	if err := l.Release(ctx, a); err != nil {
		t.Fatal(err)
	}
	if err := l.Renew(ctx, a); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a renewal after the release: %v", err)
	}
	if err := l.Acquire(ctx, b); err != nil {
		t.Fatalf("a released lock: %v", err)
	}
	if err := l.Release(ctx, b); err != nil {
		t.Fatal(err)
	}
	if !lockAsShedLock(t, c, "job", time.Now()) {
		t.Fatal("ShedLock does not get a released lock")
	}
	if err := l.Acquire(ctx, a); !errors.As(err, &held) || held.Record.Owner != "old-host" {
		t.Errorf("ShedLock holds the lock: %v", err)
	}
	if err := l.Renew(ctx, b); !errors.Is(err, driver.ErrLost) {
		t.Errorf("after the next holder: %v", err)
	}
}

// A renewal never shortens the lease, and the end of a lease counts only after the skew.
func TestEndOfALease(t *testing.T) {
	t.Parallel()
	c, ctx := mongotest.Collection(t), t.Context()
	schema := mongolock.ShedLock()
	schema.Skew = time.Minute
	l := newLock(t, c, schema)
	a := claim("a")
	if err := l.Acquire(ctx, a); err != nil {
		t.Fatal(err)
	}
	before := document(t, c, "job").Lookup("lockUntil").Time()
	short := a
	short.TTL = time.Second
	if err := l.Renew(ctx, short); err != nil {
		t.Fatal(err)
	}
	if after := document(t, c, "job").Lookup("lockUntil").Time(); after.Before(before) {
		t.Errorf("a renewal moved the end from %v to %v", before, after)
	}
	until := func(at time.Time) {
		if _, err := c.UpdateByID(ctx, "job", bson.M{"$set": bson.M{"lockUntil": at}}); err != nil {
			t.Fatal(err)
		}
	}
	until(time.Now().Add(-30 * time.Second))
	var held *driver.HeldError
	if err := l.Acquire(ctx, claim("b")); !errors.As(err, &held) || held.Record.Remaining > 31*time.Second {
		t.Errorf("30s after the end, with a skew of 1m: %v", err)
	}
	until(time.Now()) // a renewal holds the lock for the skew, too
	if err := l.Renew(ctx, short); err != nil {
		t.Fatal(err)
	}
	if left := time.Until(document(t, c, "job").Lookup("lockUntil").Time()); left < 30*time.Second {
		t.Errorf("a renewal by 1s holds the lock for %v, want 1s and the skew of 1m", left)
	}
	until(time.Now().Add(-2 * time.Minute))
	if err := l.Acquire(ctx, claim("b")); err != nil {
		t.Errorf("2m after the end: %v", err)
	}
}

// People write dates of other centuries to keep a lock, or none at all. The time left does not overflow.
func TestDatesFarAway(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), mongotest.Collection(t)
	for name, schema := range map[string]mongolock.Schema{"ShedLock": mongolock.ShedLock(),
		"held while present": {Until: "lockUntil", Owner: "lockedBy", HeldWhilePresent: true}} {
		l := newLock(t, c, schema)
		for year := -9000; year <= 9999; year += 100 {
			until := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
			past := time.Until(until) < 0
			if past && !schema.HeldWhilePresent {
				continue
			}
			if _, err := c.UpdateByID(ctx, "job", bson.M{"$set": bson.M{"lockUntil": until, "lockedBy": "old-host"}},
				options.UpdateOne().SetUpsert(true)); err != nil {
				t.Fatal(err)
			}
			var held *driver.HeldError
			if err := l.Acquire(ctx, claim("a")); !errors.As(err, &held) || past != (held.Record.Remaining == 0) ||
				past == held.Record.RemainingKnown || !past && held.Record.Remaining < 36*365*24*time.Hour {
				t.Errorf("%s: the year %d: %v", name, year, err)
			}
		}
	}
}

// A document that no such program writes is left as it is.
func TestDamagedDocuments(t *testing.T) {
	t.Parallel()
	c, ctx := mongotest.Collection(t), t.Context()
	l := newLock(t, c, mongolock.ShedLock())
	for what, value := range map[string]any{"text": "2020-01-01", "number": 5, "null": nil, "missing": mongo.Pipeline{}} {
		damaged := bson.D{{Key: "_id", Value: what}, {Key: "lockUntil", Value: value}, {Key: "lockedBy", Value: "host"}}
		if what == "missing" {
			damaged = slices.Delete(damaged, 1, 2)
		}
		if _, err := c.InsertOne(ctx, damaged); err != nil {
			t.Fatal(err)
		}
		before := document(t, c, what)
		a := claim("a")
		a.Name = what
		if err := l.Acquire(ctx, a); err == nil || errors.Is(err, driver.ErrHeld) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
		if after := document(t, c, what); after.String() != before.String() {
			t.Errorf("%s: %v became %v", what, before, after)
		}
	}
}

// A document without the fields of the schema was made by a program that the schema does not
// describe. It is not free.
func TestDocumentsWithOtherFields(t *testing.T) {
	t.Parallel()
	for style, schema := range map[string]mongolock.Schema{
		"shedlock": mongolock.ShedLock(),
		"insert":   {Until: "expiresAt", Owner: "holder", HeldWhilePresent: true},
	} {
		for what, other := range map[string]bson.D{"other fields": {{Key: "_id", Value: "job"}, {Key: "by", Value: "host"}},
			"no field": {{Key: "_id", Value: "job"}}} {
			c := mongotest.Collection(t)
			if _, err := c.InsertOne(t.Context(), other); err != nil {
				t.Fatal(err)
			}
			before := document(t, c, "job")
			switch err := newLock(t, c, schema).Acquire(t.Context(), claim("a")); {
			case err == nil || errors.Is(err, driver.ErrHeld) != schema.HeldWhilePresent:
				t.Errorf("%s, %s: %v", style, what, err)
			case !schema.HeldWhilePresent && !strings.Contains(err.Error(), "job"):
				t.Errorf("%s, %s: %v does not name the document", style, what, err)
			}
			if after := document(t, c, "job"); after.String() != before.String() {
				t.Errorf("%s, %s: %v became %v", style, what, before, after)
			}
		}
	}
}

// The lock is no part of the caller's transaction: others see it at once, and an abort changes
// nothing.
func TestCallersTransaction(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for style, schema := range map[string]mongolock.Schema{
		"shedlock": mongolock.ShedLock(),
		"expiry":   {Until: "lockUntil", Owner: "lockedBy", DeleteOnRelease: true},
	} {
		c := mongotest.Collection(t)
		l := newLock(t, c, schema)
		inTransaction := func(call func(ctx context.Context) error) {
			session, err := c.Database().Client().StartSession()
			if err != nil {
				t.Fatal(err)
			}
			defer session.EndSession(ctx)
			if err := session.StartTransaction(); err != nil {
				t.Fatal(err)
			}
			if err := call(mongo.NewSessionContext(ctx, session)); err != nil {
				t.Fatalf("%s: %v", style, err)
			}
			if err := session.AbortTransaction(ctx); err != nil {
				t.Fatal(err)
			}
		}
		a := claim("a")
		inTransaction(func(ctx context.Context) error { return l.Acquire(ctx, a) })
		if lockAsShedLock(t, c, "job", time.Now()) {
			t.Fatalf("%s: ShedLock takes a lock that is held", style)
		}
		end := document(t, c, "job").Lookup("lockUntil").Time()
		a.TTL = time.Hour
		inTransaction(func(ctx context.Context) error { return l.Renew(ctx, a) })
		if renewed := document(t, c, "job").Lookup("lockUntil").Time(); !renewed.After(end) {
			t.Errorf("%s: the renewal moved the end from %v to %v", style, end, renewed)
		}
		inTransaction(func(ctx context.Context) error { return l.Release(ctx, a) })
		if !lockAsShedLock(t, c, "job", time.Now()) {
			t.Errorf("%s: ShedLock does not get a released lock", style)
		}
	}
}

// Values of the caller's are taken literally.
func TestLiteralOwner(t *testing.T) {
	t.Parallel()
	c, ctx := mongotest.Collection(t), t.Context()
	l := newLock(t, c, mongolock.ShedLock())
	a := claim("$lockUntil")
	if err := l.Acquire(ctx, a); err != nil {
		t.Fatal(err)
	}
	if err := l.Acquire(ctx, claim("b")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("%v", err)
	}
	if err := l.Renew(ctx, a); err != nil {
		t.Error(err)
	}
	if err := l.Release(ctx, a); err != nil {
		t.Fatal(err)
	}
	if got := document(t, c, "job").Lookup("lockedBy").StringValue(); got != a.Owner {
		t.Errorf("the owner of a released lock is %q, want %q", got, a.Owner)
	}
}

// Where a document means that the lock is held, only its removal frees the lock.
func TestHeldWhilePresent(t *testing.T) {
	t.Parallel()
	c, ctx := mongotest.Collection(t), t.Context()
	l := newLock(t, c, mongolock.Schema{Until: "expiresAt", Owner: "holder", HeldWhilePresent: true})
	if _, err := c.InsertOne(ctx, bson.M{"_id": "job", "expiresAt": time.Now().Add(-time.Hour), "holder": "old"}); err != nil {
		t.Fatal(err)
	}
	if err := l.Acquire(ctx, claim("a")); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("an hour after the end: %v", err)
	}
	if _, err := c.DeleteOne(ctx, bson.M{"_id": "job"}); err != nil {
		t.Fatal(err)
	}
	if err := l.Acquire(ctx, claim("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.InsertOne(ctx, bson.M{"_id": "job"}); !mongo.IsDuplicateKeyError(err) {
		t.Errorf("another program's insert: %v", err)
	}
	if err := l.Release(ctx, claim("a")); err != nil {
		t.Fatal(err)
	}
	if n, err := c.CountDocuments(ctx, bson.M{}); n != 0 || err != nil {
		t.Errorf("%d documents (%v) after the release", n, err)
	}
	if err := l.Renew(ctx, claim("a")); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a renewal after the removal: %v", err)
	}
}

func TestSchemaIsChecked(t *testing.T) {
	t.Parallel()
	c := mongotest.Collection(t)
	for _, schema := range []mongolock.Schema{{}, {Until: "until"}, {Until: "a.b", Owner: "owner"}, {Until: "_id", Owner: "owner"},
		{Until: "u", Owner: "$o"},
		{Until: "u", Owner: "o", At: "a.b"}, {Until: "u", Owner: "o", Skew: -1}, {Until: "u", Owner: "o", Skew: 2 * time.Hour}} {
		if _, err := mongolock.New(c, schema); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%+v: %v", schema, err)
		}
	}
	if _, err := mongolock.New(nil, mongolock.ShedLock()); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("without a collection: %v", err)
	}
}
