package observed

import (
	"context"
	"os"

	"github.com/holdfast-go/holdfast"
)

func open(ctx context.Context) (*holdfast.Client, error) {
	return holdfast.Open(ctx, "file:/tmp", holdfast.WithOverrunHook(func(holdfast.Event) { os.Exit(1) }))
}

// The process ends if the lock is lost.
func run(ctx context.Context, client *holdfast.Client, work func(context.Context) error) error {
	hold, err := client.Lock(ctx, "a")
	if err != nil {
		return err
	}
	defer hold.Release(ctx)
	return work(ctx)
}
