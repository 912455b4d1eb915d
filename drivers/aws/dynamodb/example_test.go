package dynamodb_test

import (
	"context"
	"fmt"
	"log"

	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/aws/dynamodb"
)

// By URL, as with every other backend. The credentials are those of the environment, of a profile or of the machine.
func Example() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "dynamodb://locks?region=eu-central-1")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Shutdown(ctx) }()
	if err := client.Do(ctx, "nightly", func(context.Context) error { return nil }); err != nil {
		log.Print(err)
	}
}

// A program that has a configuration of AWS uses that.
func ExampleNew() {
	ctx := context.Background()
	own, err := config.LoadDefaultConfig(ctx, config.WithSharedConfigProfile("locks"))
	if err != nil {
		log.Fatal(err)
	}
	locker, err := dynamodb.New(ctx, own, "locks", dynamodb.WithPrefix("billing"))
	if err != nil {
		log.Fatal(err)
	}
	client, err := holdfast.New(locker)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Shutdown(ctx) }()
}

// What a program's own transaction checks, here for a hold with the token 7.
func ExampleTokenCheck() {
	c := dynamodb.TokenCheck("locks", "billing", "nightly", 7)
	fmt.Println(c.TableName, c.Key, c.ConditionExpression, c.ExpressionAttributeValues)
	// Output: locks map[name:billing/nightly] fencingToken = :token map[:token:7]
}
