package mongo_test

import (
	"context"
	"fmt"
	"log"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
	holdmongo "github.com/holdfast-go/holdfast/drivers/mongo"
)

// A program with a MongoDB client keeps its locks in one of its collections.
func ExampleNew() {
	ctx := context.Background()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://db1,db2,db3/?replicaSet=rs0"))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Disconnect(ctx) }()

	locker, err := holdmongo.New(ctx, client.Database("app").Collection(holdmongo.DefaultCollection))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = locker.Close(ctx) }()

	record, err := locker.Inspect(ctx, "nightly-report")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(record.State, record.Owner)
}

// The URL is a MongoDB connection string with a database. Importing the package is enough.
func ExampleOpen() {
	ctx := context.Background()
	locker, err := driver.Open(ctx, "mongodb://db1,db2,db3/app?replicaSet=rs0&collection=locks")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = locker.Close(ctx) }()
	fmt.Println(locker.Info().Limits.MaxTTL)
}
