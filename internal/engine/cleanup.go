package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/scheduler"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// cleanUp frees, in the background, what a request in doubt may hold or may yet
// take. One release is not enough: the request can be on its way still and land
// after it. So the release is repeated until one TTL has passed since the request
// was last sent (until), each time with the limit; what lands even later expires by
// itself. The ID is never used again. During Shutdown one more successful release
// suffices: it would else last a TTL. A Locker that is closed ends it: nothing can be sent
// any more.
//
// After an outage there can be thousands of them: so many are under way at once, and no more.
func (c *Client) CleanUp(l driver.Lease, until, limit time.Duration, emit func(event.Event)) {
	if !c.background.Start() {
		return
	}
	u := &cleanup{client: c, lease: l, until: until, limit: limit, emit: emit}
	u.Do, u.Patience = u.run, timing.Patience(limit)
	c.cleanups.Set(&u.Entry, c.now(), false)
}

const cleanupLimit = 32

// cleaning is one clean-up.
type cleanup struct {
	scheduler.Entry
	client       *Client
	lease        driver.Lease
	until, limit time.Duration
	emit         func(event.Event)
	tries        int
}

// once sends one release, and plans the next if there is to be one.
func (u *cleanup) run() {
	c, l := u.client, u.lease
	err := c.releaseOnce(c.base, l, u.limit)
	if err != nil {
		u.emit(event.Event{Type: event.Error, Name: l.Name, Owner: l.Owner, Op: "clean up", Err: err, Time: time.Now()})
	}
	shutting := c.closing.Err() != nil
	if c.base.Err() != nil || shutting && err == nil || c.now() >= u.until || errors.Is(err, driver.ErrClosed) {
		c.background.Done()
		return
	}
	pause := min(clock.Backoff(u.tries, min(l.TTL/100, time.Second), min(l.TTL/4, 10*time.Second)), max(u.until-c.now(), 0)+time.Millisecond)
	u.tries++
	c.cleanups.Set(&u.Entry, c.now()+pause, err != nil)
	if c.base.Err() != nil || !shutting && c.closing.Err() != nil {
		c.cleanups.RunAllNow() // Shutdown may have done so before
	}
}

// releasesAtOnce is how many releases a Shutdown has under way: thousands at once would
// wait for connections, and run out of their time limits there.
const releaseLimit = 64

// releaseOnce sends one release with a time limit of its own.
func (c *Client) releaseOnce(ctx context.Context, l driver.Lease, limit time.Duration) error {
	if c.closing.Err() != nil {
		select {
		case c.releases <- struct{}{}:
			leave := sync.OnceFunc(func() { <-c.releases })
			defer leave()
			hung := time.AfterFunc(timing.Patience(limit), leave)
			defer hung.Stop()
		case <-c.base.Done(): // Shutdown has given up, and closes the Locker
		}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return c.locker.Release(ctx, l)
}
