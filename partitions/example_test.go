package partitions_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/partitions"
)

// A consumer of a feed in 16 shards. Every instance of the service does the same; the
// shards are spread over however many there are.
func ExampleNew() {
	client, err := holdfast.Open(context.Background(), "mem:") // mongodb://… or azblob://… in production
	if err != nil {
		log.Fatal(err)
	}
	consume := func(ctx context.Context, shard int) error {
		token, _ := holdfast.TokenFromContext(ctx) // for what the shard's results are written to
		for token > 0 {
			select {
			case <-time.After(10 * time.Millisecond): // the next record of the shard
			case <-ctx.Done(): // lost, reassigned, or the end: the shard is another instance's soon
				return context.Cause(ctx)
			}
		}
		return nil
	}
	shards, err := partitions.New(client, "feed", 16, consume,
		holdfast.WithTTL(20*time.Second),
		partitions.WithRebalanceEvery(100*time.Millisecond)) // in production the default will do
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background()) // signal.NotifyContext(…, SIGTERM)
	go func() {
		for len(shards.Owned()) < 16 {
			time.Sleep(time.Millisecond)
		}
		fmt.Println("alone:", shards.Owned())
		stop() // SIGTERM comes
	}()
	err = shards.Run(ctx)
	fmt.Println("stopped:", errors.Is(err, context.Canceled), shards.Owned())
	if err := client.Shutdown(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// alone: [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15]
	// stopped: true []
}
