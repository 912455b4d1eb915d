package mongo

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
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
		"kid a number":        {field(fieldLeaseID, 7), field(fieldExpiresAt, past)},
		"kid null":            {field(fieldLeaseID, nil)},
		"kid empty":           {field(fieldLeaseID, literal(""))},
		"token a text":        {field(fieldToken, literal("9")), field(fieldExpiresAt, past)},
		"token a double":      {field(fieldToken, 1.5), field(fieldExpiresAt, past)},
		"token an int":        {field(fieldToken, 5), field(fieldExpiresAt, past)},
		"token exhausted":     {field(fieldToken, int64(1<<63-1)), field(fieldExpiresAt, past)},
		"no token":            {field(fieldToken, removeField)},
		"schema of tomorrow":  {field(fieldVersion, 3), field(fieldExpiresAt, past)},
		"schema without v":    {field(fieldVersion, removeField), field(fieldExpiresAt, past)},
		"free, of tomorrow":   {field(fieldVersion, 3), field(fieldLeaseID, removeField)},
		"free, token a text":  {field(fieldToken, literal("9")), field(fieldLeaseID, removeField)},
		"free, expiry a text": {field(fieldExpiresAt, literal("x")), field(fieldLeaseID, removeField)},
	} {
		name := "damaged " + what
		lease := acquire(t, l, request(name, "holder"))
		overwrite(t, coll, name, fields...)
		before := storedDocument(t, coll, name)
		_, acquireErr := l.TryAcquire(ctx, request(name, "other"))
		_, againErr := l.TryAcquire(ctx, request(name, "holder"))
		_, inspectErr := l.Inspect(ctx, name)
		for op, err := range map[string]error{
			"acquire": acquireErr, "acquire again": againErr, "inspect": inspectErr,
			"renew": errOf(l.Renew(ctx, lease)), "release": l.Release(ctx, lease),
			"break": l.Break(ctx, name, driver.BreakAnybody()), "break now": l.BreakNow(ctx, name, driver.BreakAnybody()),
			"write data": l.WriteData(ctx, lease, []byte("x"), grantRevision(lease)),
		} {
			var bad *badRecordError
			if !errors.As(err, &bad) || bad.name != name || !strings.Contains(err.Error(), name) {
				t.Errorf("%s, %s: got %v, want an error that names the record", what, op, err)
			}
			if strings.HasSuffix(what, "of tomorrow") && (err == nil || !strings.Contains(err.Error(), "docs/upgrading.md")) {
				t.Errorf("%s, %s: got %v, want an error that names the page", what, op, err)
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

// A token or a time that has no meaning is damage. RFC 3339, and so JSON, has years up to 9999.
func TestRecordOutOfRange(t *testing.T) {
	const lastYear, firstYear = 253402300799999, -62167219200000 // in milliseconds
	for what, c := range map[string]struct {
		field bson.E
		ok    bool
	}{
		"token":              {field(fieldToken, int64(1)), true},
		"negative token":     {field(fieldToken, int64(-1)), false},
		"last token":         {field(fieldToken, lastToken), false},
		"in the year 9999":   {field(fieldAcquiredAt, bson.DateTime(lastYear)), true},
		"in the year 10000":  {field(fieldAcquiredAt, bson.DateTime(lastYear+1)), false},
		"in the year 0":      {field(fieldRenewedAt, bson.DateTime(firstYear)), true},
		"before the year 0":  {field(fieldRenewedAt, bson.DateTime(firstYear-1)), false},
		"expires never":      {field(fieldExpiresAt, bson.DateTime(math.MaxInt64)), false},
		"TTL that overflows": {field(fieldTTL, int64(math.MaxInt64)), false},
		"negative writes":    {field(fieldWrites, int64(-1)), false},
	} {
		d := doc{field(fieldName, "n"), field(fieldVersion, 1), c.field}
		r, err := decodeRecord(mustMarshal(d))
		if (err == nil) != c.ok {
			t.Errorf("%s: %+v, error %v", what, r, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "is out of range") || !strings.Contains(err.Error(), c.field.Key)) {
			t.Errorf("%s: error %v", what, err)
		}
	}
}

// Binary data of the old subtype 2 have a second length, which may be wrong.
func TestMalformedData(t *testing.T) {
	raw := mustMarshal(doc{field(fieldName, "n"), field(fieldVersion, 1), field(fieldData, bson.Binary{Subtype: bson.TypeBinaryBinaryOld,
		Data: []byte("x")})})
	if r, err := decodeRecord(raw); err != nil || string(r.data) != "x" {
		t.Errorf("%+v, error %v", r, err)
	}
	raw = mustMarshal(doc{field(fieldName, "n"), field(fieldVersion, 1), field(fieldData, bson.Binary{Data: []byte("x")})})
	raw[bytes.Index(raw, []byte("x\x00"))-1] = bson.TypeBinaryBinaryOld // there is no room for the second length
	var bad *badRecordError
	if _, err := decodeRecord(raw); !errors.As(err, &bad) || bad.name != "n" {
		t.Errorf("error %v", err)
	}
}

// FuzzDocument decodes any bytes. An error is a *badRecordError that shows no value. A record that
// is accepted has its token and times in range.
func FuzzDocument(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte(mustMarshal(doc{field(fieldName, "n"), field(fieldVersion, 1)})))
	f.Add([]byte(mustMarshal(doc{field(fieldName, "n"), field(fieldVersion, int64(1)), field(fieldLeaseID, "secret"), field(fieldOwner, "me"),
		field(fieldToken, int64(7)), field(fieldTTL, int32(1000)), field(fieldExpiresAt, time.UnixMilli(9)), field(fieldData, []byte("x")),
		field(fieldWrites, int64(2)), field(fieldBroken, true), field(fieldNow, time.UnixMilli(8))})))
	f.Add([]byte("\x17\x00\x00\x00\x10v\x00\x01\x00\x00\x00\x02_id\x00\x00\x00\x00\x00\x00")) // a string of length 0, without its NUL
	f.Add([]byte(mustMarshal(doc{field(fieldName, 7), field(fieldLeaseID, doc{}), field(fieldOwner, nil), field(fieldToken, "7"),
		field(fieldTTL, 1.5)})))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := decodeRecord(raw)
		if err != nil {
			var bad *badRecordError
			if !errors.As(err, &bad) {
				t.Errorf("%v is no *badRecordError", err)
			}
			return
		}
		checkRecord(t, r)
	})
}

