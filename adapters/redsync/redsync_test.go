package redsync_test

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
	"github.com/holdfast-go/holdfast/adapters/redsync"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

func Example() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "mem:") // mongodb://… or azblob://… in production
	if err != nil {
		log.Fatal(err)
	}
	rs := redsync.New(client)
	mutex := rs.NewMutex("report", redsync.WithExpiry(time.Minute))
	if err := mutex.LockContext(ctx); err != nil {
		log.Fatal(err)
	}
	var taken *redsync.ErrTaken
	fmt.Println("taken:", errors.As(rs.NewMutex("report").TryLockContext(ctx), &taken))
	fmt.Println(mutex.ExtendContext(ctx))
	fmt.Println(mutex.UnlockContext(ctx))
	_ = client.Shutdown(ctx)
	// Output:
	// taken: true
	// true <nil>
	// true <nil>
}

func newClient(t *testing.T, l holdfast.Locker) *holdfast.Client {
	t.Helper()
	start := time.Now()
	c, err := holdfast.New(l, holdfast.WithLogger(slog.New(slog.DiscardHandler)),
		holdfast.WithElapsed(func() time.Duration { return time.Since(start) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = c.Shutdown(ctx)
	})
	return c
}

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		mutex := redsync.New(newClient(t, store.Locker())).NewMutex("report", redsync.WithExpiry(time.Minute))
		other := redsync.New(newClient(t, store.Locker())).NewMutex("report")
		if err := mutex.TryLock(); err != nil {
			t.Fatal(err)
		}
		ctx, token := mutex.Context(), mutex.Token()
		time.Sleep(50 * time.Second)
		if ok, err := mutex.Extend(); !ok || err != nil {
			t.Errorf("Extend: %t, %v", ok, err)
		}
		time.Sleep(59 * time.Second)
		if ok, err := mutex.Valid(); !ok || err != nil {
			t.Errorf("Valid before the expiry that was extended: %t, %v", ok, err)
		}
		if err := other.TryLock(); ctx.Err() != nil || !errors.Is(err, holdfast.ErrHeld) || !errors.Is(err, redsync.ErrFailed) {
			t.Errorf("before the expiry: %v, TryLock of another: %v", context.Cause(ctx), err)
		}
		time.Sleep(1001 * time.Millisecond)
		if ok, _ := mutex.Valid(); ok || ctx.Err() == nil {
			t.Errorf("after the expiry: valid %t, context %v", ok, ctx.Err())
		}
		if err := other.TryLock(); err != nil || other.Token() <= token {
			t.Errorf("another after the expiry: %v, token %d after %d", err, other.Token(), token)
		}
		if ok, err := mutex.Unlock(); ok || !errors.Is(err, redsync.ErrLockAlreadyExpired) {
			t.Errorf("Unlock: %t, %v", ok, err)
		}
		if ok, _ := other.Valid(); !ok {
			t.Error("a late Unlock released the next holder's lock")
		}
	})
}

func TestLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		mutex := redsync.New(newClient(t, store.Locker())).NewMutex("report", redsync.WithExpiry(time.Minute))
		if err := mutex.Lock(); err != nil {
			t.Fatal(err)
		}
		store.Remove("report")
		<-mutex.Context().Done()
		if cause := context.Cause(mutex.Context()); !errors.Is(cause, holdfast.ErrLost) {
			t.Errorf("the context ended with %v", cause)
		}
		if ok, err := mutex.Extend(); ok || !errors.Is(err, redsync.ErrExtendFailed) {
			t.Errorf("Extend: %t, %v", ok, err)
		}
		if err := mutex.Lock(); err != nil { // without Unlock
			t.Errorf("Lock after the loss: %v", err)
		}
	})
}

func TestUnlockWithAnEndedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		ctx, cancel := context.WithCancel(t.Context())
		rs := redsync.New(newClient(t, store.Locker()))
		mutex := rs.NewMutex("report")
		if err := mutex.LockContext(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		if ok, err := mutex.UnlockContext(ctx); !ok || err != nil {
			t.Errorf("Unlock: %t, %v", ok, err)
		}
		if err := rs.NewMutex("report").TryLock(); err != nil {
			t.Errorf("the lock was not released: %v", err)
		}
	})
}

// limited is a Locker with the limits of Azure Blob Storage.
type limited struct{ holdfast.Locker }

func (limited) Limits() driver.Limits {
	return driver.Limits{MinTTL: 15 * time.Second, MaxTTL: time.Minute, TTLStep: time.Second, MaxName: 100, MaxOwner: 100, MaxData: 100}
}

func TestTTLWithinTheLimits(t *testing.T) {
	for expiry, want := range map[time.Duration]time.Duration{
		8 * time.Second:          15 * time.Second,
		15500 * time.Millisecond: 16 * time.Second,
		time.Hour:                time.Minute,
	} {
		client := newClient(t, limited{memory.New()})
		if err := redsync.New(client).NewMutex("report", redsync.WithExpiry(expiry)).Lock(); err != nil {
			t.Fatal(err)
		}
		if r, err := client.Inspect(t.Context(), "report"); err != nil || r.TTL != want {
			t.Errorf("an expiry of %v: %v, %v", expiry, r.TTL, err)
		}
	}
}

func TestInvalidArguments(t *testing.T) {
	client := newClient(t, memory.New())
	for what, mutex := range map[string]*redsync.Mutex{
		"nil client": redsync.New(nil).NewMutex("x"),
		"expiry":     redsync.New(client).NewMutex("x", nil, redsync.WithExpiry(0)),
		"delay":      redsync.New(client).NewMutex("x", redsync.WithRetryDelayFunc(nil)),
		"name":       redsync.New(client).NewMutex(""),
		"option":     redsync.New(client, nil).NewMutex("x"),
	} {
		if err := mutex.Lock(); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
		if ok, err := mutex.Unlock(); ok || err == nil {
			t.Errorf("%s: Unlock: %t, %v", what, ok, err)
		}
		if mutex.Context().Err() == nil || mutex.Token() != 0 || !mutex.Until().IsZero() {
			t.Errorf("%s: the mutex seems to be locked", what)
		}
	}
}
