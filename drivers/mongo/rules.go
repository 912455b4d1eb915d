package mongo

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast/driver"
)

// Somebody else may have given the collection rules that refuse the records of locks: a validator, or a unique index.

// recordFields are the fields that a record can have.
var recordFields = []string{fieldName, fieldVersion, fieldLeaseID, fieldOwner, fieldRenewedAt, fieldExpiresAt, fieldAcquiredAt, fieldToken,
	fieldTTL, fieldData, fieldBroken, fieldWrites, fieldChanges, fieldReleasedAt, fieldBrokenAt, fieldFreedAt, fieldHistory, fieldQueue,
	fieldReserve, fieldReaders, fieldRenewals}

// uniqueRule returns a unique index that refuses the records of some locks, or nil. One that has _id among its fields refuses
// none.
func uniqueRule(indexes []index) *index {
	for i, x := range indexes {
		elements, _ := x.Key.Elements()
		named := func(e bson.RawElement) bool { return e.Key() == fieldName }
		if (isTrue(x.Unique) || isTrue(x.PrepareUnique)) && !slices.ContainsFunc(elements, named) && x.hasLocks() {
			return &indexes[i]
		}
	}
	return nil
}

// hasLocks reports whether the index has the records of locks, as a rule. A sparse one has only documents with one of its
// fields, a partial one only those that its filter matches, whatever its fields are.
func (x *index) hasLocks() bool {
	ours := func(e bson.RawElement) bool {
		top, _, _ := strings.Cut(e.Key(), ".")
		return slices.Contains(recordFields, top)
	}
	others := func(e bson.RawElement) bool { return !ours(e) && !strings.HasPrefix(e.Key(), "$") }
	keys, _ := x.Key.Elements()
	filter, _ := x.Filter.Elements()
	switch {
	case slices.ContainsFunc(filter, others):
		return false
	case slices.ContainsFunc(filter, ours):
		return true
	}
	return x.Filter == nil && !isTrue(x.Sparse) || slices.ContainsFunc(keys, ours)
}

// isTrue reads a flag. Old servers have stored numbers.
func isTrue(v bson.RawValue) bool {
	n, isNumber := v.AsInt64OK()
	b, _ := v.BooleanOK()
	return b || isNumber && n != 0
}

// refuseUnique is the error about a unique index.
func (l *Locker) refuseUnique(x *index) error {
	return driver.Invalid("unique index "+x.Name+" of "+l.namespace(), "on "+x.fields(),
		"dropped: it would refuse the records of locks; in mongosh: "+l.dropIndex(x))
}

// validatorOf returns the validator by which the server refuses documents of a collection with these options, or nil.
func validatorOf(options bson.Raw) bson.Raw {
	validator, _ := options.Lookup("validator").DocumentOK()
	level, _ := options.Lookup("validationLevel").StringValueOK()
	action, _ := options.Lookup("validationAction").StringValueOK()
	if elements, err := validator.Elements(); err != nil || len(elements) == 0 || level == "off" || action == "warn" {
		return nil
	}
	return validator
}

// validatorRefuses reports whether a validator refuses the record of a grant, one like those of most programs. The server makes
// that record, as for an acquire, and matches it, but stores nothing. A validator can accept the records of other locks only.
func (l *Locker) validatorRefuses(ctx context.Context, validator bson.Raw) (bool, error) {
	for _, mode := range []driver.Mode{driver.Exclusive, driver.Shared} {
		req := driver.Request{Name: "test", ID: driver.NewLeaseID("-"), Owner: "host/1", TTL: time.Second, Mode: mode}
		pipeline := list{docOf("$collStats", docOf("count", doc{})), docOf("$limit", 1), // gives one document
			docOf("$replaceWith", docOf(fieldName, req.Name))}
		pipeline = append(pipeline, acquirePipeline(asker{id: l.id}, req, l.config.history)...)
		cursor, err := l.majority.Aggregate(ctx, append(pipeline, docOf("$match", validator)))
		if err != nil {
			return false, err
		}
		accepted := cursor.Next(ctx)
		if err := errors.Join(cursor.Err(), cursor.Close(ctx)); err != nil {
			return false, err
		}
		if !accepted {
			return true, nil
		}
	}
	return false, nil
}

