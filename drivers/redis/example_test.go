package redis_test

import (
	"context"
	"log"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/redis"
)

// A program that has a client already keeps its locks on the same server.
func ExampleNew() {
	ctx := context.Background()
	rdb := goredis.NewClient(&goredis.Options{Addr: "redis1:6379"})
	locker, err := redis.New(ctx, rdb, redis.WithPrefix("billing:"))
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
