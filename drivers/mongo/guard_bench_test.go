package mongo

import (
	"context"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/holdfast-go/holdfast/test/bench/ratio"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// BenchmarkGuard compares a guarded insert with the same insert in a plain transaction with
// the same concerns. The guard adds a raise, two reads of the lock and a write of the fence.
func BenchmarkGuard(b *testing.B) {
	coll := mongotest.Collection(b)
	l := newBenchLocker(b, coll)
	guard, err := NewGuard(l, coll.Database())
	if err != nil {
		b.Fatal(err)
	}
	req := request("job", benchID(0))
	req.TTL = limits.MaxTTL
	lease, err := l.TryAcquire(b.Context(), req)
	if err != nil {
		b.Fatal(err)
	}
	hold := testHold{lease: lease, ctx: b.Context()}
	journal := coll.Database().Collection("journal")
	insert := func(ctx context.Context) error {
		_, err := journal.InsertOne(ctx, docOf("n", 1))
		return err
	}
	session, err := coll.Database().Client().StartSession()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { session.EndSession(context.WithoutCancel(b.Context())) })
	concerns := options.Transaction().SetReadConcern(readconcern.Snapshot()).SetWriteConcern(writeconcern.Majority())

	for b.Loop() {
		ratio.Run(b, 300, func(int) error {
			_, err := session.WithTransaction(b.Context(), func(ctx context.Context) (any, error) { return nil, insert(ctx) }, concerns)
			return err
		}, func(int) error { return guard.Do(b.Context(), hold, insert) }).Report(b)
	}
}
