package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/drivers/memory" // registers "mem:"
)

func ExampleOpen() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "mem:", holdfast.WithTTL(time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Shutdown(ctx) }()

	_, err = holdfast.Open(ctx, "mem:", holdfast.WithGrace(time.Hour))
	fmt.Println(err)
	// Output: holdfast: Grace 1h is invalid: must be less than the TTL of 30s
}

func ExampleClient_Do() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "mem:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Shutdown(ctx) }()

	err = client.Do(ctx, "billing", func(ctx context.Context) error {
		token, _ := holdfast.TokenFromContext(ctx)
		fmt.Println("billing under a fencing token:", token > 0)
		return nil
	})
	fmt.Println("done:", err)
	// Output:
	// billing under a fencing token: true
	// done: <nil>
}

func ExampleClient_Lock() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "mem:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Shutdown(ctx) }()

	wait, cancel := context.WithTimeout(ctx, time.Minute) // bounds the waiting only
	hold, err := client.Lock(wait, "migration")
	cancel()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("held:", hold.Err() == nil)
	fmt.Println("released:", hold.Release(ctx) == nil)
	fmt.Println("why the context ended:", context.Cause(hold.Context()))
	// Output:
	// held: true
	// released: true
	// why the context ended: holdfast: lock released
}

func ExampleClient_TryLock() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "mem:", holdfast.WithOwner("web-3"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Shutdown(ctx) }()

	hold, err := client.TryLock(ctx, "report")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = client.TryLock(ctx, "report")
	var held *holdfast.HeldError
	if errors.As(err, &held) {
		fmt.Println("held by", held.Record.Owner)
	}
	_ = hold.Release(ctx)
	// Output: held by web-3
}

// At most three holders convert pictures at a time.
func ExampleWithSlots() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "mem:", holdfast.WithSlots(3))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Shutdown(ctx) }()

	slots := map[int]bool{}
	for range 3 {
		hold, err := client.Lock(ctx, "convert")
		if err != nil {
			fmt.Println(err)
			return
		}
		slots[hold.Slot()] = true
	}
	fmt.Println("different slots:", len(slots))

	_, err = client.TryLock(ctx, "convert")
	fmt.Println("a fourth is refused:", errors.Is(err, holdfast.ErrHeld))
	// Output:
	// different slots: 3
	// a fourth is refused: true
}
