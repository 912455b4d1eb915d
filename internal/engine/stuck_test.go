package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// stuckHolder returns a store with the locks of a dead holder. Their TTL is 20 s, but by the
// store's clock, which stepped back, they expire in a day only.
func stuckHolder(t *testing.T, names ...string) *memory.Store {
	t.Helper()
	ahead := 24 * time.Hour
	store := memory.NewStore(memory.WithClock(func() time.Time { return time.Now().Add(ahead) }))
	dead := store.Locker()
	for _, name := range names {
		if _, err := dead.TryAcquire(t.Context(), driver.Request{Name: name, ID: driver.NewLeaseID("dead " + name), Owner: "dead",
			TTL: 20 * time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	ahead = 0
	return store
}

// Promise 10 holds for callers that each try once: a Client remembers what the earlier ones saw.
func TestNoLockIsStuckForTries(t *testing.T) {
	try := func(t *testing.T, c *holdfast.Client, opts ...holdfast.Option) bool {
		h, err := c.TryLock(t.Context(), "job", opts...)
		if err != nil && !errors.Is(err, holdfast.ErrHeld) {
			t.Fatal(err)
		}
		return h != nil
	}
	ways := map[string]func(t *testing.T, c *holdfast.Client) bool{
		"TryLock":          func(t *testing.T, c *holdfast.Client) bool { return try(t, c) },
		"TryLock of slots": func(t *testing.T, c *holdfast.Client) bool { return try(t, c, holdfast.WithSlots(3)) },
		"a runner for each call": func(t *testing.T, c *holdfast.Client) bool {
			ran, err := locktest.NewRunner(t, c).RunTaskOnLeader(t.Context(), locktest.EmptyTask)
			if err != nil {
				t.Fatal(err)
			}
			return ran
		},
		"Lock with a short timeout": func(t *testing.T, c *holdfast.Client) bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			h, _ := c.Lock(ctx, "job")
			return h != nil
		},
	}
	for what, take := range ways {
		for _, every := range []time.Duration{time.Second, 15 * time.Second, time.Hour} {
			locktest.Bubble(t, what+" every "+every.String(), func(t *testing.T) {
				store := stuckHolder(t, "job", "job#2", "job#3")
				f := locktest.NewFaulty(t, store.Locker(), nil)
				f.NoBatchReads = true
				c := locktest.NewClient(t, f)
				start := time.Now()
				for !take(t, c) && time.Since(start) < 5*time.Hour {
					time.Sleep(every)
				}
				if took := time.Since(start); took < 20*time.Second || took > 21*time.Second+every {
					t.Errorf("taken over after %v, want one TTL of the dead holder", took)
				}
			})
		}
	}
}

// Waiters and tries share the Client's sightings.
func TestWaitersAndTriesShareSightings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.NewClient(t, stuckHolder(t, "job").Locker())
		ctx, cancel := context.WithTimeout(t.Context(), 19*time.Second)
		defer cancel()
		if _, err := c.Lock(ctx, "job"); !errors.Is(err, holdfast.ErrHeld) {
			t.Fatalf("Lock: %v", err)
		}
		if _, err := c.TryLock(t.Context(), "job"); !errors.Is(err, holdfast.ErrHeld) {
			t.Fatalf("TryLock: %v", err)
		}
		time.Sleep(2 * time.Second)
		locktest.MustTryLock(t, c, "job")
	})
	synctest.Test(t, func(t *testing.T) {
		c := locktest.NewClient(t, stuckHolder(t, "job").Locker())
		if _, err := c.TryLock(t.Context(), "job"); !errors.Is(err, holdfast.ErrHeld) {
			t.Fatalf("TryLock: %v", err)
		}
		time.Sleep(15 * time.Second)
		start := time.Now()
		locktest.MustLock(t, c, "job")
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("a waiter took over %v after a try that had seen the holder for 15 s", took)
		}
	})
}

// A holder that renews is not replaced by tries, however seldom they see it.
func TestTriesDoNotReplaceALiveHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		h := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
		c := locktest.NewClient(t, store.Locker())
		for i := range 400 {
			if _, err := c.TryLock(t.Context(), "job"); !errors.Is(err, holdfast.ErrHeld) {
				t.Fatalf("try %d: %v", i, err)
			}
			time.Sleep(time.Duration(i) * time.Second)
		}
		if h.Err() != nil {
			t.Errorf("the holder was replaced: %v", h.Err())
		}
	})
}
