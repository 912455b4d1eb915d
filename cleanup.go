package holdfast

import (
	"context"
	"time"
)

// cleanUp frees, in the background, what a request in doubt may hold or may yet
// take. One release is not enough: the request can be on its way still and land
// after it. So the release is repeated until one TTL has passed since the request
// was last sent (until), each time with the limit; what lands even later expires by
// itself. The ID is never used again. During Shutdown one more successful release
// suffices: it would else last a TTL.
func (c *Client) cleanUp(l Lease, until, limit time.Duration, emit func(Event)) {
	c.background.run(func() {
		for n := 0; ; n++ {
			err := c.releaseOnce(c.base, l, limit)
			if err != nil {
				emit(Event{Type: EventError, Name: l.Name, Owner: l.Owner, Op: "clean up", Err: err, Time: time.Now()})
			}
			shutting := c.closing.Err() != nil
			if c.base.Err() != nil || shutting && err == nil || c.now() >= until {
				return
			}
			pause := min(exponential(n, min(l.TTL/100, time.Second), min(l.TTL/4, 10*time.Second)), max(until-c.now(), 0)+time.Millisecond)
			var closing <-chan struct{}
			if !shutting {
				closing = c.closing.Done()
			}
			select {
			case <-time.After(pause):
			case <-closing:
			case <-c.base.Done():
			}
		}
	})
}

// releasesAtOnce is how many releases a Shutdown has under way: thousands at once would
// wait for connections, and run out of their time limits there.
const releasesAtOnce = 64

// releaseOnce sends one release with a time limit of its own.
func (c *Client) releaseOnce(ctx context.Context, l Lease, limit time.Duration) error {
	if c.closing.Err() != nil {
		c.releases <- struct{}{} // a call ends soon after its limit
		defer func() { <-c.releases }()
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return c.locker.Release(ctx, l)
}