// checkRecord checks what is true of every record that is accepted.
func checkRecord(t *testing.T, r *record) {
	t.Helper()
	if r.token < 0 || r.token >= lastToken || r.ttl < 0 || r.writes < 0 || r.leaseID != "" && (r.token == 0 || r.expiresAt.IsZero()) {
		t.Errorf("accepted: %+v", r)
	}
	out := r.describe()
	if _, err := json.Marshal(out); err != nil {
		t.Errorf("%+v: %v", out, err)
	}
	if out.State == driver.StateHeld != (r.leaseID != "" && (r.now.IsZero() || r.expiresAt.After(r.now))) || out.RemainingKnown &&
		out.Remaining <= 0 {
		t.Errorf("%+v is described as %+v", r, out)
	}
	if at, ok := parsedRevision(out.Revision); out.Revision.IsZero() == ok || ok && at != (leaseAt{r.leaseID, r.renewedAt.UnixMilli()}) {
		t.Errorf("the revision of %+v is %+v", r, at)
	}
}

type leaseAt struct {
	id string
	ms int64
}

func parsedRevision(rev driver.Revision) (leaseAt, bool) {
	id, at, ok := parseRevision(rev)
	return leaseAt{id, int64(at)}, ok
}

// FuzzRecord writes a document with one field of another type, and checks that it is refused, and
// that without it every field is read as it is.
func FuzzRecord(f *testing.F) {
	f.Add("n", "id", "me", int64(5), int64(6), int64(7), int64(8), int64(9), int64(30_000), int64(1), true, []byte("data"), uint8(0))
	f.Add("", "", "\x00", int64(math.MaxInt64), int64(math.MinInt64), int64(0), int64(-1), int64(-1), int64(-1), int64(-1), false, []byte(nil),
		uint8(1))
	f.Add("n", "id", "me", int64(5), int64(253402300799999), int64(-62135596800000), int64(8), int64(math.MaxInt64-1),
		int64(math.MaxInt64/1_000_000), int64(1), true, []byte(""), uint8(5))
	f.Fuzz(func(t *testing.T, name, id, owner string, renewed, expires, acquired, now, token, ttl, writes int64, broken bool, data []byte,
		other uint8) {
		if !utf8.ValidString(name + id + owner) {
			return
		}
		d := doc{
			field(fieldVersion, 1), field(fieldName, name), field(fieldLeaseID, id), field(fieldOwner, owner),
			field(fieldRenewedAt, bson.DateTime(renewed)), field(fieldExpiresAt, bson.DateTime(expires)),
			field(fieldAcquiredAt, bson.DateTime(acquired)),
			field(fieldToken, token), field(fieldTTL, ttl), field(fieldData, data), field(fieldWrites, writes), field(fieldBroken, broken),
			field(fieldNow, bson.DateTime(now)), field("unknown", id),
		}
		if data == nil {
			d = slices.DeleteFunc(d, func(e bson.E) bool { return e.Key == fieldData })
		}
		r, err := decodeRecord(mustMarshal(d))
		valid := id != "" && token > 0 && token < lastToken && ttl >= 0 && ttl <= math.MaxInt64/1_000_000 && writes >= 0
		for _, ms := range []int64{renewed, expires, acquired, now} {
			year := time.UnixMilli(ms).UTC().Year()
			valid = valid && year >= 0 && year <= 9999
		}
		if valid != (err == nil) && (!valid || !time.UnixMilli(expires).IsZero()) {
			t.Fatalf("%v: error %v", d, err)
		}
		if err == nil {
			checkRecord(t, r)
			if r.name != name || r.leaseID != id || r.owner != owner || r.token != token || r.ttl.Milliseconds() != ttl || r.writes != writes ||
				r.broken != broken ||
				!slices.Equal(r.data, data) || r.renewedAt.UnixMilli() != renewed || r.expiresAt.UnixMilli() != expires ||
				r.acquiredAt.UnixMilli() != acquired || r.now.UnixMilli() != now {
				t.Errorf("%v is read as %+v", d, r)
			}
		} else if len(id) >= 8 && strings.Contains(err.Error(), id) && !strings.Contains(name, id) {
			t.Errorf("the lease ID is in %v", err)
		}
		if i := int(other) % (len(d) - 1); d[i].Key != fieldVersion { // the last field is unknown
			d[i].Value = 1.5
			if r, err := decodeRecord(mustMarshal(d)); err == nil {
				t.Errorf("%v is read as %+v", d, r)
			}
		}
	})
}

// FuzzRevision checks that a revision is read as it was made, and that any other mark is harmless.
func FuzzRevision(f *testing.F) {
	f.Add("id", int64(5), "")
	f.Add(" a b ", int64(math.MinInt64), "1000.0")
	f.Fuzz(func(t *testing.T, id string, ms int64, mark string) {
		if at, ok := parsedRevision(revision(id, time.UnixMilli(ms))); !ok || at != (leaseAt{id, ms}) {
			t.Errorf("%q at %d is read as %+v, %v", id, ms, at, ok)
		}
		if at, ok := parsedRevision(driver.NewRevision(mark)); ok && !strings.HasSuffix(mark, " "+at.id) {
			t.Errorf("%q is read as %+v", mark, at)
		}
	})
}
