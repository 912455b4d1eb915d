package kubernetes_test

import (
	"context"
	"log"

	"k8s.io/client-go/rest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/kubernetes"
)

// A program in a pod that has a configuration for its other requests keeps its locks in the same cluster.
func ExampleNew() {
	ctx := context.Background()
	config, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	locker, err := kubernetes.New(ctx, config, "locks", kubernetes.WithPrefix("billing-"))
	if err != nil {
		log.Fatal(err)
	}
	client, err := holdfast.New(locker)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Shutdown(ctx) }()
	if err := client.Do(ctx, "nightly-report", func(ctx context.Context) error {
		return nil // the work, which ends when ctx ends
	}); err != nil {
		log.Print(err)
	}
}
