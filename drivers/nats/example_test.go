package nats_test

import (
	"context"
	"log"

	natsgo "github.com/nats-io/nats.go"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/nats"
)

// A program that has a connection already keeps its locks in a bucket there.
func ExampleNew() {
	ctx := context.Background()
	conn, err := natsgo.Connect("nats://nats1,nats://nats2", natsgo.UserCredentials("app.creds"))
	if err != nil {
		log.Fatal(err)
	}
	locker, err := nats.New(ctx, conn, "locks")
	if err != nil {
		log.Fatal(err)
	}
	client, err := holdfast.New(locker)
	if err != nil {
		log.Fatal(err)
	}
	if err := client.Do(ctx, "nightly-report", func(ctx context.Context) error {
		return nil // the work, which ends when ctx ends
	}); err != nil {
		log.Print(err)
	}
}
