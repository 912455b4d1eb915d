package engine_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/locktest"
)

// Do for a name from within Do for that name waits for itself.
func TestCorner_Reentry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.NewClient(t, memory.New())
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		_ = c.Do(ctx, "job", func(ctx context.Context) error {
			return c.Do(ctx, "job", func(context.Context) error { return nil })
		})
		if d := time.Since(start); d >= time.Hour {
			t.Errorf("waited %v for itself", d)
		}
	})
}

// Held: runtime.Goexit in the function releases the lock and lets Shutdown end.
func TestCorner_Goexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := locktest.NewClient(t, store.Locker())
		r := locktest.NewRunner(t, c)
		var wg sync.WaitGroup
		exit := func(context.Context) error { runtime.Goexit(); return nil }
		wg.Go(func() { _ = c.Do(t.Context(), "a", exit) })
		wg.Go(func() { _ = r.Run(t.Context(), exit) })
		wg.Wait()
		wg.Go(func() { _, _ = r.RunTaskOnLeader(t.Context(), exit) })
		wg.Wait()
		if locktest.IsHeld(t, store, "a") || locktest.IsHeld(t, store, "job") {
			t.Error("still held")
		}
		if err := c.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Granted and canceled at once: the error still matches ctx's error.
func TestCorner_CanceledWhileGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boss := errors.New("the boss said so")
		ctx, cancel := context.WithCancelCause(t.Context())
		under := memory.New()
		c := locktest.NewClient(t, locktest.Scripted{Locker: under, OnAcquire: func(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
			l, err := under.TryAcquire(ctx, req)
			cancel(boss)
			return l, err
		}})
		err := c.Do(ctx, "job", func(context.Context) error { t.Error("begun"); return nil })
		if !errors.Is(err, boss) || !errors.Is(err, context.Canceled) {
			t.Errorf("err = %v", err)
		}
	})
}
