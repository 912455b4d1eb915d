package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/text"
	"github.com/holdfast-go/holdfast/internal/cause"
)

// Shutdown releases everything and closes the Locker; holdfast.Client.Shutdown describes it.
func (c *Client) Shutdown(ctx context.Context) error {
	for in := holdingFrom(ctx); in != nil; in = in.outer {
		if in.hold.client == c && in.hold.managed {
			return driver.Invalid("ctx", "of a function of Do, a runner or Partitions, or of a LeaseManager's hold", "another context: this one ends before the shutdown")
		}
	}
	if c.shutting.CompareAndSwap(false, true) {
		c.shutdownErr = c.shutDown(ctx)
		close(c.down)
		return c.shutdownErr
	}
	select {
	case <-c.down:
	case <-ctx.Done():
		if !cause.IsClosed(c.down) {
			return fmt.Errorf("holdfast: shutdown: %w", cause.Of(ctx))
		}
	}
	return c.shutdownErr
}

func (c *Client) shutDown(ctx context.Context) error {
	c.work.Close()
	c.close(cause.ErrShutdown)
	c.cleanups.RunAllNow()
	participants := c.enlisted()
	for _, p := range participants {
		p.Stop(cause.ErrShutdown)
	}
	for _, h := range c.live() {
		h.shutDown(ctx)
	}
	var err error
	if !c.work.Wait(ctx) {
		err = fmt.Errorf("holdfast: shutdown: %s: %w", c.leftovers(), cause.Of(ctx))
	}
	c.background.Close()
	if !c.background.Wait(ctx) && err == nil {
		err = fmt.Errorf("holdfast: shutdown: a clean-up is not done, its lock is left to expire: %w", cause.Of(ctx))
	}
	c.end()
	c.cleanups.RunAllNow()
	c.cleaners.Wait(ctx) // nothing but what was waited for above
	for _, p := range participants {
		err = errors.Join(err, p.Finish(ctx))
	}
	if !c.reader.Close(ctx) {
		err = errors.Join(err, fmt.Errorf("holdfast: shutdown: a call to the backend has not returned: %w", cause.Of(ctx)))
	}
	if !c.renewer.Close(ctx) {
		err = errors.Join(err, fmt.Errorf("holdfast: shutdown: a renewal or an overrun hook has not returned: %w", cause.Of(ctx)))
	}
	if err == nil { // else there may be overruns to tell
		c.observing.Close()
		if !c.observing.Wait(ctx) {
			err = fmt.Errorf("holdfast: shutdown: an observer has not returned: %w", cause.Of(ctx))
		}
	}
	return errors.Join(err, c.closeLocker(ctx))
}

// closeSlack is how long after the end of its context Close of a Locker may return.
const closeSlack = 100 * time.Millisecond

// closeLocker closes the Locker, also if ctx has ended. A driver whose Close does not
// return then is left behind, and the error says so.
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
		return fmt.Errorf("holdfast: shutdown: closing the backend has not returned, its connections may still be open: %w", cause.Of(ctx))
	}
}

// leftovers says what Shutdown waited for in vain.
func (c *Client) leftovers() string {
	var names []string
	for _, h := range c.live() {
		names = append(names, text.Quote(h.Name()))
	}
	if len(names) == 0 {
		return "a call to the backend has not returned"
	}
	slices.Sort(names)
	return "still held, left to expire: " + strings.Join(names, ", ")
}

// live lists the holds that are not released yet.
func (c *Client) live() []*Hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.holds))
}

// Participant is a product that Shutdown stops, and then waits for.
type Participant interface {
	// Stop begins to release what the participant holds; cause ends the contexts of the holds.
	Stop(cause error)
	// Finish waits for its goroutines, when all holds are released or given up.
	Finish(ctx context.Context) error
}

// Enlist makes Shutdown stop a participant and wait until it is discharged. It reports false if
// Shutdown has begun.
func (c *Client) Enlist(p Participant) bool {
	if !c.work.Start() {
		return false
	}
	c.mu.Lock()
	c.participants[p] = struct{}{}
	c.mu.Unlock()
	if c.closing.Err() != nil {
		p.Stop(cause.ErrShutdown) // Shutdown may have listed the participants before
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
