package etcd_test

import (
	"context"
	"crypto/tls"
	"log"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/etcd"
)

// A program that has the configuration of etcd's own client keeps its locks in the same cluster.
func ExampleNew() {
	ctx := context.Background()
	locker, err := etcd.New(ctx, etcd.Config{
		Endpoints: []string{"https://etcd1:2379", "https://etcd2:2379", "https://etcd3:2379"},
		TLS:       &tls.Config{MinVersion: tls.VersionTLS12},
		Username:  "app", Password: "from a secret store",
	}, etcd.WithPrefix("billing"))
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
