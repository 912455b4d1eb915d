package mongo

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/bench/ratio"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// ratioPairs gives an interval of about ±2 % on a busy machine.
const ratioPairs = 1000

// BenchmarkRatio compares each call with the plain command that a lock without tokens, owner
// checks and a server-side clock needs: an upsert, an update or a delete with majority write
// concern, of a document with the same fields, in the same collection, with the same client.
//
// That upsert, by _id alone, takes the lock from any holder. So acquiring has a second
// baseline, Conditional: the same upsert with the smallest condition that makes it a lock (the
// lease has expired by the client's clock, or is the caller's own). If the lock is held, it
// returns a duplicate key error and no holder. A release that deletes the document loses the
// token: ReleaseKept is compared with an update that keeps the document. The records of locks have a
// full history, as those of locks in use, and the baseline's have none.
func BenchmarkRatio(b *testing.B) {
	coll := mongotest.Collection(b)
	l := newBenchLocker(b, coll)
	plain := plainLocks{coll.Clone(options.Collection().SetWriteConcern(writeconcern.Majority()))}
	ctx := b.Context()

	ourName := func(i int) string { return fmt.Sprint("ours-", i) }
	lease := func(i int) driver.Lease {
		return driver.Lease{Name: ourName(i), ID: driver.NewLeaseID(benchID(i)), TTL: 30 * time.Second}
	}
	name := func(i int) string { return fmt.Sprint("base-", i) }
	acquire := func(i int) error {
		_, err := l.TryAcquire(ctx, driver.Request{Name: ourName(i), ID: driver.NewLeaseID(benchID(i)), Owner: "host/1234",
			TTL: 30 * time.Second})
		return err
	}
	// seed creates the documents of all pairs in the state before a call.
	seed := func(b *testing.B, fields func(i int) doc) {
		b.Helper()
		if _, err := coll.DeleteMany(ctx, doc{}); err != nil {
			b.Fatal(err)
		}
		var documents []any
		for i := 0; i < ratioPairs && fields != nil; i++ {
			documents = append(documents, append(docOf("_id", name(i)), fields(i)...),
				append(append(docOf("_id", ourName(i)), fields(i)...), benchHistory(driver.DefaultHistory)))
		}
		if len(documents) == 0 {
			return
		}
		if _, err := coll.InsertMany(ctx, documents); err != nil {
			b.Fatal(err)
		}
	}
	held := func(i int) doc { return append(benchFields(time.Now()), field("kid", benchID(i))) }
	free := func(int) doc { return benchFields(time.Now().Add(-time.Hour)) }

	for _, c := range []struct {
		name       string
		start      func(i int) doc
		base, ours func(i int) error
	}{
		{"AcquireNew", nil, func(i int) error { return plain.acquire(ctx, name(i), benchID(i)) }, acquire},
		{"AcquireNewConditional", nil, func(i int) error { return plain.acquireIfFree(ctx, name(i), benchID(i)) }, acquire},
		{"AcquireAgain", free, func(i int) error { return plain.acquire(ctx, name(i), benchID(i)) }, acquire},
		{"AcquireAgainConditional", free, func(i int) error { return plain.acquireIfFree(ctx, name(i), benchID(i)) }, acquire},
		{"Renew", held, func(i int) error { return plain.renew(ctx, name(i), benchID(i)) },
			func(i int) error { return errOf(l.Renew(ctx, lease(i))) }},
		{"Release", held, func(i int) error { return plain.release(ctx, name(i), benchID(i)) },
			func(i int) error { return l.Release(ctx, lease(i)) }},
		{"ReleaseKept", held, func(i int) error { return plain.releaseKept(ctx, name(i), benchID(i)) },
			func(i int) error { return l.Release(ctx, lease(i)) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				seed(b, c.start)
				ratio.Run(b, ratioPairs, c.base, c.ours).Report(b)
			}
		})
	}
}

func benchFields(now time.Time) doc {
	return doc{
		{Key: "v", Value: 1}, {Key: "owner", Value: "host/1234"}, {Key: "ts", Value: now}, {Key: "acquiredAt", Value: now},
		{Key: "expiresAt", Value: now.Add(30 * time.Second)}, {Key: "token", Value: now.UnixMilli()}, {Key: "ttl", Value: int64(30000)},
		{Key: "broken", Value: false},
	}
}

// benchHistory is the history of a lock with so many past holders.
func benchHistory(n int) bson.E {
	now, past := time.Now(), list{}
	for range n {
		past = append(past, doc{
			field(pastOwner, "host/1234"), field(pastToken, now.UnixMilli()), field(pastAcquired, now), field(pastExpires, now),
			field(pastReleased, now), field(pastHeld, false),
		})
	}
	return field(fieldHistory, past)
}

func benchID(i int) string { return fmt.Sprintf("5f0c2f3e-9a3b-4c55-8f7e-%012d", i) }

// plainLocks is a lock made of plain commands, with the client's clock.
type plainLocks struct{ coll *mongo.Collection }

func (p plainLocks) acquire(ctx context.Context, name, id string) error {
	return p.upsert(ctx, docOf("_id", name), id)
}

func (p plainLocks) acquireIfFree(ctx context.Context, name, id string) error {
	return p.upsert(ctx, doc{{Key: "_id", Value: name}, {Key: "$or", Value: list{
		docOf("expiresAt", docOf("$lte", time.Now())), docOf("kid", id),
	}}}, id)
}

func (p plainLocks) upsert(ctx context.Context, filter doc, id string) error {
	return p.coll.FindOneAndUpdate(ctx, filter, docOf("$set", append(benchFields(time.Now()), field("kid", id))),
		options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Err()
}

func (p plainLocks) renew(ctx context.Context, name, id string) error {
	now := time.Now()
	_, err := p.coll.UpdateOne(ctx, doc{{Key: "_id", Value: name}, {Key: "kid", Value: id}},
		docOf("$set", doc{{Key: "ts", Value: now}, {Key: "expiresAt", Value: now.Add(30 * time.Second)}}))
	return err
}

// releaseKept keeps the document, without which tokens do not rise.
func (p plainLocks) releaseKept(ctx context.Context, name, id string) error {
	_, err := p.coll.UpdateOne(ctx, doc{{Key: "_id", Value: name}, {Key: "kid", Value: id}},
		doc{docOf("$unset", docOf("kid", ""))[0], docOf("$set", docOf("expiresAt", time.Now()))[0]})
	return err
}

func (p plainLocks) release(ctx context.Context, name, id string) error {
	_, err := p.coll.DeleteOne(ctx, doc{{Key: "_id", Value: name}, {Key: "kid", Value: id}})
	return err
}
