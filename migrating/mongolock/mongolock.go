// Package mongolock holds locks of other programs in MongoDB: those of ShedLock, and those of a
// program's own collection. They are old locks for package
// [github.com/holdfast-go/holdfast/migrating].
package mongolock

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/migrating"
)

// Schema describes the documents of a collection. The _id of a document is the lock's name.
type Schema struct {
	// Until is the field with the date at which the lock ends.
	Until string
	// Owner is the field that says who holds the lock. It proves that this program holds it, so the
	// other programs have to write it with each acquisition.
	Owner string
	// At is the field with the date of the acquisition; it can be empty.
	At string
	// HeldWhilePresent says that a lock is held as long as there is a document, whatever its date:
	// the other programs acquire by an insert, and a TTL index removes what is left over.
	HeldWhilePresent bool
	// DeleteOnRelease says that a release removes the document. HeldWhilePresent implies it.
	DeleteOnRelease bool
	// Skew is how far the clocks of the other programs may be from the server's clock. They judge by
	// their own clocks when a lock ends. A lock is held this much longer for them, and is taken
	// this much later after its end. The default is 1s.
	Skew time.Duration
}

const (
	defaultSkew = time.Second
	maxSkew     = time.Hour
)

// Lock is an old lock. It is safe for concurrent use.
type Lock struct {
	collection *mongo.Collection
	schema     Schema
	checked    atomic.Bool // the indexes
}

var _ migrating.Old = (*Lock)(nil)

// ShedLock describes the documents of ShedLock's MongoLockProvider: _id, lockUntil, lockedAt and
// lockedBy. Its collection is called shedLock by default.
func ShedLock() Schema { return Schema{Until: "lockUntil", Owner: "lockedBy", At: "lockedAt"} }

// New returns the locks of a collection.
func New(collection *mongo.Collection, schema Schema) (*Lock, error) {
	if schema.Skew == 0 {
		schema.Skew = defaultSkew
	}
	switch {
	case collection == nil:
		return nil, driver.Invalid("collection", "nil", "the collection of the old locks")
	case schema.Skew < 0 || schema.Skew > maxSkew:
		return nil, driver.Invalid("Skew", driver.FormatDuration(schema.Skew), "from 0 to "+driver.FormatDuration(maxSkew))
	case schema.At != "" && !isField(schema.At):
		return nil, driver.Invalid("At", driver.Quote(schema.At), "the name of a field")
	}
	for field, value := range map[string]string{"Until": schema.Until, "Owner": schema.Owner} {
		if !isField(value) {
			return nil, driver.Invalid(field, driver.Quote(value), "the name of a field")
		}
	}
	client := collection.Database().Client().Database(collection.Database().Name(), options.Database().
		SetWriteConcern(writeconcern.Majority()).SetReadPreference(readpref.Primary()))
	return &Lock{collection: client.Collection(collection.Name()), schema: schema}, nil
}

func isField(name string) bool {
	return name != "" && name != "_id" && !strings.ContainsAny(name, ".$\x00")
}

// Info implements [migrating.Old]. Any TTL is allowed. Whether the server is one of a replica set, so that grants
// survive a fail-over, is not known.
func (l *Lock) Info() driver.Info {
	return driver.Info{Backend: "mongodb", Expiry: driver.ByServer, Failover: driver.GrantsMayBeForgotten}
}

// owner is the value of the field Owner: it says who holds the lock, and which acquisition it is.
func owner(claim migrating.Claim) string { return claim.Owner + " " + claim.Proof }

// proof finds the proof in a value of the field Owner.
var proof = regexp.MustCompile(` [0-9a-f]{32}$`)

// ownerOf is the value of the field Owner without the proof, which is for programs.
func ownerOf(value string) string { return proof.ReplaceAllString(value, "") }

func doc(key string, value any) bson.D { return bson.D{{Key: key, Value: value}} }

// now plus a time, by the server's clock.
func fromNow(d time.Duration) bson.D { return doc("$add", bson.A{"$$NOW", d.Milliseconds()}) }

// outside returns the context without the caller's session.
//
// Promise 1: in the caller's transaction a write would be invisible to others until the commit, and
// an abort would free the lock.
func outside(ctx context.Context) context.Context {
	if mongo.SessionFromContext(ctx) == nil {
		return ctx
	}
	return mongo.NewSessionContext(ctx, nil)
}

// acquireTries is how often an upsert is sent while others make the document at the same time.
const acquireTries = 3

