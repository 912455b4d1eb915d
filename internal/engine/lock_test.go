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

func TestTryLockTellsTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := locktest.NewClient(t, store.Locker())
		h := locktest.MustTryLock(t, c, "job", holdfast.WithOwner("web-3"), holdfast.WithData([]byte("x")))
		time.Sleep(3 * time.Second)
		_, err := c.TryLock(t.Context(), "job")
		var held *holdfast.HeldError
		if !errors.As(err, &held) || held.Record.Owner != "web-3" || held.Record.Token != h.Token() || held.Record.Remaining != 27*time.Second {
			t.Errorf("err = %v", err)
		}
		if err := h.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		r, err := c.Inspect(t.Context(), "job")
		if err != nil || r.State != driver.StateFree || string(r.Data) != "x" {
			t.Errorf("Inspect: %+v, %v", r, err)
		}
	})
}
