package mongo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
)

// indexName is the name of the TTL index that this driver creates.
const indexName = "holdfast_retention"

// indexRetryInterval is the wait before the index is created again after a fail-over.
const indexRetryInterval = 200 * time.Millisecond

// ensureIndex creates the TTL index, or compares the existing one. A fail-over at the start of a program
// interrupts that. The Go driver does not repeat it, so it is repeated here, within the time limit of a request.
func (l *Locker) ensureIndex(ctx context.Context) error {
	for {
		err := l.tryEnsureIndex(ctx)
		if !interruptedByFailOver(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(indexRetryInterval):
		}
	}
}

// tryEnsureIndex creates the TTL index, or compares the existing one. The index only removes abandoned records,
// so missing privileges are a warning.
func (l *Locker) tryEnsureIndex(ctx context.Context) error {
	indexes, err := l.listIndexes(ctx)
	if err != nil {
		return l.warnUnauthorized(ctx, err)
	}
	if wrong := wrongTTL(indexes); wrong != nil {
		return driver.Invalid("TTL index "+wrong.Name+" of "+l.namespace(), "on "+wrong.fields(),
			"dropped: it would remove the records of locks that are held; in mongosh: "+l.dropIndex(wrong))
	}
	if unique := uniqueRule(indexes); unique != nil {
		return driver.Invalid("unique index "+unique.Name+" of "+l.namespace(), "on "+unique.fields(),
			"dropped: it would refuse the records of locks; in mongosh: "+l.dropIndex(unique))
	}
	if own := retentionIndex(indexes); own != nil {
		return l.compareIndex(ctx, own)
	}
	if len(indexes) > 0 { // every collection has one on _id
		return l.createIndex(ctx)
	}
	if err := l.createIndex(ctx); err != nil {
		return err
	}
	// Another database or collection is another set of locks, so none is made without a word. Without the right to make the index, the
	// first lock makes the collection.
	l.config.logger.InfoContext(ctx, "holdfast: there was no collection for locks, it is made",
		"backend", backend, "collection", l.namespace())
	return nil
}

// index is an index as the server lists it. The Go driver's own type fails for an expireAfterSeconds that is no int32.
type index struct {
	Name   string        `bson:"name"`
	Key    bson.Raw      `bson:"key"`
	TTL    bson.RawValue `bson:"expireAfterSeconds"` // of any number type; zero if the index removes nothing
	Filter bson.Raw      `bson:"partialFilterExpression"`

	Unique        bson.RawValue `bson:"unique"`
	PrepareUnique bson.RawValue `bson:"prepareUnique"` // of an index that is about to become unique
	Sparse        bson.RawValue `bson:"sparse"`
}

// listIndexes returns all indexes of the collection. If there is no collection, there are none.
func (l *Locker) listIndexes(ctx context.Context) (all []index, err error) {
	cursor, err := l.majority.Indexes().List(ctx)
	if err == nil {
		err = cursor.All(ctx, &all)
	}
	if hasCode(err, codeNamespaceNotFound) {
		return nil, nil
	}
	return all, err
}

// wrongTTL returns a TTL index on anything but expiresAt alone, or nil. Any other date does not say when a lease ends. Of
// arrays the server takes the least date, and it follows hidden and partial indexes, too.
//
// Promise 1: the record of a held lock must not disappear.
func wrongTTL(indexes []index) *index {
	for i, x := range indexes {
		if x.removes() && !x.onExpiry() {
			return &indexes[i]
		}
	}
	return nil
}

// retentionIndex returns the index on expiresAt that decides when records are removed, or nil. Several can differ in their
// direction or filter; the shortest time counts.
func retentionIndex(indexes []index) (best *index) {
	for i, x := range indexes {
		if x.onExpiry() && (best == nil || x.removes() && (!best.removes() || x.after() < best.after())) {
			best = &indexes[i]
		}
	}
	return best
}

// removes reports whether the server removes documents by the index.
func (x *index) removes() bool { return !x.TTL.IsZero() }

// after is how long after the date in its field the server removes a document.
func (x *index) after() time.Duration {
	seconds, _ := x.TTL.AsInt64OK()
	return time.Duration(seconds) * time.Second
}

// onExpiry reports whether the index orders the documents by expiresAt, and by nothing else.
func (x *index) onExpiry() bool {
	elements, err := x.Key.Elements()
	return err == nil && len(elements) == 1 && elements[0].Key() == fieldExpiresAt && elements[0].Value().IsNumber()
}

// fields describes what the index is on.
func (x *index) fields() string {
	elements, _ := x.Key.Elements()
	if len(elements) == 1 && elements[0].Value().IsNumber() {
		return elements[0].Key()
	}
	return x.Key.String()
}

// dropIndex returns the command in mongosh that drops an index.
func (l *Locker) dropIndex(x *index) string {
	return mongosh(l.majority.Database().Name(), doc{field("dropIndexes", l.majority.Name()), field("index", x.Name)})
}

func (l *Locker) createIndex(ctx context.Context) error {
	opts := options.CreateIndexes()
	if !l.standalone {
		opts.SetCommitQuorumMajority() // the default waits for members that are down
	}
	_, err := l.majority.Indexes().CreateOne(ctx, mongo.IndexModel{
		Keys:    docOf(fieldExpiresAt, 1),
		Options: options.Index().SetName(indexName).SetExpireAfterSeconds(l.retentionSeconds()),
	}, opts)
	if hasCode(err, codeIndexOptionsConflict, codeIndexKeyConflict) {
		// Another process created one with other settings at the same moment.
		l.warn(ctx, "the TTL index has other settings", "error", err)
		return nil
	}
	return l.warnUnauthorized(ctx, err)
}

// compareIndex logs a difference, or corrects it with [WithIndexUpdate].
func (l *Locker) compareIndex(ctx context.Context, own *index) error {
	have := "none"
	if own.removes() {
		if own.after() == l.config.retention {
			return nil
		}
		have = own.after().String()
	}
	if !l.config.updateIndex {
		l.warn(ctx, "the TTL index has another retention; use WithIndexUpdate to change it",
			"index", own.Name, "retention", have, "wanted", l.config.retention.String())
		return nil
	}
	err := l.majority.Database().RunCommand(ctx, doc{
		{Key: "collMod", Value: l.majority.Name()},
		{Key: "index", Value: doc{{Key: "name", Value: own.Name}, {Key: "expireAfterSeconds", Value: l.retentionSeconds()}}},
	}).Err()
	if err != nil {
		return fmt.Errorf("change the retention of index %s from %s to %v: %w", own.Name, have, l.config.retention, err)
	}
	return nil
}

func (l *Locker) retentionSeconds() int32 { return int32(l.config.retention / time.Second) }

// warnUnauthorized turns a missing privilege into a warning.
func (l *Locker) warnUnauthorized(ctx context.Context, err error) error {
	if !hasCode(err, codeUnauthorized) {
		return err
	}
	l.warn(ctx, "abandoned locks are not cleaned up: the user lacks the privilege to list or create indexes", "error", err)
	return nil
}

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
