package mongo

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// setValidator gives a collection a validator, as somebody else would.
func setValidator(t *testing.T, coll *mongo.Collection, validator doc, extra ...bson.E) {
	t.Helper()
	cmd := append(doc{field("collMod", coll.Name()), field("validator", validator)}, extra...)
	if err := coll.Database().RunCommand(bounded(t), cmd).Err(); err != nil {
		t.Fatal(err)
	}
}

// forCheck returns a Locker for examining the server.
func forCheck(t *testing.T, coll *mongo.Collection) *Locker {
	t.Helper()
	opened, err := openForCheck(bounded(t), urlOf(mongotest.URI(t), coll))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeLocker(t, opened) })
	l, ok := opened.(*Locker)
	if !ok {
		t.Fatalf("%T", opened)
	}
	return l
}

// wantLasting checks that an acquire is refused for good, so that waiters do not repeat it, and applies the error's remedy.
func wantLasting(t *testing.T, coll *mongo.Collection, err error, want string) {
	t.Helper()
	if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "id-of-a-lease") {
		t.Fatalf("%v, want a lasting refusal with %q", err, want)
	}
	runAdvised(t, coll, err.Error())
}

// A validator of somebody else that refuses the record of a test lock is logged by New and reported by a check, both as a doubt:
// it may accept the locks that programs use. An acquire that is refused says so at once and names the remedy.
func TestValidatorThatRefusesRecords(t *testing.T) {
	t.Parallel()
	for name, validator := range map[string]doc{
		"a field is missing": docOf("$jsonSchema", docOf("required", list{"tenant"})),
		"a type":             docOf(fieldToken, docOf("$type", "string")),
		"an expression":      docOf("$expr", docOf("$eq", list{"$owner", "nobody"})),
		"no other fields": docOf("$jsonSchema", doc{field("properties", docOf(fieldName, doc{})),
			field("additionalProperties", false)}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			coll := mongotest.Collection(t)
			newTestLocker(t, coll)
			setValidator(t, coll, validator)
			logger, log := locktest.NewLog()
			l := newTestLocker(t, coll, WithLogger(logger))
			if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "of a test lock") || !strings.Contains(got, "collMod") {
				t.Errorf("New logged %q", got)
			}
			found := findings(t, forCheck(t, coll), subjectCollection)
			if len(found) != 1 || found[0].Level != driver.LevelDoubtful || !strings.Contains(found[0].Command, "collMod") ||
				!strings.Contains(found[0].Detail, "of a test lock") {
				t.Errorf("the check found %v", found)
			}
			req := request("job", "id-of-a-lease")
			_, err := l.TryAcquire(bounded(t), req)
			wantLasting(t, coll, err, "the validator of")
			acquire(t, l, req)
			if found := findings(t, forCheck(t, coll), subjectCollection); len(found) != 1 || found[0].Level != driver.LevelOK {
				t.Errorf("after the remedy the check found %v", found)
			}
		})
	}
}

// A validator that accepts the records, or only warns, is no problem.
func TestHarmlessValidators(t *testing.T) {
	t.Parallel()
	refusing := docOf("$jsonSchema", docOf("required", list{"tenant"}))
	for name, rules := range map[string]doc{
		"accepts":                  {field("validator", docOf("$jsonSchema", docOf("properties", docOf(fieldToken, docOf("bsonType", "long")))))},
		"accepts the usual owners": {field("validator", docOf(fieldOwner, docOf("$regex", "^[a-z0-9]+/[0-9]+$")))},
		"accepts plain names":      {field("validator", docOf(fieldName, docOf("$regex", "^[a-z]+$")))},
		"warns":                    {field("validator", refusing), field("validationAction", "warn")},
		"off":                      {field("validator", refusing), field("validationLevel", "off")},
		"empty":                    {field("validator", doc{})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			coll := mongotest.Collection(t)
			newTestLocker(t, coll)
			validator, _ := rules[0].Value.(doc)
			setValidator(t, coll, validator, rules[1:]...)
			logger, log := locktest.NewLog()
			l := newTestLocker(t, coll, WithLogger(logger))
			if log.String() != "" {
				t.Errorf("New logged %q", log)
			}
			if found := findings(t, forCheck(t, coll), subjectCollection); len(found) != 1 || found[0].Level != driver.LevelOK {
				t.Errorf("the check found %v", found)
			}
			req := request("job", "a")
			req.Owner = "host/17"
			acquire(t, l, req)
		})
	}
}

