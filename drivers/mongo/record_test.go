package mongo

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/mongotest"
)

// A record of the wrong form is not granted, repaired or freed: every operation names it and
// leaves it unchanged.
func TestDamagedRecords(t *testing.T) {
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	ctx := bounded(t)
	past := time.Now().Add(-time.Hour)
	for what, fields := range map[string][]bson.E{
		"no expiry":           {field(fieldExpiresAt, removeField)},
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
		"no token":            {field(fieldToken, removeField)},
		"schema of tomorrow":  {field(fieldVersion, 2), field(fieldExpiresAt, past)},
		"schema without v":    {field(fieldVersion, removeField), field(fieldExpiresAt, past)},
		"free, of tomorrow":   {field(fieldVersion, 2), field(fieldKid, removeField)},
		"free, token a text":  {field(fieldToken, literal("9")), field(fieldKid, removeField)},
		"free, expiry a text": {field(fieldExpiresAt, literal("x")), field(fieldKid, removeField)},
	} {
		name := "damaged " + what
		lease := acquire(t, l, request(name, "holder"))
		overwrite(t, coll, name, fields...)
		before := storedDocument(t, coll, name)
		_, acquireErr := l.TryAcquire(ctx, request(name, "other"))
		_, againErr := l.TryAcquire(ctx, request(name, "holder"))
		_, handOverErr := l.HandOver(ctx, lease, request(name, "other"))
		_, inspectErr := l.Inspect(ctx, name)
		for op, err := range map[string]error{
			"acquire": acquireErr, "acquire again": againErr, "hand over": handOverErr, "inspect": inspectErr,
			"renew": l.Renew(ctx, lease), "release": l.Release(ctx, lease),
			"break": l.Break(ctx, name), "break now": l.BreakNow(ctx, name), "write data": l.WriteData(ctx, lease, []byte("x"), grantRevision(lease)),
		} {
			var bad *badRecordError
			if !errors.As(err, &bad) || bad.name != name || !strings.Contains(err.Error(), name) {
				t.Errorf("%s, %s: got %v, want an error that names the record", what, op, err)
			}
		}
		if after := storedDocument(t, coll, name); !slices.Equal(before, after) {
			t.Errorf("%s: changed from %v to %v", what, before, after)
		}
	}
}

// A free lock's record needs only its version: fields that a person omits when repairing it do
// not block the lock.
func TestSparseRecordsAreFree(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	past := field(fieldExpiresAt, time.Now().Add(-time.Hour))
	for what, fields := range map[string]doc{
		"nothing": {}, "a version": {field(fieldVersion, 1)}, "a token": {field(fieldVersion, 1), field(fieldToken, int64(7))},
		"an expiry": {field(fieldVersion, 1), past}, "token and expiry": {field(fieldVersion, 1), past, field(fieldToken, int64(7))},
	} {
		if _, err := coll.InsertOne(bounded(t), append(docOf(fieldName, what), fields...)); err != nil {
			t.Fatal(err)
		}
		if _, err := l.TryAcquire(bounded(t), request(what, "a")); err != nil {
			t.Errorf("with %s: %v", what, err)
		}
	}
}

// A document of another program is not taken for a free lock.
func TestForeignDocument(t *testing.T) {
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	if _, err := coll.InsertOne(bounded(t), doc{{Key: "_id", Value: "n"}, {Key: "balance", Value: 5}}); err != nil {
		t.Fatal(err)
	}
	before := storedDocument(t, coll, "n")
	if _, err := l.TryAcquire(bounded(t), request("n", "a")); err == nil || errors.Is(err, driver.ErrHeld) {
		t.Errorf("got %v, want an error that is not held", err)
	}
	if after := storedDocument(t, coll, "n"); !slices.Equal(before, after) {
		t.Errorf("changed from %v to %v", before, after)
	}
}
