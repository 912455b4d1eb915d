package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/cause"
)

// Shutdown releases everything and closes the Locker; holdfast.Client.Shutdown describes it.
func (c *Client) Shutdown(ctx context.Context) error {
	if err := cause.Check(ctx); err != nil {
		return err
	}
	for in := holdContextFrom(ctx); in != nil; in = in.outer {
		if in.hold.client == c && in.hold.managed {
			return driver.Invalid("ctx", "of a function of Do, a runner or Partitions, or of a LeaseManager's hold",
				"another context: this one ends before the shutdown")
		}
	}
	if c.shutdownBegun.CompareAndSwap(false, true) {
		c.shutdownErr = c.shutDown(ctx)
		close(c.shutdownDone)
		return c.shutdownErr
	}
	select {
	case <-c.shutdownDone:
	case <-ctx.Done():
		if !cause.IsClosed(c.shutdownDone) {
			return driver.Errorf("shutdown: %w", cause.Of(ctx))
		}
	}
	return c.shutdownErr
}

// shutDown ends everything in the order in which one thing may still cause another: holds and
// products, cleanups, calls to the backend, observers and overrun hooks, the Locker.
func (c *Client) shutDown(ctx context.Context) error {
	ctx, stop := c.giveUpOnHook(ctx)
	defer stop()
	c.work.Close()
	c.endClosing(cause.ErrShutdown)
	c.cleanups.RunAllNow()
	participants := c.enlisted()
	for _, p := range participants {
		p.Stop(cause.ErrShutdown)
	}
	for _, h := range c.unreleased() {
		h.shutDown(ctx)
	}
	var err error
	if !c.work.Wait(ctx) {
		err = notDone(ctx, c.describeLeft())
	}
	const leaving = "a call that leaves the backend's queues has not returned"
	for i := range c.lanes {
		if !c.lanes[i].positions.finish(ctx) && err == nil {
			err = notDone(ctx, leaving)
		}
	}
	c.background.Close()
	c.checks.Close()
	c.runners.Close()
	if !c.background.Wait(ctx) && err == nil {
		err = notDone(ctx, "a cleanup is not done, its lock is left to expire")
	}
	if !c.checks.Wait(ctx) && err == nil {
		err = notDone(ctx, "a health check has not returned")
	}
	c.runners.Wait(ctx) // for goroutines only: work has counted their holds
	c.endBase()
	c.cleanups.RunAllNow()
	c.cleaners.Wait(ctx) // for goroutines only: background has counted the cleanups
	for _, p := range participants {
		err = errors.Join(err, p.Finish(ctx))
	}
	if !c.releases.calls.Wait(ctx) && err == nil {
		err = notDone(ctx, "a release has not returned")
	}
	for i := range c.lanes {
		if !c.lanes[i].positions.calls.Wait(ctx) && err == nil {
			err = notDone(ctx, leaving)
		}
		if !c.lanes[i].reader.Close(ctx) {
			err = errors.Join(err, notDone(ctx, "a call to the backend has not returned"))
		}
	}
	if !c.renewer.Close(ctx) {
		err = errors.Join(err, notDone(ctx, "a renewal or a call of the telemetry.Hook has not returned"))
	}
	if err == nil { // otherwise there may be overruns to report
		c.observers.Close()
		err = c.waitForObservers(ctx)
	}
	return errors.Join(err, c.closeLocker(ctx))
}

// notDone is the error of a Shutdown whose context ended while it waited.
func notDone(ctx context.Context, what string) error {
	return driver.Errorf("shutdown: %s: %w", what, cause.Of(ctx))
}

// closeSlack is how long after the end of its context a Locker's Close may return.
const closeSlack = 100 * time.Millisecond

// closeLocker closes the Locker, also if ctx has ended. It does not wait for a Close that ignores
// its context; the error says so.
func (c *Client) closeLocker(ctx context.Context) error {
	closed := make(chan error, 1)
	go func() { closed <- c.locker.Close(ctx) }()
	select {
	case err := <-closed:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-closed:
		return err
	case <-time.After(closeSlack):
		return notDone(ctx, "closing the backend has not returned, its connections may still be open")
	}
}

// describeLeft says which work had not ended when Shutdown's context did.
func (c *Client) describeLeft() string {
	var left Failures
	for _, h := range c.unreleased() {
		left.Names = append(left.Names, h.Name())
	}
	if len(left.Names) == 0 {
		return "a call to the backend has not returned"
	}
	return "still held, left to expire: " + left.List()
}

// unreleased lists the holds that are not released yet.
func (c *Client) unreleased() []*Hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.holds))
}

// Enlist makes Shutdown stop a participant and wait for its Discharge. It returns false if
// Shutdown has begun.
func (c *Client) Enlist(p Participant) bool {
	if !c.work.Start() {
		return false
	}
	c.mu.Lock()
	c.participants[p] = struct{}{}
	c.mu.Unlock()
	if c.closing.Err() != nil {
		p.Stop(cause.ErrShutdown) // Shutdown may not have seen this one
	}
	return true
}

// Discharge undoes Enlist.
func (c *Client) Discharge(p Participant) {
	c.mu.Lock()
	delete(c.participants, p)
	c.mu.Unlock()
	c.work.Done()
}

// enlisted lists the participants.
func (c *Client) enlisted() []Participant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.participants))
}

// observerPatience is how long Shutdown waits for one call of an observer or an overrun hook. The
// function may itself wait for Shutdown, through another goroutine.
const observerPatience = 5 * time.Second

// waitForObservers waits until the observers and the overrun hooks have returned.
func (c *Client) waitForObservers(ctx context.Context) error {
	for _, wait := range []func(context.Context) bool{c.observers.Wait, c.renewer.Hooks.Wait} {
		for {
			before := c.observers.returned.Load()
			limited, cancel := context.WithTimeout(ctx, observerPatience)
			done := wait(limited)
			cancel()
			switch {
			case done:
			case ctx.Err() != nil:
				return notDone(ctx, "an observer or an overrun hook has not returned")
			case c.observers.returned.Load() == before:
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
