package gooselock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/gooselock"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

func Example() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "mem:") // mongodb://… or azblob://… in production
	if err != nil {
		log.Fatal(err)
	}
	locker, err := gooselock.NewLocker(client, "migrations") // for goose.WithLocker
	if err != nil {
		log.Fatal(err)
	}
	watched, stop := locker.Context(ctx) // for provider.Up
	defer stop()

	// What provider.Up does:
	if err := locker.Lock(watched, nil); err != nil {
		log.Fatal(err)
	}
	fmt.Println("migrating:", watched.Err())
	fmt.Println("unlocked:", locker.Unlock(watched, nil))
	_ = client.Shutdown(ctx)
	// Output:
	// migrating: <nil>
	// unlocked: <nil>
}

// The context of the calls ends with a loss, and not with Unlock.
func TestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, start := memory.NewStore(), time.Now()
		client, err := holdfast.New(store.Locker(), holdfast.WithLogger(slog.New(slog.DiscardHandler)),
			holdfast.WithElapsed(func() time.Duration { return time.Since(start) }))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Shutdown(context.Background())
		locker, err := gooselock.NewLocker(client, "migrations")
		if err != nil {
			t.Fatal(err)
		}
		other, err := gooselock.NewLocker(client, "other")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := locker.Context(t.Context())
		defer stop()
		ctx, stopOther := other.Context(ctx)
		defer stopOther()
		if err := errors.Join(locker.Lock(ctx, nil), locker.Unlock(ctx, nil), locker.SessionLock(ctx, nil), other.Lock(ctx, nil)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if ctx.Err() != nil {
			t.Errorf("Unlock ended the context: %v", context.Cause(ctx))
		}
		store.Remove("migrations")
		time.Sleep(time.Minute)
		if !errors.Is(context.Cause(ctx), holdfast.ErrLost) {
			t.Errorf("after the loss: %v", context.Cause(ctx))
		}
		if err := locker.SessionUnlock(ctx, nil); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("SessionUnlock: %v", err)
		}
		if err := other.Unlock(ctx, nil); err != nil {
			t.Errorf("Unlock of the other: %v", err)
		}
	})
}

func TestInvalidArguments(t *testing.T) {
	client := locktest.NewClient(t, memory.New())
	if _, err := gooselock.NewLocker(nil, "x"); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("nil client: %v", err)
	}
	if _, err := gooselock.NewLocker(client, ""); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("no name: %v", err)
	}
}
