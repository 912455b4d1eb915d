package mongo

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/mongotest"
)

// A record of the wrong shape is neither granted nor mended nor freed: every
// operation names it and leaves it as it was.
func TestDamagedRecords(t *testing.T) {
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	ctx := bounded(t)
	past := time.Now().Add(-time.Hour)
	for what, fields := range map[string][]bson.E{
		"no expiry":           {field(fieldExpiresAt, nothing)},
		"expiry a text":       {field(fieldExpiresAt, literal("2020-01-01"))},
		"expiry a number":     {field(fieldExpiresAt, 5)},
		"expiry null":         {field(fieldExpiresAt, nil)},
		"kid a number":        {field(fieldKid, 7), field(fieldExpiresAt, past)},
		"kid null":            {field(fieldKid, nil)},
		"kid empty":           {field(fieldKid, literal(""))},
		"token a text":        {field(fieldToken, literal("9")), field(fieldExpiresAt, past)},
		"token a double":      {field(fieldToken, 1.5), field(fieldExpiresAt, past)},
		"token an int":        {field(fieldToken, 5), field(fieldExpiresAt, past)},
		"token exhausted":     {field(fieldToken, int64(1<<63-1)), field(fieldExpiresAt, past)},
		"no token":            {field(fieldToken, nothing)},
		"schema of tomorrow":  {field(fieldVersion, 2), field(fieldExpiresAt, past)},
		"schema without v":    {field(fieldVersion, nothing), field(fieldExpiresAt, past)},
		"free, of tomorrow":   {field(fieldVersion, 2), field(fieldKid, nothing)},
		"free, token a text":  {field(fieldToken, literal("9")), field(fieldKid, nothing)},
		"free, expiry a text": {field(fieldExpiresAt, literal("x")), field(fieldKid, nothing)},
	} {
		name := "damaged " + what
		lease := acquire(t, l, request(name, "holder"))
		change(t, coll, name, fields...)
		before := stored(t, coll, name)
		_, acquireErr := l.TryAcquire(ctx, request(name, "other"))
		_, againErr := l.TryAcquire(ctx, request(name, "holder"))
		_, handOverErr := l.HandOver(ctx, lease, request(name, "other"))
		_, inspectErr := l.Inspect(ctx, name)
		for op, err := range map[string]error{
			"acquire": acquireErr, "acquire again": againErr, "hand over": handOverErr, "inspect": inspectErr,
			"renew": l.Renew(ctx, lease), "release": l.Release(ctx, lease),
			"break": l.Break(ctx, name), "break now": l.BreakNow(ctx, name), "write data": l.WriteData(ctx, lease, []byte("x"), granted(lease)),
		} {
			var bad *badRecordError
			if !errors.As(err, &bad) || bad.name != name || !strings.Contains(err.Error(), name) {
				t.Errorf("%s, %s: got %v, want an error that names the record", what, op, err)
			}
		}
		if after := stored(t, coll, name); !slices.Equal(before, after) {
			t.Errorf("%s: changed from %v to %v", what, before, after)
		}
	}
}

// Of a free lock's record only the version must be there: what a person who mends one by hand
// leaves out does not keep it from being taken.
func TestSparseRecordsAreFree(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	past := field(fieldExpiresAt, time.Now().Add(-time.Hour))
	for what, fields := range map[string]doc{
		"nothing": {}, "a version": {field(fieldVersion, 1)}, "a token": {field(fieldVersion, 1), field(fieldToken, int64(7))},
		"an expiry": {field(fieldVersion, 1), past}, "token and expiry": {field(fieldVersion, 1), past, field(fieldToken, int64(7))},
	} {
		if _, err := coll.InsertOne(bounded(t), append(is(fieldName, what), fields...)); err != nil {
			t.Fatal(err)
		}
		if _, err := l.TryAcquire(bounded(t), request(what, "a")); err != nil {
			t.Errorf("with %s: %v", what, err)
		}
	}
}

