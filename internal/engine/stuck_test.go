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
	"github.com/holdfast-go/holdfast/internal/locktest"
)

// deadAhead returns a store with the locks of a dead holder, of 20 s, that its clock will not let expire
// for a day.
func deadAhead(t *testing.T, names ...string) *memory.Store {
	t.Helper()
	ahead := 24 * time.Hour
	store := memory.NewStore(memory.WithClock(func() time.Time { return time.Now().Add(ahead) }))
	dead := store.Locker()
	for _, name := range names {
		if _, err := dead.TryAcquire(t.Context(), driver.Request{Name: name, ID: driver.NewLeaseID("dead " + name), Owner: "dead", TTL: 20 * time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	ahead = 0
	return store
}

// Promise 10 for callers each of which asks once only: what one has seen, the next knows.
func TestNoLockIsStuckForTries(t *testing.T) {
	try := func(t *testing.T, c *holdfast.Client, opts ...holdfast.Option) bool {
		h, err := c.TryLock(t.Context(), "job", opts...)
		if err != nil && !errors.Is(err, holdfast.ErrHeld) {
			t.Fatal(err)
		}
		return h != nil
	}
	asks := map[string]func(t *testing.T, c *holdfast.Client) bool{
		"TryLock":          func(t *testing.T, c *holdfast.Client) bool { return try(t, c) },
		"TryLock of slots": func(t *testing.T, c *holdfast.Client) bool { return try(t, c, holdfast.WithSlots(3)) },
		"a runner for each call": func(t *testing.T, c *holdfast.Client) bool {
			ran, err := locktest.NewRunner(t, c).RunTaskOnLeader(t.Context(), locktest.EmptyTask)
			if err != nil {
				t.Fatal(err)
			}
			return ran
		},
		"Lock that soon gives up": func(t *testing.T, c *holdfast.Client) bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			h, _ := c.Lock(ctx, "job")
			return h != nil
		},
	}
	for what, ask := range asks {
		for _, every := range []time.Duration{time.Second, 15 * time.Second, time.Hour} {
			t.Run(what+" every "+every.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := deadAhead(t, "job", "job#2", "job#3")
					f := locktest.NewFaulty(t, store.Locker(), nil)
					f.NoBatchReads = true
					c := locktest.NewClient(t, f)
					start := time.Now()
					for !ask(t, c) && time.Since(start) < 5*time.Hour {
						time.Sleep(every)
					}
					if took := time.Since(start); took < 20*time.Second || took > 21*time.Second+every {
						t.Errorf("taken over after %v, want one TTL of the dead holder", took)
					}
				})
			})
		}
	}
}

// A waiter, tries and the slots of a pool go by the same memory.
func TestWaitersAndTriesShareWhatTheySaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.NewClient(t, deadAhead(t, "job").Locker())
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
		c := locktest.NewClient(t, deadAhead(t, "job").Locker())
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

// A holder that renews, also one that is seen seldom, is not taken for dead by tries.
func TestTriesLeaveALiveHolderAlone(t *testing.T) {
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
