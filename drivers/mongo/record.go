package mongo

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
)

// DefaultCollection is the collection of a URL that names none.
const DefaultCollection = "holdfast_locks"

// The fields of a lock's document, and the version of this layout.
const (
	fieldName       = "_id"
	fieldVersion    = "v"
	fieldLeaseID    = "kid"
	fieldOwner      = "owner"
	fieldRenewedAt  = "ts"
	fieldExpiresAt  = "expiresAt"
	fieldAcquiredAt = "acquiredAt"
	fieldToken      = "token"
	fieldTTL        = "ttl"
	fieldData       = "data"
	fieldBroken     = "broken"
	fieldWrites     = "writes"     // how often the present holder wrote the data
	fieldChanges    = "changes"    // see withChangeCount
	fieldReleasedAt = "releasedAt" // these three say how the last tenure ended; see history.go
	fieldBrokenAt   = "brokenAt"
	fieldFreedAt    = "freedAt"
	fieldHistory    = "history"

	schemaVersion = 1
)

// fieldNow is the field of a reply into which a projection puts the server's clock. It is not
// stored.
const fieldNow = "now"

// record is a decoded document.
type record struct {
	name       string
	version    int64
	leaseID    string // empty if the lock is free, sharedHolder if it has readers
	owner      string
	renewedAt  time.Time
	expiresAt  time.Time
	acquiredAt time.Time
	token      int64
	ttl        time.Duration
	data       []byte
	writes     int64
	broken     bool
	reserve    time.Duration
	waiters    int64
	position   int64
	turn       int64 // of a reader, counted from 1
	renewals   int64
	readers    []reader  // if the reply has them
	reader     *reader   // if the reply has one
	now        time.Time // zero if the reply does not have it
	ends       ends
	history    []bson.RawValue // the latest last
}

// badRecordError: a document is not a lock's record, or is damaged. The lock is neither held
// nor free; a person must repair or delete the document.
type badRecordError struct {
	name    string
	problem string
	inDoubt bool // the record has the lease ID of the request, which may have changed it
}

func (e *badRecordError) Error() string {
	unchanged := " and was left unchanged"
	if e.inDoubt {
		unchanged = ""
	}
	return fmt.Sprintf("the record with _id %q is damaged%s: %s; repair or delete it", e.name, unchanged, e.problem)
}

// Is makes errors.Is(err, driver.ErrDamaged) true, unless the request may have changed the record.
func (e *badRecordError) Is(target error) bool { return target == driver.ErrDamaged && !e.inDoubt }

