package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/scheduler"
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
	u.Do, u.Patience = u.run, timing.Patience(limit)
	c.cleanups.Set(&u.Entry, c.now(), false)
}

// cleanup is the cleanup of one request.
type cleanup struct {
	scheduler.Entry
	client   *Client
	lease    driver.Lease
	until    time.Duration
	limit    time.Duration // of each release
	emit     Emit
	attempts int
}

// run sends one release, and plans the next one unless the cleanup has ended.
func (u *cleanup) run() {
	c, l := u.client, u.lease
	err := c.releaseOnce(c.base, l, u.limit)
	if err != nil {
		u.emit(event.Event{Type: event.Error, Name: l.Name, Owner: l.Owner, Op: "clean up", Err: err, Time: time.Now()})
	}
	closing := c.closing.Err() != nil
	// Promise 5: a success does not end the cleanup before until, since the request may land late.
	if c.base.Err() != nil || closing && err == nil || c.now() >= u.until || errors.Is(err, driver.ErrClosed) {
		c.background.Done()
		return
	}
	backoff := timing.Backoff(u.attempts, min(l.TTL/100, time.Second), min(l.TTL/4, 10*time.Second))
	u.attempts++
	c.cleanups.Set(&u.Entry, c.now()+min(backoff, max(u.until-c.now(), 0)+time.Millisecond), err != nil)
	if c.base.Err() != nil || !closing && c.closing.Err() != nil {
		c.cleanups.RunAllNow() // Shutdown has begun and may not have seen this plan
	}
}

// releaseLimit is how many releases may be under way at once during Shutdown. Thousands would
// wait for connections, and their time limits would end there.
const releaseLimit = 64

// releaseOnce sends one release with a time limit of its own.
func (c *Client) releaseOnce(ctx context.Context, l driver.Lease, limit time.Duration) error {
	if c.closing.Err() != nil {
		select {
		case c.releasing <- struct{}{}:
			done := sync.OnceFunc(func() { <-c.releasing })
			defer done()
			hung := time.AfterFunc(timing.Patience(limit), done)
			defer hung.Stop()
		case <-c.base.Done(): // Shutdown has given up, and closes the Locker
		}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// Promise 6: the lease has the ID of this acquisition, so no other holder's lock is released.
	return c.locker.Release(ctx, l)
}
