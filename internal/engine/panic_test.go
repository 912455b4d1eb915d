package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// panics makes a Locker one method of which panics, before or after the backend's answer, once.
func panics(l driver.Locker, method driver.Method, after bool) driver.Locker {
	var met atomic.Bool
	return driver.Intercept(l, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
		if call.Method == method && met.CompareAndSwap(false, true) {
			if after {
				next(ctx, call)
			}
			panic("oops")
		}
		return next(ctx, call)
	})
}

// A panic of the driver reaches the caller whose call met it. If the caller recovers, the Client can be used and shut
// down, and the lock becomes free as after an unknown outcome. The hook sees the end of each operation.
func TestDriverPanics(t *testing.T) {
	lock := func(ctx context.Context, c *holdfast.Client) { _, _ = c.Lock(ctx, "job") }
	release := func(ctx context.Context, c *holdfast.Client) {
		h, err := c.Lock(ctx, "job")
		if err == nil {
			_ = h.Release(ctx)
		}
	}
	for what, test := range map[string]struct {
		method driver.Method
		call   func(ctx context.Context, c *holdfast.Client)
	}{
		"Lock":    {driver.MethodTryAcquire, lock},
		"TryLock": {driver.MethodTryAcquire, func(ctx context.Context, c *holdfast.Client) { _, _ = c.TryLock(ctx, "job") }},
		"Do": {driver.MethodTryAcquire, func(ctx context.Context, c *holdfast.Client) {
			_ = c.Do(ctx, "job", func(context.Context) error { return nil })
		}},
		"Release": {driver.MethodRelease, release},
		"release of Do": {driver.MethodRelease, func(ctx context.Context, c *holdfast.Client) {
			_ = c.Do(ctx, "job", func(context.Context) error { return nil })
		}},
		"Inspect": {driver.MethodInspect, func(ctx context.Context, c *holdfast.Client) { _, _ = c.Inspect(ctx, "job") }},
		"Break":   {driver.MethodBreak, func(ctx context.Context, c *holdfast.Client) { _ = c.Break(ctx, "job", holdfast.BreakAnybody()) }},
		"BreakNow": {driver.MethodBreakNow, func(ctx context.Context, c *holdfast.Client) {
			_ = c.BreakNow(ctx, "job", holdfast.BreakAnybody())
		}},
		"Data": {driver.MethodReadData, func(ctx context.Context, c *holdfast.Client) {
			h, err := c.Lock(ctx, "job")
			if err == nil {
				defer func() { _ = h.Release(ctx) }()
				_, _ = h.Data(ctx)
			}
		}},
	} {
		for _, after := range []bool{false, true} {
			locktest.Bubble(t, fmt.Sprint(what, " ", after), func(t *testing.T) {
				store := memory.NewStore()
				c, hook := newHooked(t, panics(store.Locker(), test.method, after), holdfast.WithTTL(time.Minute))
				func() {
					defer func() {
						if recover() == nil {
							t.Error("the caller sees no panic")
						}
					}()
					test.call(t.Context(), c)
				}()
				limited, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				h, err := c.Lock(limited, "job")
				if err != nil {
					t.Fatalf("the next Lock: %v", err)
				}
				if err := h.Release(limited); err != nil {
					t.Error(err)
				}
				if err := c.Shutdown(limited); err != nil {
					t.Errorf("Shutdown: %v", err)
				}
				for _, kind := range []telemetry.Kind{telemetry.Acquire, telemetry.Hold, telemetry.Release, telemetry.Call} {
					if n := hook.Open(kind); n != 0 {
						t.Errorf("the hook saw the beginning, but not the end, of %d operations of kind %d", n, kind)
					}
				}
			})
		}
	}
}

// While Shutdown runs, releases are sent by goroutines of the Client, and may share a call. A panic still reaches the callers
// whose releases met it.
func TestDriverPanicsDuringShutdown(t *testing.T) {
	const holds = 10
	for method, most := range map[driver.Method]int{driver.MethodRelease: 1, driver.MethodReleaseBatch: holds} {
		locktest.Bubble(t, string(method), func(t *testing.T) {
			slow := driver.Intercept(memory.NewStore().Locker(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
				if call.Method == driver.MethodRelease {
					time.Sleep(time.Millisecond)
				}
				return next(ctx, call)
			})
			c := locktest.NewClient(t, panics(slow, method, false))
			var work sync.WaitGroup
			var panicked atomic.Int64
			for i := range holds {
				work.Go(func() {
					defer func() {
						if p := recover(); p != nil {
							panicked.Add(1)
							if !strings.Contains(fmt.Sprint(p), "oops") || !strings.Contains(fmt.Sprint(p), "panic_test.go") {
								t.Errorf("%v", p)
							}
						}
					}()
					_ = c.Do(t.Context(), fmt.Sprint("job ", i), func(ctx context.Context) error {
						<-ctx.Done()
						return nil
					})
				})
			}
			synctest.Wait()
			if err := c.Shutdown(t.Context()); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			work.Wait()
			if n := int(panicked.Load()); n < 1 || n > most || most > 1 && n < 2 {
				t.Errorf("%d callers saw the panic", n)
			}
		})
	}
}