// decodeRecord decodes a document. An error is a *badRecordError. It shows no values, since a
// misplaced one may be a secret.
func decodeRecord(raw bson.Raw) (*record, error) {
	r := &record{}
	d := decoder{}
	elements, err := elementsOf(raw)
	if err != nil {
		return nil, &badRecordError{problem: "it is not valid BSON"}
	}
	for _, e := range elements {
		v := e.Value()
		switch e.Key() {
		case fieldName:
			d.text(fieldName, v, &r.name)
		case fieldVersion:
			d.number(fieldVersion, v, &r.version)
		case fieldLeaseID:
			d.text(fieldLeaseID, v, &r.leaseID)
			d.check(fieldLeaseID, r.leaseID != "" || v.Type != bson.TypeString, "is empty")
		case fieldOwner:
			d.text(fieldOwner, v, &r.owner)
		case fieldRenewedAt:
			d.date(fieldRenewedAt, v, &r.renewedAt)
		case fieldExpiresAt:
			d.date(fieldExpiresAt, v, &r.expiresAt)
		case fieldAcquiredAt:
			d.date(fieldAcquiredAt, v, &r.acquiredAt)
		case fieldToken:
			if d.hasType(fieldToken, v, bson.TypeInt64) {
				r.token = v.Int64()
			}
			d.check(fieldToken, r.token >= 0 && r.token < lastToken, "is out of range")
		case fieldTTL:
			var ms int64
			d.number(fieldTTL, v, &ms)
			d.check(fieldTTL, ms >= 0 && ms <= math.MaxInt64/int64(time.Millisecond), "is out of range")
			r.ttl = time.Duration(ms) * time.Millisecond
		case fieldData:
			d.binary(fieldData, v, &r.data)
		case fieldWrites:
			d.number(fieldWrites, v, &r.writes)
			d.check(fieldWrites, r.writes >= 0, "is out of range")
		case fieldBroken:
			d.boolean(fieldBroken, v, &r.broken)
		case fieldReserve:
			var ms int64
			d.number(fieldReserve, v, &ms)
			d.check(fieldReserve, ms >= emptied && ms <= driver.MaxTurn.Milliseconds(), "is out of range")
			r.reserve = time.Duration(max(ms, 0)) * time.Millisecond
		case fieldWaiters:
			d.number(fieldWaiters, v, &r.waiters)
		case fieldPosition:
			d.number(fieldPosition, v, &r.position)
		case fieldTurn:
			d.number(fieldTurn, v, &r.turn)
		case fieldRenewals:
			d.number(fieldRenewals, v, &r.renewals)
		case fieldDamaged:
			d.check(fieldReaders, false, "contradicts the record, or has a reader that lacks a fact")
		case fieldReader:
			one := d.reader(v)
			r.reader = &one
		case fieldReaders:
			r.readers = d.readers(v)
		case fieldNow:
			d.date(fieldNow, v, &r.now)
		case fieldReleasedAt, fieldBrokenAt, fieldFreedAt:
			r.ends.read(e.Key(), v)
		case fieldHistory:
			r.history = historyOf(v)
		}
	}
	if d.problem == "" && r.version != schemaVersion && r.version != sharedVersion {
		d.problem = fmt.Sprintf("its field %s is %d, but this version of Holdfast reads only %d and %d: see docs/upgrading.md",
			fieldVersion, r.version, schemaVersion, sharedVersion)
	}
	d.checkReaders(r)
	if r.leaseID != "" {
		d.check(fieldExpiresAt, !r.expiresAt.IsZero(), "is missing although the record has a holder")
		d.check(fieldToken, r.token != 0, "is missing although the record has a holder")
	}
	if d.problem != "" {
		return nil, &badRecordError{name: r.name, problem: d.problem}
	}
	return r, nil
}

// hasLeaseID reports whether a document, which may be damaged, has a lease ID.
func hasLeaseID(raw bson.Raw, id driver.LeaseID) bool {
	elements, _ := elementsOf(raw)
	return slices.ContainsFunc(elements, func(e bson.RawElement) bool {
		value := e.Value()
		if one, ok := value.DocumentOK(); ok && e.Key() == fieldReader {
			return hasText(one, readerID, id.Reveal())
		}
		found, _ := value.StringValueOK()
		return e.Key() == fieldLeaseID && found == id.Reveal()
	})
}

// hasText reports whether a document, which may be damaged, has a text in a field.
func hasText(raw bson.Raw, key, text string) bool {
	elements, _ := elementsOf(raw)
	return slices.ContainsFunc(elements, func(e bson.RawElement) bool {
		found, _ := e.Value().StringValueOK()
		return e.Key() == key && found == text
	})
}

// elementsOf splits a document. The Go driver's function panics if a length is near 2^31.
func elementsOf(raw bson.Raw) (all []bson.RawElement, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("a length is out of range")
		}
	}()
	return raw.Elements()
}

// decoder keeps the first problem.
type decoder struct{ problem string }

func (d *decoder) check(field string, ok bool, problem string) {
	if !ok && d.problem == "" {
		d.problem = "its field " + field + " " + problem
	}
}

func (d *decoder) hasType(field string, v bson.RawValue, want bson.Type) bool {
	d.check(field, v.Type == want, fmt.Sprintf("is of type %s, not %s", v.Type, want))
	return v.Type == want
}

func (d *decoder) text(field string, v bson.RawValue, to *string) {
	if d.hasType(field, v, bson.TypeString) {
		var ok bool
		*to, ok = v.StringValueOK()
		d.check(field, ok, "is malformed")
	}
}

func (d *decoder) date(field string, v bson.RawValue, to *time.Time) {
	if d.hasType(field, v, bson.TypeDateTime) {
		*to = time.UnixMilli(v.DateTime()).UTC()
		d.check(field, to.Year() >= 0 && to.Year() <= 9999, "is out of range") // RFC 3339 has no other years
	}
}

