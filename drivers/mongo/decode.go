package mongo

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

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

// elementsOf splits a document. The Go driver's function panics if a length is near 2^31.
func elementsOf(raw bson.Raw) (all []bson.RawElement, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("a length is out of range")
		}
	}()
	return raw.Elements()
}

// hasText reports whether a document, which may be damaged, has a text in a field.
func hasText(raw bson.Raw, key, text string) bool {
	elements, _ := elementsOf(raw)
	return slices.ContainsFunc(elements, func(e bson.RawElement) bool {
		found, _ := e.Value().StringValueOK()
		return e.Key() == key && found == text
	})
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

// reader is one holder of a lock that is held shared. See readers_pipeline.go.
type reader struct {
	id, owner                  string
	token                      int64
	ttl                        time.Duration
	acquired, expires, renewed time.Time
	broken                     bool
}

// reader decodes one reader.
func (d *decoder) reader(v bson.RawValue) (r reader) {
	if !d.hasType(fieldReaders, v, bson.TypeEmbeddedDocument) {
		return r
	}
	elements, err := elementsOf(v.Document())
	d.check(fieldReaders, err == nil, "is malformed")
	ms := int64(0)
	for _, e := range elements {
		v := e.Value()
		switch e.Key() {
		case readerID:
			d.text(fieldReaders, v, &r.id)
		case readerOwner:
			d.text(fieldReaders, v, &r.owner)
		case readerToken:
			d.number(fieldReaders, v, &r.token)
		case readerTTL:
			d.number(fieldReaders, v, &ms)
			d.check(fieldReaders, ms <= limits.MaxTTL.Milliseconds(), "has a TTL that is out of range")
			r.ttl = time.Duration(ms) * time.Millisecond
		case readerAcquired:
			d.date(fieldReaders, v, &r.acquired)
		case readerExpires:
			d.date(fieldReaders, v, &r.expires)
		case readerRenewed:
			d.date(fieldReaders, v, &r.renewed)
		case readerBroken:
			d.boolean(fieldReaders, v, &r.broken)
		}
	}
	d.check(fieldReaders, r.id != "" && r.ttl > 0 && r.token > 0 && !r.expires.IsZero(), "lacks a fact of a reader, or has an impossible one")
	return r
}

// readers decodes all readers.
func (d *decoder) readers(v bson.RawValue) (all []reader) {
	array, ok := v.ArrayOK()
	d.check(fieldReaders, ok, "is not an array")
	elements, err := elementsOf(bson.Raw(array))
	d.check(fieldReaders, err == nil, "is malformed")
	all = []reader{}
	for _, e := range elements {
		all = append(all, d.reader(e.Value()))
	}
	return all
}
