package promises_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// Promise 7: the lock is released only after the work has ended, however it was stopped.
func TestPromise07_ReleaseAfterTheWork(t *testing.T) {
	type end func(c *holdfast.Client, cancel func(), lose func())
	for name, finish := range map[string]end{
		"canceled": func(_ *holdfast.Client, cancel, _ func()) { cancel() },
		"lost":     func(_ *holdfast.Client, _, lose func()) { lose() },
		"shutdown": func(c *holdfast.Client, _, _ func()) { go func() { _ = c.Shutdown(context.Background()) }() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.NewStore()
				var losing, stopped atomic.Bool
				f := locktest.NewFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
					if op == locktest.OpRelease && !stopped.Load() {
						t.Error("released while the work goes on")
					}
					if op == locktest.OpRenew && losing.Load() {
						return locktest.Fault{Refuse: locktest.ErrInjected}
					}
					return locktest.Fault{}
				})
				c := locktest.NewClient(t, f)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				_ = c.Do(ctx, "job", func(ctx context.Context) error {
					finish(c, cancel, func() { losing.Store(true) })
					<-ctx.Done()
					time.Sleep(20 * time.Second) // the work is slow to stop
					synctest.Wait()
					stopped.Store(true)
					return nil
				})
				if f.Count(locktest.OpRelease) == 0 || locktest.IsHeld(t, store, "job") {
					t.Error("not released after the work")
				}
			})
		})
	}
	t.Run("with a canceled context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			f := locktest.NewFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
				if op == locktest.OpRelease && n == 2 { // the first one of Do
					return locktest.Fault{Refuse: locktest.ErrInjected}
				}
				return locktest.Fault{}
			})
			f.Check = func(ctx context.Context, op string) {
				if op == locktest.OpRelease && ctx.Err() != nil {
					t.Error("the release was sent with a canceled context")
				}
			}
			c := locktest.NewClient(t, f)
			ctx, cancel := context.WithCancel(t.Context())
			h := locktest.MustLock(t, c, "job")
			cancel()
			if err := h.Release(ctx); err != nil || locktest.IsHeld(t, store, "job") {
				t.Errorf("Release: %v", err)
			}
			ctx, cancel = context.WithCancel(t.Context())
			_ = c.Do(ctx, "job", func(context.Context) error { cancel(); return nil })
			if locktest.IsHeld(t, store, "job") {
				t.Error("Do returned before the lock was free")
			}
		})
	})
	t.Run("panic", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			c := locktest.NewClient(t, store.Locker())
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("recovered %v", p)
				}
				if locktest.IsHeld(t, store, "job") {
					t.Error("a panic left the lock held")
				}
			}()
			_ = c.Do(t.Context(), "job", func(context.Context) error { panic("boom") })
		})
	})
}
