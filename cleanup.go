package holdfast

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/internal/scheduler"
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
func (c *Client) cleanUp(l Lease, until, limit time.Duration, emit func(Event)) {
	if !c.background.Start() {
		return
	}
	u := &cleaning{client: c, lease: l, until: until, limit: limit, emit: emit}
	u.Do, u.Patience = u.once, patience(limit)
	c.cleanings.Set(&u.Entry, c.now(), false)
}

const cleaningsAtOnce = 32

// cleaning is one clean-up.
type cleaning struct {
	scheduler.Entry
	client       *Client
	lease        Lease
	until, limit time.Duration
	emit         func(Event)
	tries        int
}

// once sends one release, and plans the next if there is to be one.
func (u *cleaning) once() {
	c, l := u.client, u.lease
	err := c.releaseOnce(c.base, l, u.limit)
	if err != nil {
		u.emit(Event{Type: EventError, Name: l.Name, Owner: l.Owner, Op: "clean up", Err: err, Time: time.Now()})
	}
	shutting := c.closing.Err() != nil
	if c.base.Err() != nil || shutting && err == nil || c.now() >= u.until || errors.Is(err, ErrClosed) {
		c.background.Done()
		return
	}
	pause := min(clock.Backoff(u.tries, min(l.TTL/100, time.Second), min(l.TTL/4, 10*time.Second)), max(u.until-c.now(), 0)+time.Millisecond)
	u.tries++
	c.cleanings.Set(&u.Entry, c.now()+pause, err != nil)
	if c.base.Err() != nil || !shutting && c.closing.Err() != nil {
		c.cleanings.RunAllNow() // Shutdown may have done so before
	}
}

// releasesAtOnce is how many releases a Shutdown has under way: thousands at once would
// wait for connections, and run out of their time limits there.
const releasesAtOnce = 64

// releaseOnce sends one release with a time limit of its own.
func (c *Client) releaseOnce(ctx context.Context, l Lease, limit time.Duration) error {
	if c.closing.Err() != nil {
		select {
		case c.releases <- struct{}{}:
			leave := sync.OnceFunc(func() { <-c.releases })
			defer leave()
			hung := time.AfterFunc(patience(limit), leave)
			defer hung.Stop()
		case <-c.base.Done(): // Shutdown has given up, and closes the Locker
		}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return c.locker.Release(ctx, l)
}
