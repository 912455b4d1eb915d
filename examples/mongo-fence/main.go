// Mongo-fence writes to MongoDB under a lock. A holder that was paused for too long cannot
// overwrite what a later holder has written.
//
// It needs a replica set, because the guard uses transactions:
//
//	go run ./examples/mongo-fence -uri 'mongodb://127.0.0.1:27017/?replicaSet=rs0'
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast"
	holdmongo "github.com/holdfast-go/holdfast/drivers/mongo"
)

func main() {
	uri := flag.String("uri", "mongodb://127.0.0.1:27017/?replicaSet=rs0", "connection string of the MongoDB replica set")
	database := flag.String("database", "holdfast_example", "database for the lock and the account")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *uri, *database); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, uri, database string) (err error) {
	db, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, withTimeLimit(db.Disconnect)) }()
	app := db.Database(database)
	locker, err := holdmongo.New(ctx, app.Collection(holdmongo.DefaultCollection))
	if err != nil {
		return err
	}
	client, err := holdfast.New(locker)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, withTimeLimit(client.Shutdown)) }()
	guard, err := holdmongo.NewGuard(locker, app)
	if err != nil {
		return err
	}
	accounts := app.Collection("accounts")
	if _, err := accounts.DeleteOne(ctx, bson.D{{Key: "_id", Value: "alice"}}); err != nil {
		return err
	}
	if _, err := accounts.InsertOne(ctx, bson.D{{Key: "_id", Value: "alice"}, {Key: "balance", Value: 0}}); err != nil {
		return err
	}

	// Two holders, one after the other. Each writes in a transaction that commits only if
	// there is no later holder.
	var first holdmongo.Fence
	for n := range 2 {
		hold, err := client.Lock(ctx, "accounts")
		if err != nil {
			return err
		}
		fence := holdmongo.Fence(hold.Token())
		if n == 0 {
			first = fence
		}
		err = guard.Do(ctx, hold, func(ctx context.Context) error { return credit(ctx, accounts, fence, 10) })
		err = errors.Join(err, hold.Release(ctx))
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "holder %d has credited 10\n", n+1)
	}

	// The first holder resumes late and does not know that its lease has ended. It writes
	// without a transaction; the write carries its token and is refused too.
	err = credit(ctx, accounts, first, 1000)
	if !errors.Is(err, errStale) {
		return fmt.Errorf("the late write was not refused: %w", err)
	}
	fmt.Fprintf(out, "the first holder's late write: %v\n", err)

	var account struct{ Balance int }
	if err := accounts.FindOne(ctx, bson.D{{Key: "_id", Value: "alice"}}).Decode(&account); err != nil {
		return err
	}
	fmt.Fprintf(out, "balance: %d\n", account.Balance)
	return nil
}

var errStale = errors.New("refused: there is no such account, or a later holder has written to it")

// credit adds to the balance unless a later holder has written to the account.
func credit(ctx context.Context, accounts *mongo.Collection, fence holdmongo.Fence, amount int) error {
	result, err := accounts.UpdateOne(ctx,
		fence.Filter(bson.D{{Key: "_id", Value: "alice"}}),
		bson.D{
			{Key: "$inc", Value: bson.D{{Key: "balance", Value: amount}}},
			{Key: "$set", Value: bson.D{fence.Mark()}},
		})
	if err == nil && result.MatchedCount == 0 {
		return errStale
	}
	return err
}

// withTimeLimit calls a cleanup function with a time limit of its own, since ctx may have ended.
func withTimeLimit(cleanup func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return cleanup(ctx)
}
