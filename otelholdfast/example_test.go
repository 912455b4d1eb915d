package otelholdfast_test

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/otelholdfast"
)

func Example() {
	ctx := context.Background()
	telemetry, err := otelholdfast.New(otelholdfast.WithLockName(func(name string) string { return name }))
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := holdfast.New(memory.New(), telemetry.Option())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Shutdown(ctx)
	err = client.Do(ctx, "billing", func(context.Context) error {
		fmt.Println("measured")
		return nil
	})
	fmt.Println(err)
	// Output:
	// measured
	// <nil>
}
