package engine

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/worker"
)

// observing has the goroutines that call observers.
type observing struct {
	worker.Group
	returned atomic.Int64 // calls
}

// Returned notes that a call of an observer has returned.
func (o *observing) Returned() { o.returned.Add(1) }

// observerPatience is how long Shutdown waits for one call of an observer or an overrun hook. The
// function may itself wait for Shutdown, through another goroutine.
const observerPatience = 5 * time.Second

// waitForObservers waits until the observers and the overrun hooks have returned.
func (c *Client) waitForObservers(ctx context.Context) error {
	for _, wait := range []func(context.Context) bool{c.observing.Wait, c.renewer.Hooks.Wait} {
		for {
			before := c.observing.returned.Load()
			limited, cancel := context.WithTimeout(ctx, observerPatience)
			done := wait(limited)
			cancel()
			switch {
			case done:
			case ctx.Err() != nil:
				return notDone(ctx, "an observer or an overrun hook has not returned")
			case c.observing.returned.Load() == before:
				return driver.Errorf("shutdown: an observer or an overrun hook has not returned for %v; it must not wait for Shutdown",
					observerPatience)
			default:
				continue
			}
			break
		}
	}
	return nil
}

// giveUpOnHook returns the context for the waits of Shutdown. It also ends if the program's hook keeps everything waiting: for
// observerPatience a call of it has been under way, and none has returned. Each call of the backend, and each grant, renewal and
// release has calls of the hook, so nothing else has moved either.
func (c *Client) giveUpOnHook(ctx context.Context) (_ context.Context, stop func()) {
	g, _ := c.hook.(*guardedHook)
	if g == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if g.stands(ctx, observerPatience) {
			cancel(driver.Errorf("a telemetry.Hook has not returned for %v; it must not wait for Shutdown", observerPatience))
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-done
	}
}