// A document that another program put there is not taken for a free lock.
func TestForeignDocument(t *testing.T) {
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	if _, err := coll.InsertOne(bounded(t), doc{{Key: "_id", Value: "n"}, {Key: "balance", Value: 5}}); err != nil {
		t.Fatal(err)
	}
	before := stored(t, coll, "n")
	if _, err := l.TryAcquire(bounded(t), request("n", "a")); err == nil || errors.Is(err, driver.ErrHeld) {
		t.Errorf("got %v, want an error that is not held", err)
	}
	if after := stored(t, coll, "n"); !slices.Equal(before, after) {
		t.Errorf("changed from %v to %v", before, after)
	}
}

// List names the records that cannot be read among the sound ones.
func TestListOfManyAndDamaged(t *testing.T) {
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	const many = 2*listPage + 5
	var documents []any
	for i := range many {
		version := 1
		if i == listPage-2 { // with p-0003x before it, the last of its page
			version = 3
		}
		documents = append(documents, doc{{Key: "_id", Value: fmt.Sprintf("p-%04d", i)}, {Key: "v", Value: version}, {Key: "token", Value: int64(i + 1)}})
	}
	documents = append(documents, doc{{Key: "_id", Value: "p-0003x"}, {Key: "v", Value: 3}},
		doc{{Key: "_id", Value: "q"}, {Key: "v", Value: 1}}, doc{{Key: "_id", Value: 17}})
	if _, err := coll.InsertMany(bounded(t), documents); err != nil {
		t.Fatal(err)
	}
	var got []string
	for r, err := range l.List(bounded(t), "p-") {
		got = append(got, r.Name)
		if damaged := r.Name == "p-0003x" || r.Name == "p-0098"; damaged != (err != nil) || damaged && !strings.Contains(err.Error(), r.Name) {
			t.Errorf("%q: got error %v", r.Name, err)
		}
	}
	if len(got) != many+1 || !slices.IsSorted(got) {
		t.Errorf("%d names of %d: %v", len(got), many+1, got)
	}
}

// What has no name can be no lock, and does not end a list of everything.
func TestListPassesOverDocumentsWithoutAName(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	for _, document := range []doc{
		{field("_id", "")}, // damaged: without a version
		{field("_id", 17)}, {field("_id", doc{field("a", 1)})},
		{field("_id", "a"), field("v", "x")}, {field("_id", "b"), field("v", 1), field("token", int64(5))},
	} {
		if _, err := coll.InsertOne(bounded(t), document); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for r, err := range l.List(bounded(t), "") {
		if err != nil {
			r.Name += ": error"
		}
		got = append(got, r.Name)
	}
	if want := []string{"a: error", "b"}; !slices.Equal(got, want) {
		t.Errorf("List yields %q, want %q", got, want)
	}
}

// The count of the writes decides of data alone.
func TestDamagedCountOfWrites(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	ctx := bounded(t)
	for what, count := range map[string]any{"a text": literal("1"), "below zero": -1} {
		lease := acquire(t, l, request("n", "of "+what))
		change(t, coll, "n", field(fieldWrites, count))
		_, inspectErr := l.Inspect(ctx, "n")
		_, _, readErr := l.ReadData(ctx, "n")
		for op, err := range map[string]error{
			"inspect": inspectErr, "read data": readErr, "write data": l.WriteData(ctx, lease, []byte("x"), granted(lease)),
		} {
			var bad *badRecordError
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), fieldWrites) {
				t.Errorf("%s, %s: got %v, want an error that names the field", what, op, err)
			}
		}
		if err := errors.Join(l.Renew(ctx, lease), l.Release(ctx, lease)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		lease = acquire(t, l, request("n", "after "+what)) // which begins to count anew
		if err := errors.Join(l.WriteData(ctx, lease, nil, granted(lease)), l.Release(ctx, lease)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
