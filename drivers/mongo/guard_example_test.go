package mongo_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast"
	holdmongo "github.com/holdfast-go/holdfast/drivers/mongo"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// The holder's writes are in a transaction, which fails once a later holder has used the
// guard.
func ExampleGuard() {
	ctx := context.Background()
	db, end := database() // of the program's own client
	defer end()
	locker, err := holdmongo.New(ctx, db.Collection(holdmongo.DefaultCollection))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = locker.Close(ctx) }()
	client, err := holdfast.New(locker)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Shutdown(ctx) }()
	guard, err := holdmongo.NewGuard(client.Locker(), db)
	if err != nil {
		log.Fatal(err)
	}

	hold, err := client.Lock(ctx, "billing")
	if err != nil {
		log.Fatal(err)
	}
	bill := func(ctx context.Context) error {
		_, err := db.Collection("bills").InsertOne(ctx, bson.D{{Key: "amount", Value: 120}})
		return err
	}
	fmt.Println("while holding:", guard.Do(ctx, hold, bill))

	_ = hold.Release(ctx)
	err = guard.Do(ctx, hold, bill)
	fmt.Println("after the release, refused:", errors.Is(err, holdfast.ErrReleased))

	bills, err := db.Collection("bills").CountDocuments(ctx, bson.D{})
	fmt.Println("bills:", bills, err)

	// Output:
	// while holding: <nil>
	// after the release, refused: true
	// bills: 1 <nil>
}

// Each write has the token, and does not match a document that a later holder has marked.
func ExampleFence() {
	ctx := context.Background()
	db, end := database()
	defer end()
	reports := db.Collection("reports")

	write := func(token uint64, text string) error { // the token comes from Hold.Token or TokenFromContext
		fence := holdmongo.Fence(token)
		_, err := reports.UpdateOne(ctx,
			fence.Filter(bson.D{{Key: "_id", Value: "monday"}}),
			bson.D{{Key: "$set", Value: bson.D{{Key: "text", Value: text}, fence.Mark()}}},
			options.UpdateOne().SetUpsert(true))
		return err
	}
	fmt.Println("first holder:", write(41, "draft"))
	fmt.Println("its successor:", write(42, "final"))
	fmt.Println("the first, after a pause, is refused:", mongo.IsDuplicateKeyError(write(41, "second draft")))

	// Output:
	// first holder: <nil>
	// its successor: <nil>
	// the first, after a pause, is refused: true
}

// database returns a database of the tests' replica set, dropped at the end.
func database() (db *mongo.Database, end func()) {
	client, err := mongo.Connect(options.Client().ApplyURI(mongotest.URI(exampleTB{})))
	if err != nil {
		log.Fatal(err)
	}
	db = client.Database("holdfast_example_" + bson.NewObjectID().Hex())
	return db, func() {
		if err := errors.Join(db.Drop(context.Background()), client.Disconnect(context.Background())); err != nil {
			log.Fatal(err)
		}
	}
}

// exampleTB replaces the testing.TB, which examples do not have.
type exampleTB struct{ testing.TB }

func (exampleTB) Helper()                   {}
func (exampleTB) Fatal(args ...any)         { log.Fatal(args...) }
func (exampleTB) Fatalf(f string, a ...any) { log.Fatalf(f, a...) }
