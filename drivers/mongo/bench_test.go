package mongo

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/benchratio"
	"github.com/holdfast-go/holdfast/internal/mongotest"
)

// ratioPairs gives an interval of about ±2 % on a noisy machine.
const ratioPairs = 1000

// BenchmarkRatio compares each call with the plain command that a lock without
// tokens, owner checks or a server-side clock would need: an upsert, an update,
// a delete, with majority write concern, of a document with the same fields, in
// the same collection and through the same client.
func BenchmarkRatio(b *testing.B) {
	coll := mongotest.Collection(b)
	l, err := New(b.Context(), coll)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	plain := plainLocks{coll.Clone(options.Collection().SetWriteConcern(writeconcern.Majority()))}
	ctx := b.Context()

	ratio := func(name string, base, ours func(i int) error) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				benchratio.Run(b, ratioPairs, base, ours).Report(b)
			}
		})
	}
	lease := func(i int) holdfast.Lease {
		return holdfast.Lease{Name: fmt.Sprint("ours-", i), ID: benchID(i), TTL: 30 * time.Second}
	}
	name := func(i int) string { return fmt.Sprint("base-", i) }
	acquire := func(i int) error {
		_, err := l.TryAcquire(ctx, holdfast.Request{Name: lease(i).Name, ID: lease(i).ID, Owner: "host/1234", TTL: 30 * time.Second})
		return err
	}
	ratio("AcquireNew", func(i int) error { return plain.acquire(ctx, name(i), benchID(i)) }, acquire)
	ratio("Renew", func(i int) error { return plain.renew(ctx, name(i), benchID(i)) },
		func(i int) error { return l.Renew(ctx, lease(i)) })
	ratio("Release", func(i int) error { return plain.release(ctx, name(i), benchID(i)) },
		func(i int) error { return l.Release(ctx, lease(i)) })

	// What was released is there already; the plain lock finds an expired one.
	for i := range ratioPairs {
		if err := plain.acquire(ctx, name(i), "before"); err != nil {
			b.Fatal(err)
		}
	}
	ratio("AcquireAgain", func(i int) error { return plain.acquire(ctx, name(i), benchID(i)) }, acquire)
}

func benchID(i int) string { return fmt.Sprintf("5f0c2f3e-9a3b-4c55-8f7e-%012d", i) }

// plainLocks is a lock with nothing but the commands, on the client's clock.
type plainLocks struct{ coll *mongo.Collection }

func (p plainLocks) acquire(ctx context.Context, name, id string) error {
	now := time.Now()
	return p.coll.FindOneAndUpdate(ctx, is("_id", name), is("$set", doc{
		{Key: "v", Value: 1}, {Key: "kid", Value: id}, {Key: "owner", Value: "host/1234"}, {Key: "ts", Value: now}, {Key: "acquiredAt", Value: now},
		{Key: "expiresAt", Value: now.Add(30 * time.Second)}, {Key: "token", Value: now.UnixMilli()}, {Key: "ttl", Value: int64(30000)}, {Key: "broken", Value: false},
	}), options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Err()
}

func (p plainLocks) renew(ctx context.Context, name, id string) error {
	now := time.Now()
	_, err := p.coll.UpdateOne(ctx, doc{{Key: "_id", Value: name}, {Key: "kid", Value: id}},
		is("$set", doc{{Key: "ts", Value: now}, {Key: "expiresAt", Value: now.Add(30 * time.Second)}}))
	return err
}

func (p plainLocks) release(ctx context.Context, name, id string) error {
	_, err := p.coll.DeleteOne(ctx, doc{{Key: "_id", Value: name}, {Key: "kid", Value: id}})
	return err
}