// warnOfValidator logs that a validator may refuse the records of locks. Only an acquire that it has refused is certain.
func (l *Locker) warnOfValidator(ctx context.Context, validator bson.Raw) {
	if validator == nil {
		return
	}
	refuses, err := l.validatorRefuses(ctx, validator)
	switch {
	case err != nil:
		l.warn(ctx, "the collection has a validator, and it is unknown whether that accepts the records of locks", "error", err)
	case refuses:
		l.warn(ctx, "the collection has a validator that refuses the record of a test lock: perhaps no lock can be acquired",
			"remedy", dropValidator(l.namespace()))
	}
}

// dropValidator returns the command in mongosh that removes the validator.
func dropValidator(namespace string) string {
	database, collection, _ := strings.Cut(namespace, ".")
	return command(database, doc{field("collMod", collection), field("validator", doc{})})
}

var duplicateIn = regexp.MustCompile(`index: (.+?)(?: collation: \{.*\})? dup key: \{`)

// uniqueIndexOf returns the name of the unique index that has refused a write, or "" if it was none or that on _id.
func uniqueIndexOf(err error) string {
	if !mongo.IsDuplicateKeyError(err) {
		return ""
	}
	found := duplicateIn.FindStringSubmatch(err.Error())
	if found == nil || found[1] == "_id_" {
		return ""
	}
	return found[1]
}

// refusedByRule reports whether a rule of somebody else has refused a record. It will do so again.
func refusedByRule(err error) bool {
	return hasCode(err, codeDocumentValidationFailure) || uniqueIndexOf(err) != ""
}

// adviseRule describes that.
func adviseRule(err error, namespace string) error {
	database, collection, _ := strings.Cut(namespace, ".")
	if name := uniqueIndexOf(err); name != "" {
		return &deniedError{fmt.Sprintf("the unique index %s of %s refuses the record: only that on _id may be unique; drop it in mongosh: %s",
			driver.Quote(name), namespace, command(database, doc{field("dropIndexes", collection), field("index", name)})), err}
	}
	return &deniedError{fmt.Sprintf("the validator of %s refuses the record; remove it in mongosh: %s", namespace,
		dropValidator(namespace)), err}
}

// collection examines the collection of the locks, and what others have set up there.
func (c *checkup) collection(ctx context.Context) bool {
	var validator bson.Raw
	var unique *index
	refuses := false
	err := c.run(ctx, func(ctx context.Context) (err error) {
		validator, err = c.l.checkCollection(ctx)
		return err
	})
	if err != nil {
		c.failed(subjectCollection, driver.LevelWrong, err, "Name another collection in the URL parameter "+paramCollection+
			", in all programs at the same time; or rename this one while no program runs.")
		return true
	}
	err = c.run(ctx, func(ctx context.Context) error {
		indexes, err := c.l.listIndexes(ctx)
		if err != nil && !hasCode(err, codeUnauthorized) { // index reports that
			return err
		}
		if unique = uniqueRule(indexes); unique == nil && validator != nil {
			refuses, err = c.l.validatorRefuses(ctx, validator)
			return err
		}
		return nil
	})
	switch {
	case err != nil:
		c.failed(subjectCollection, driver.LevelDoubtful, err, "Make sure that the validator of the collection accepts the records of locks.")
	case unique != nil:
		c.Report(driver.Finding{Subject: subjectCollection, Level: driver.LevelWrong,
			Detail: fmt.Sprintf("the index %s on %s is unique: it refuses the records of locks, as a rule all but the first", unique.Name,
				unique.fields()),
			Remedy:  "Drop the index. In mongosh:",
			Command: c.l.dropIndex(unique)})
	case refuses:
		c.Report(driver.Finding{Subject: subjectCollection, Level: driver.LevelDoubtful,
			Detail:  "the validator of " + c.l.namespace() + " refuses the record of a test lock: perhaps no lock can be acquired",
			Remedy:  "If locks cannot be acquired, remove the validator, or give them a collection of their own. In mongosh:",
			Command: dropValidator(c.l.namespace())})
	default:
		c.OK(subjectCollection, "%s is an ordinary collection, or will become one", c.l.namespace())
	}
	return true
}
