package s3_test

import (
	"context"
	"log"

	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/aws/s3"
)

// Most programs open a URL: the region and the credentials are those of the environment, of a profile or of the machine.
func Example() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "s3://acme-locks/billing?region=eu-central-1")
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
	locker, err := s3.New(ctx, own, "acme-locks", s3.WithPrefix("billing"))
	if err != nil {
		log.Fatal(err)
	}
	client, err := holdfast.New(locker)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Shutdown(ctx) }()
}
