package engine

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/dispatch"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// cleanupLimit is how many cleanups may be under way at once: after an outage there can be
// thousands.
const cleanupLimit = 32

// CleanUp frees, in the background, the lock that a request in doubt may have acquired or may
// still acquire. One release is not enough, since the request can reach the backend after it. So
// the release is repeated until the given time, one TTL after the request was last sent. A
// request that lands even later expires by itself.
//
// During Shutdown one more successful release ends the cleanup, which could otherwise take a TTL.
// It also ends when the Locker is closed: nothing can be sent any more.
func (c *Client) CleanUp(l driver.Lease, until, limit time.Duration, emit Emit) {
	if !c.background.Start() {
		return
	}
	u := &cleanup{client: c, lease: l, until: until, limit: limit, emit: emit}
	c.cleanups.Set(u, c.now(), false)
}

// cleanup is the cleanup of one request.
type cleanup struct {
	dispatch.Plan
	client   *Client
	lease    driver.Lease
	until    time.Duration
	limit    time.Duration // of each release
	emit     Emit
	attempts int
	released bool // a release has succeeded
}

func newCleanups(c *Client) *dispatch.Schedule[*cleanup] {
	return dispatch.NewSchedule(c.now, dispatch.Single(&c.cleaners, cleanupLimit, func(u *cleanup) dispatch.Call {
		return dispatch.Call{Do: u.run, Patience: timing.Patience(u.limit)}
	}), nil)
}

// run sends one release, and plans the next one unless the cleanup has ended.
func (u *cleanup) run() {
	c, l := u.client, u.lease
	err := c.releaseOnce(c.base, l, u.limit)
	if err != nil {
		u.emit(event.Event{Type: event.Error, Name: l.Name, Owner: l.Owner, Op: "clean up", Err: err, Time: time.Now()})
	}
	if err == nil && !u.released {
		u.released = true
		c.queues.asksAgain(l.Name)
	}
	closing := c.closing.Err() != nil
	// Promise 5: a success does not end the cleanup before until, since the request may land late.
	if c.base.Err() != nil || closing && err == nil || c.now() >= u.until || errors.Is(err, driver.ErrClosed) {
		c.background.Done()
		return
	}
	backoff := timing.Backoff(u.attempts, min(l.TTL/100, time.Second), min(l.TTL/4, 10*time.Second))
	u.attempts++
	c.cleanups.Set(u, c.now()+min(backoff, max(u.until-c.now(), 0)+time.Millisecond), err != nil)
	if c.base.Err() != nil || !closing && c.closing.Err() != nil {
		c.cleanups.RunAllNow() // Shutdown has begun and may not have seen this plan
	}
}

// releaseOnce sends one release of a cleanup.
func (c *Client) releaseOnce(ctx context.Context, l driver.Lease, limit time.Duration) error {
	if c.closing.Err() != nil {
		return c.releases.sendLimited(ctx, l, limit, true)
	}
	return c.releases.send(ctx, l, limit)
}
