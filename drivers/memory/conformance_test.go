package memory_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/test/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func config(store *memory.Store) lockertest.Config {
	return lockertest.Config{
		New: func(t *testing.T) driver.Locker {
			t.Helper()
			l := store.Locker()
			t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) })
			return l
		},
		Forget: func(_ context.Context, name string) error {
			store.Remove(name)
			return nil
		},
		// A store in memory cannot hang, refuse or be damaged, and all holders end with it.
		Without: []string{"Damage", "Deny", "FailOver", "Stall"},
	}
}

func TestConformance(t *testing.T) {
	t.Run("settable clock", func(t *testing.T) {
		c := locktest.NewClock()
		cfg := config(memory.NewStore(memory.WithClock(c.Now)))
		cfg.Advance = c.Advance
		lockertest.Run(t, cfg)
	})
	t.Run("real time", func(t *testing.T) {
		cfg := config(memory.NewStore())
		cfg.TTL = 200 * time.Millisecond
		lockertest.Run(t, cfg)
	})
}

// Promise 10: after a step back of the clock a dead holder's lock would be stuck. A waiter
// takes it over if the revision is the one that it saw, and only then.
func TestClockStepsBack(t *testing.T) {
	c := locktest.NewClock()
	store := memory.NewStore(memory.WithClock(c.Now))
	l, ctx := store.Locker(), t.Context()
	acquire := func(id string, replace driver.Revision) (driver.Lease, error) {
		return l.TryAcquire(ctx, driver.Request{Name: "n", ID: driver.NewLeaseID(id), TTL: time.Minute, Replace: replace})
	}
	dead, err := acquire("dead", driver.Revision{})
	if err != nil {
		t.Fatal(err)
	}
	c.Advance(-24 * time.Hour)
	seen, err := l.Inspect(ctx, "n")
	if err != nil || seen.State != driver.StateHeld || seen.Remaining < 24*time.Hour {
		t.Fatalf("after the step back: %v, %v left, error %v; want held for more than a day", seen.State, seen.Remaining, err)
	}
	c.Advance(time.Minute) // the TTL, by a clock that did not step back
	if _, err := acquire("waiter", driver.Revision{}); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("without Replace: %v, want ErrHeld", err)
	}
	if _, err := l.Renew(ctx, dead); err != nil { // the holder is alive after all
		t.Fatal(err)
	}
	if _, err := acquire("waiter", seen.Revision); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("with the revision before a renewal: %v, want ErrHeld", err)
	}
	if seen, err = l.Inspect(ctx, "n"); err != nil {
		t.Fatal(err)
	}
	lease, err := acquire("waiter", seen.Revision)
	if err != nil {
		t.Fatalf("with the unchanged revision: %v", err)
	}
	if lease.Token <= dead.Token {
		t.Errorf("token %d after %d; the clock's step back must not matter", lease.Token, dead.Token)
	}
	if _, err := l.Renew(ctx, dead); !errors.Is(err, driver.ErrLost) {
		t.Errorf("renewal by the replaced holder: %v, want ErrLost", err)
	}
}