func (d *decoder) boolean(field string, v bson.RawValue, to *bool) {
	if d.hasType(field, v, bson.TypeBoolean) {
		*to = v.Boolean()
	}
}

func (d *decoder) binary(field string, v bson.RawValue, to *[]byte) {
	if d.hasType(field, v, bson.TypeBinary) {
		_, data, ok := v.BinaryOK()
		d.check(field, ok, "is malformed") // the old subtype 2 has a second length
		*to = append([]byte{}, data...)
	}
}

// number accepts both integer types: a person who repairs a record by hand gets the one that
// the shell chooses.
func (d *decoder) number(field string, v bson.RawValue, to *int64) {
	if v.Type == bson.TypeInt32 {
		*to = int64(v.Int32())
	} else if d.hasType(field, v, bson.TypeInt64) {
		*to = v.Int64()
	}
}

// describe returns the record as callers see it.
func (r *record) describe() driver.Record {
	out := driver.Record{
		Name: r.name, State: driver.StateFree, Owner: r.owner, Token: uint64(max(r.token, 0)),
		AcquiredAt: r.acquiredAt, RenewedAt: r.renewedAt, Data: r.data, Position: int(r.position),
	}
	if r.reserve > 0 { // otherwise all that are in the queue poll, and wait for nobody there
		// Most replies have only the reservation, which shows up to five waiters.
		out.Waiters = max(int(r.waiters), int(r.reserve/driver.TurnLength))
	}
	if r.free() {
		return out
	}
	out.State = driver.StateHeld
	out.TTL = r.ttl
	out.Broken = r.broken
	if !r.now.IsZero() {
		out.Remaining, out.RemainingKnown = r.expiresAt.Sub(r.now), true
	}
	switch {
	case r.version == sharedVersion:
		out.Revision = sharedRevision(r.token, r.renewals)
		r.describeReaders(&out)
	case !r.renewedAt.IsZero():
		out.Revision = revision(r.leaseID, r.renewedAt)
	}
	return out
}

// free reports whether the lock is certainly free.
func (r *record) free() bool {
	return r.leaseID == "" || !r.now.IsZero() && !r.expiresAt.After(r.now)
}

// refusal is the error of a request that was not granted.
func (r *record) refusal() *driver.HeldError {
	out := r.describe()
	if !r.free() {
		return &driver.HeldError{Record: out}
	}
	left := r.reserve
	switch {
	case r.position > 0:
		left = driver.Turn(int(cmp.Or(r.turn, r.position)))
	case r.waiters > 0: // also if all of them poll
		left = driver.Turn(int(r.waiters) + 1)
	}
	if !r.now.IsZero() {
		left = min(left, max(r.expiresAt.Add(left).Sub(r.now), 0))
	}
	return &driver.HeldError{Reserved: true, Record: driver.Record{
		Name: r.name, State: driver.StateHeld, Remaining: left, RemainingKnown: true, Waiters: out.Waiters, Position: out.Position,
	}}
}

// dataRevision identifies the state of the data.
func (r *record) dataRevision() driver.DataRevision {
	return driver.DataRevision{Token: uint64(max(r.token, 0)), Writes: uint64(r.writes)}
}

// revision identifies one holder and one renewal: "<milliseconds> <lease ID>".
func revision(leaseID string, renewedAt time.Time) driver.Revision {
	return driver.NewRevision(strconv.FormatInt(renewedAt.UnixMilli(), 10) + " " + leaseID)
}

// parseRevision reverses revision. A mark of another backend never equals one of this driver.
func parseRevision(rev driver.Revision) (leaseID string, renewedAt bson.DateTime, ok bool) {
	ms, leaseID, ok := strings.Cut(rev.Mark(), " ")
	n, err := strconv.ParseInt(ms, 10, 64)
	return leaseID, bson.DateTime(n), ok && err == nil
}

// hasField reports whether a document has a field.
func hasField(raw bson.Raw, path ...string) bool {
	_, err := raw.LookupErr(path...)
	return err == nil
}

// dateOrZero returns the time of a value that may be missing or no date.
func dateOrZero(v bson.RawValue) (at time.Time) {
	d := decoder{}
	if d.date("", v, &at); d.problem != "" {
		return time.Time{}
	}
	return at
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
