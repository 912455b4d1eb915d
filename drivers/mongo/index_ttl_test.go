package mongo

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// makeIndex makes an index as a person would, with mongosh.
func makeIndex(t *testing.T, coll *mongo.Collection, name string, key doc, extra ...bson.E) {
	t.Helper()
	index := append(doc{field("key", key), field("name", name)}, extra...)
	create := doc{field("createIndexes", coll.Name()), field("indexes", list{index})}
	if err := coll.Database().RunCommand(bounded(t), create).Err(); err != nil {
		t.Fatal(err)
	}
}

// findings returns what Check reports of a subject.
func findings(t *testing.T, l *Locker, subject string) (all []driver.Finding) {
	t.Helper()
	if err := l.Check(bounded(t), func(f driver.Finding) {
		if f.Subject == subject {
			all = append(all, f)
		}
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// runAdvised runs the command in mongosh that a text advises.
func runAdvised(t *testing.T, coll *mongo.Collection, text string) {
	t.Helper()
	m := regexp.MustCompile(`db\.getSiblingDB\("([^"]*)"\)\.runCommand\((.*)\)`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no command in %q", text)
	}
	var cmd bson.D
	if err := bson.UnmarshalExtJSON([]byte(m[2]), false, &cmd); err != nil {
		t.Fatal(err)
	}
	if err := coll.Database().Client().Database(m[1]).RunCommand(bounded(t), cmd).Err(); err != nil {
		t.Fatalf("%s: %v", m[0], err)
	}
}

// Every TTL index but one on expiresAt alone is refused, by New and by a check, whether it was made before the driver's own
// or after it. The command that the error names drops it.
func TestTTLIndexOnAnotherField(t *testing.T) {
	t.Parallel()
	ttl := field("expireAfterSeconds", 3600)
	for name, index := range map[string]doc{
		"acquiredAt":       {field("key", docOf(fieldAcquiredAt, 1)), ttl},
		"ts downwards":     {field("key", docOf(fieldRenewedAt, -1)), ttl},
		"another field":    {field("key", docOf("createdAt", 1)), ttl},
		"nested":           {field("key", docOf(fieldReaders+".a", 1)), ttl},
		"of the history":   {field("key", docOf(fieldHistory+"."+pastAcquired, 1)), ttl},
		"hidden":           {field("key", docOf(fieldReleasedAt, 1)), ttl, field("hidden", true)},
		"partial":          {field("key", docOf(fieldFreedAt, 1)), ttl, field("partialFilterExpression", docOf(fieldToken, docOf("$gt", 0)))},
		"of many fields":   {field("key", docOf(fieldOwner, "text")), ttl},
		"a part of a date": {field("key", docOf(fieldAcquiredAt, 1)), field("expireAfterSeconds", 3600.5)},
		"hashed":           {field("key", docOf(fieldExpiresAt, "hashed")), ttl},
	} {
		for _, order := range []string{"before", "after"} {
			t.Run(name+" "+order, func(t *testing.T) {
				t.Parallel()
				coll := mongotest.Collection(t)
				create := func() {
					key, _ := index[0].Value.(doc)
					makeIndex(t, coll, "theirs", key, index[1:]...)
				}
				if order == "before" {
					create()
				}
				l := forCheck(t, coll)
				if order == "after" {
					newTestLocker(t, coll)
					create()
				}
				_, err := New(bounded(t), coll, WithLogger(discard))
				var invalid *driver.InvalidError
				if !errors.As(err, &invalid) || !strings.Contains(err.Error(), "TTL index theirs") {
					t.Fatalf("New: %v, want a refusal of the index", err)
				}
				found := findings(t, l, subjectIndex)
				if len(found) != 1 || found[0].Level != driver.LevelWrong || !strings.Contains(err.Error(), found[0].Command) {
					t.Errorf("the check found %v; New said %v", found, err)
				}
				runAdvised(t, coll, err.Error())
				newTestLocker(t, coll)
				if found := findings(t, l, subjectIndex); len(found) != 1 || found[0].Level != driver.LevelOK {
					t.Errorf("without the index the check found %v", found)
				}
			})
		}
	}
}

// A TTL index on another field that appears while programs run makes two holders: the server removes the record of a held
// lock. A check reports it, and the next start refuses it.
func TestTTLIndexThatAppearsLater(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	first, second := newTestLocker(t, coll), newTestLocker(t, coll)
	long := request("job", "a")
	long.TTL = time.Hour
	lease := acquire(t, first, long)
	makeIndex(t, coll, "theirs", docOf(fieldAcquiredAt, 1), field("expireAfterSeconds", 0))
	eventually(t, "a second holder", func() bool {
		_, err := second.TryAcquire(bounded(t), request("job", "b"))
		if err != nil && !errors.Is(err, driver.ErrHeld) {
			t.Fatal(err)
		}
		return err == nil
	})
	if _, err := first.Renew(bounded(t), lease); !errors.Is(err, driver.ErrLost) {
		t.Errorf("the first holder's renewal: %v", err)
	}
	if found := findings(t, first, subjectIndex); len(found) != 1 || found[0].Level != driver.LevelWrong {
		t.Errorf("the check found %v", found)
	}
	if _, err := New(bounded(t), coll, WithLogger(discard)); err == nil || !strings.Contains(err.Error(), "TTL index theirs") {
		t.Errorf("a new start beside two holders: %v, want a refusal", err)
	}
}

// A check of a server that nobody has used yet finds nothing wrong. Without access control it asks for no privilege.
func TestCheckIndexBeforeTheFirstStart(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	found := findings(t, forCheck(t, coll), subjectIndex)
	if len(found) != 1 || found[0].Level != driver.LevelOK || !strings.Contains(found[0].Detail, "no collection "+coll.Database().Name()) {
		t.Errorf("without a collection the check found %v", found)
	}
	if err := coll.Database().CreateCollection(bounded(t), coll.Name()); err != nil {
		t.Fatal(err)
	}
	found = findings(t, forCheck(t, coll), subjectIndex)
	if len(found) != 1 || found[0].Level != driver.LevelDoubtful || strings.Contains(found[0].Remedy, "Grant") {
		t.Errorf("without an index the check found %v", found)
	}
}