// Acquire implements [migrating.Old]. The server decides at one instant of its clock. A document
// that it makes has the same fields as one of the other programs, in the same order.
//
// The first call lists the indexes. A TTL index on another field than Until is an InvalidError.
func (l *Lock) Acquire(ctx context.Context, claim migrating.Claim) error {
	ctx, s := outside(ctx), l.schema
	if err := l.checkIndexes(ctx); err != nil {
		return err
	}
	until, mine := "$"+s.Until, doc("$literal", owner(claim))
	isMine := doc("$eq", bson.A{"$" + s.Owner, mine})
	isFresh := doc("$and", bson.A{doc("$eq", bson.A{doc("$type", until), "missing"}),
		doc("$eq", bson.A{doc("$type", "$"+s.Owner), "missing"})})
	free := bson.A{isMine, isFresh}
	if !s.HeldWhilePresent {
		// Promise 1: a value that is no date would compare below one, so it does not count as over.
		free = append(free, doc("$and", bson.A{doc("$eq", bson.A{doc("$type", until), "date"}), doc("$lte", bson.A{until, fromNow(-s.Skew)})}))
	}
	end := doc("$max", bson.A{doc("$cond", bson.A{isMine, until, "$$NOW"}), fromNow(claim.TTL + s.Skew)})
	choose := func(granted, refused any) bson.D {
		return doc("$cond", bson.A{doc("$or", free), granted, refused})
	}
	set := bson.D{{Key: s.Until, Value: choose(end, until)}}
	if s.At != "" {
		set = append(set, bson.E{Key: s.At, Value: choose(doc("$cond", bson.A{isMine, "$" + s.At, "$$NOW"}), "$"+s.At)})
	}
	set = append(set, bson.E{Key: s.Owner, Value: choose(mine, "$"+s.Owner)})
	left := doc("$cond", bson.A{doc("$eq", bson.A{doc("$type", until), "date"}), doc("$subtract", bson.A{until, "$$NOW"}), nil})
	// Promise 1: a document without both fields is not known to be free. The filter does not match it,
	// so isFresh is true only for the document that the upsert makes.
	present := doc("$exists", true)
	filter := bson.D{{Key: "_id", Value: claim.Name}, {Key: "$or", Value: bson.A{doc(s.Until, present), doc(s.Owner, present)}}}
	var raw bson.Raw
	var err error
	for range acquireTries {
		raw, err = l.collection.FindOneAndUpdate(ctx, filter, bson.A{doc("$set", set)}, options.FindOneAndUpdate().
			SetUpsert(true).SetReturnDocument(options.After).SetProjection(bson.D{{Key: s.Owner, Value: 1}, {Key: "left", Value: left}})).Raw()
		if !mongo.IsDuplicateKeyError(err) {
			break
		}
	}
	switch {
	case mongo.IsDuplicateKeyError(err) && s.HeldWhilePresent:
		return &driver.HeldError{Record: driver.Record{Name: claim.Name, State: driver.StateHeld}}
	case mongo.IsDuplicateKeyError(err):
		return l.failed(fmt.Errorf("the document %q has neither %s nor %s: %w", claim.Name, s.Until, s.Owner, err))
	case err != nil:
		return l.failed(err)
	}
	holder, _ := raw.Lookup(s.Owner).StringValueOK()
	if holder == owner(claim) {
		return nil
	}
	record := driver.Record{Name: claim.Name, State: driver.StateHeld, Owner: ownerOf(holder)}
	if ms, ok := raw.Lookup("left").AsInt64OK(); ok {
		const longest = int64(driver.MaxTTL / time.Millisecond) // a time.Duration has no more than 292 years
		left := time.Duration(min(max(ms, -longest), longest)) * time.Millisecond
		// It is taken Skew after its end. A document that is present after that waits for its removal.
		if record.Remaining = left + s.Skew; record.Remaining > 0 {
			record.RemainingKnown = true
		} else {
			record.Remaining = 0
		}
	} else if !s.HeldWhilePresent {
		return l.failed(fmt.Errorf("the document %q has no date in %s", claim.Name, s.Until))
	}
	return &driver.HeldError{Record: record}
}

// Renew implements [migrating.Old].
func (l *Lock) Renew(ctx context.Context, claim migrating.Claim) error {
	end := doc("$max", bson.A{"$" + l.schema.Until, fromNow(claim.TTL + l.schema.Skew)})
	result, err := l.collection.UpdateOne(outside(ctx), l.heldBy(claim), bson.A{doc("$set", doc(l.schema.Until, end))})
	switch {
	case err != nil:
		return l.failed(err)
	case result.MatchedCount == 0:
		return driver.ErrLost
	}
	return nil
}

// Release implements [migrating.Old].
func (l *Lock) Release(ctx context.Context, claim migrating.Claim) error {
	if l.schema.DeleteOnRelease || l.schema.HeldWhilePresent {
		_, err := l.collection.DeleteOne(outside(ctx), l.heldBy(claim))
		return l.failed(err)
	}
	// Promise 1: without the proof in the document, a late renewal does not take the lock again.
	written := "$" + l.schema.Owner
	withoutProof := doc("$substrBytes", bson.A{written, 0, doc("$subtract", bson.A{doc("$strLenBytes", written), len(" " + claim.Proof)})})
	over := bson.D{{Key: l.schema.Until, Value: fromNow(-l.schema.Skew)}, {Key: l.schema.Owner, Value: withoutProof}}
	_, err := l.collection.UpdateOne(outside(ctx), l.heldBy(claim), bson.A{doc("$set", over)})
	return l.failed(err)
}

// heldBy matches the document while the claim holds the lock.
//
// Promise 6: the field Owner has the proof of this acquisition, so a late request does not touch another's.
// The owner before it proves nothing: a claim may come without.
func (l *Lock) heldBy(claim migrating.Claim) bson.D {
	return bson.D{{Key: "_id", Value: claim.Name},
		{Key: l.schema.Owner, Value: bson.Regex{Pattern: " " + regexp.QuoteMeta(claim.Proof) + "$"}}}
}

func (l *Lock) failed(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, mongo.ErrClientDisconnected) {
		return driver.ErrClosed
	}
	if mongo.IsTimeout(err) && !errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err) // the server's limit was reached first
	}
	return fmt.Errorf("collection %s: %w", l.collection.Name(), err)
}
