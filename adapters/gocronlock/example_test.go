package gocronlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/gocronlock"
	_ "github.com/holdfast-go/holdfast/drivers/memory"
)

// Lock stands for gocron.Lock, so that this example needs no other module.
type Lock interface {
	Unlock(ctx context.Context) error
}

func ExampleLocker() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "mem:") // mongodb://… or azblob://… in production
	if err != nil {
		log.Fatal(err)
	}
	locker, err := gocronlock.NewLocker[Lock](client, 50*time.Second) // NewLocker[gocron.Lock]
	if err != nil {
		log.Fatal(err)
	}
	// gocron.NewTask takes this, gocron.WithName the same name, and
	// gocron.WithDistributedLocker the locker.
	task := locker.Task("report", func(ctx context.Context) error {
		token, _ := holdfast.TokenFromContext(ctx)
		fmt.Println("the report runs under a fencing token:", token > 0)
		return nil
	})

	// What gocron does at the time of the job, here and on other instances:
	for range 2 {
		lock, err := locker.Lock(ctx, "report")
		if err != nil {
			fmt.Println("skipped, held:", errors.Is(err, holdfast.ErrHeld))
			continue
		}
		_ = task(ctx)
		_ = lock.Unlock(ctx) // keeps the lock for the rest of the minimum hold
	}
	_ = client.Shutdown(ctx)
	// Output:
	// the report runs under a fencing token: true
	// skipped, held: true
}

func ExampleElector() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	elector, err := gocronlock.NewElector(client, "scheduler") // for gocron.WithDistributedElector
	if err != nil {
		log.Fatal(err)
	}
	task := elector.Task(func(context.Context) error { // for gocron.NewTask
		fmt.Println("only the leader runs this")
		return nil
	})

	// What gocron does at the time of the job:
	if err := elector.IsLeader(ctx); err == nil {
		_ = task(ctx)
	}
	_ = elector.Close(ctx)
	_ = client.Shutdown(ctx)
	// Output: only the leader runs this
}
