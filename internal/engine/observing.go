package engine

import (
	"context"
	"runtime"
	"strings"
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

// caller says from which function of the program a call comes.
type caller int

const (
	fromElsewhere caller = iota
	fromObserver         // or an overrun hook
	fromHook             // a telemetry.Hook
)

// callerOf returns from which function that this Client calls a call comes. The stack shows the kind of
// function, but not whose it is: if this Client has no such call under way, it is another Client's.
func (c *Client) callerOf() caller {
	switch within := functionOnStack(); {
	case within == fromObserver && !c.observing.Busy() && !c.renewer.Hooks.Busy(),
		within == fromHook && !c.hookBusy():
		return fromElsewhere
	default:
		return within
	}
}

// hookBusy reports whether a call of the Client's hook is under way.
func (c *Client) hookBusy() bool {
	g, _ := c.hook.(*guardedHook)
	return g != nil && g.calls.Load() > 0
}

// watchHook logs that a hook keeps Shutdown waiting, which it may do forever.
func (c *Client) watchHook(ctx context.Context) (stop func()) {
	done := make(chan struct{})
	timer := time.AfterFunc(observerPatience, func() {
		defer close(done)
		if c.hookBusy() {
			c.logger.Error("holdfast: Shutdown waits for a telemetry hook; the hook must not wait for Shutdown")
		}
	})
	return func() {
		if timer.Stop() {
			return
		}
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
}

// functionOnStack finds out by the stack of this goroutine whether a function of the program that the
// library calls is the caller: an observer has no context by which it could be recognized.
func functionOnStack() caller {
	pcs := make([]uintptr, 64)
	n := runtime.Callers(2, pcs)
	for ; n == len(pcs); n = runtime.Callers(2, pcs) {
		pcs = make([]uintptr, 2*len(pcs))
	}
	frames := runtime.CallersFrames(pcs[:n])
	for {
		frame, more := frames.Next()
		switch {
		case strings.HasSuffix(frame.Function, "/internal/event.Call"):
			return fromObserver
		case strings.HasSuffix(frame.Function, "/internal/engine.(*guardedHook).guarded"):
			return fromHook
		case !more:
			return fromElsewhere
		}
	}
}
