package locktransaction

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast"
	holdmongo "github.com/holdfast-go/holdfast/drivers/mongo"
	"github.com/holdfast-go/holdfast/drivers/postgres"
)

var (
	client   *holdfast.Client
	session  *mongo.Session
	accounts *mongo.Collection
	pool     *pgxpool.Pool
)

func work(ctx context.Context) error { return nil }

func inside(ctx context.Context, names []string) {
	_, _ = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		return nil, client.Do(ctx, "a", work) // want `client.Do in a transaction: the lock is released before the commit, so its next holder can read what was there before; begin the transaction under the lock`
	})
	_, _ = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		hold, err := client.Lock(ctx, "a") // want `client.Lock in a transaction: the lock is released before the commit`
		if err != nil {
			return nil, err
		}
		defer hold.Release(ctx)
		return accounts.InsertOne(ctx, bson.D{})
	})
	_ = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_ = client.TryDo(ctx, "a", work)      // want `client.TryDo in a transaction`
		return client.DoAll(ctx, names, work) // want `client.DoAll in a transaction`
	})
	_ = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{}, func(tx pgx.Tx) error {
		hold, err := client.TryLock(ctx, "a") // want `client.TryLock in a transaction`
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "UPDATE")
		_ = hold.Release(ctx)
		return err
	})
	_, _ = session.WithTransaction(ctx, transfer)
}

func transfer(ctx context.Context) (any, error) {
	return nil, client.Do(ctx, "a", work) // want `client.Do in a transaction`
}

// The transaction of a guard belongs to another lock, which does not protect what this one does.
func guarded(ctx context.Context, guard *holdmongo.Guard, rows *postgres.Guard[pgx.Tx], fence *postgres.Fence[pgx.Tx], hold *holdfast.Hold) {
	_ = guard.Do(ctx, hold, func(ctx context.Context) error { return client.Do(ctx, "a", work) })            // want `client.Do in a transaction`
	_ = rows.Do(ctx, hold, func(ctx context.Context, tx pgx.Tx) error { return client.Do(ctx, "a", work) })  // want `client.Do in a transaction`
	_ = fence.Do(ctx, hold, func(ctx context.Context, tx pgx.Tx) error { return client.Do(ctx, "a", work) }) // want `client.Do in a transaction`
}

func right(ctx context.Context, guard *holdmongo.Guard) (kept *holdfast.Hold, err error) {
	_ = client.Do(ctx, "a", func(ctx context.Context) error {
		_, err := session.WithTransaction(ctx, func(ctx context.Context) (any, error) { return accounts.InsertOne(ctx, bson.D{}) })
		return err
	})
	_ = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		go client.Do(ctx, "a", work) // the transaction does not wait for it
		later := func() error { return client.Do(ctx, "a", work) }
		_ = later
		return nil
	})
	// The hold outlives the transaction.
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var err error
		if kept, err = client.Lock(ctx, "a"); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "UPDATE")
		return err
	})
	return kept, err
}