// A unique index besides that on _id lets only one lock be taken, or breaks locks at random. New and a check refuse it, and a
// program that runs already is told by the first acquire that meets it.
func TestUniqueIndexIsRefused(t *testing.T) {
	t.Parallel()
	unique := field("unique", true)
	for name, index := range map[string]doc{
		"of another program": {field("key", docOf("tenant", 1)), unique},
		"on a field":         {field("key", docOf(fieldOwner, 1)), unique},
		"on two fields":      {field("key", doc{field("tenant", 1), field(fieldOwner, 1)}), unique},
		"sparse":             {field("key", docOf(fieldOwner, 1)), unique, field("sparse", true)},
		"partial":            {field("key", docOf(fieldOwner, 1)), unique, field("partialFilterExpression", docOf(fieldToken, docOf("$gt", 0)))},
		"of another program, partial": {field("key", docOf("tenant", 1)), unique,
			field("partialFilterExpression", docOf(fieldToken, docOf("$gt", 0)))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			coll := mongotest.Collection(t)
			l := newTestLocker(t, coll)
			key, _ := index[0].Value.(doc)
			makeIndex(t, coll, "theirs", key, index[1:]...)
			_, err := New(bounded(t), coll, WithLogger(discard))
			if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "unique index theirs of ") {
				t.Errorf("New: %v, want a refusal", err)
			}
			found := findings(t, forCheck(t, coll), subjectCollection)
			if len(found) != 1 || found[0].Level != driver.LevelWrong || found[0].Command == "" || !strings.Contains(err.Error(), found[0].Command) {
				t.Errorf("the check found %v", found)
			}
			first, second := request("first", "a"), request("second", "id-of-a-lease")
			second.Owner = first.Owner
			acquire(t, l, first)
			_, err = l.TryAcquire(bounded(t), second)
			wantLasting(t, coll, err, "the unique index \"theirs\"")
			acquire(t, l, second)
			newTestLocker(t, coll)
		})
	}
}

// Indexes that refuse no record are nobody's problem.
func TestHarmlessIndexes(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	unique := field("unique", true)
	makeIndex(t, coll, "plain", docOf(fieldOwner, 1))
	makeIndex(t, coll, "with _id", doc{field(fieldOwner, 1), field(fieldName, 1)}, unique)
	makeIndex(t, coll, "sparse", docOf("email", 1), unique, field("sparse", true))
	makeIndex(t, coll, "partial", docOf("phone", 1), unique, field("partialFilterExpression", docOf("phone", docOf("$exists", true))))
	makeIndex(t, coll, "of others", docOf(fieldOwner, 1), unique, field("partialFilterExpression", docOf("phone", docOf("$exists", true))))
	newTestLocker(t, coll)
	if found := findings(t, forCheck(t, coll), subjectCollection); len(found) != 1 || found[0].Level != driver.LevelOK {
		t.Errorf("the check found %v", found)
	}
	for _, name := range []string{"first", "second"} {
		req := request(name, name)
		req.Owner = "one"
		acquire(t, l, req)
	}
}

// A unique index on a field that a record can have is found out, whichever field that is.
func TestRecordFieldsAreComplete(t *testing.T) {
	code, err := os.ReadFile("fields.go")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(code), "// The fields of a lock's document")
	block, _, _ = strings.Cut(block, "fieldNow") // in replies
	found := regexp.MustCompile(`(?m)^\tfield\w+ += "(\w+)"`).FindAllStringSubmatch(block, -1)
	for _, m := range found {
		if !slices.Contains(recordFields, m[1]) {
			t.Errorf("recordFields lacks %s", m[1])
		}
	}
	if len(found) < 17 {
		t.Errorf("only %d fields were found", len(found))
	}
}
