package lockertest

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const saysNotSent = "OpError.NotSent: the request certainly never left the process. The backend has done nothing of it, and will not. " +
	"A driver that is wrong here leaves a lock held, since nobody releases it."

// notSentClauses are about requests of which a driver says that they were not sent. A driver may leave the outcome unknown instead.
var notSentClauses = []clause{
	{
		name: "not sent/context ends", says: saysNotSent,
		run: func(c *check) {
			c.release(c.a, c.acquire(c.a, c.request(c.name()))) // if none is granted, nothing can be said of those that were not sent
			var unsent []driver.Request
			for i := range 40 {
				ctx, cancel := context.WithTimeout(c.ctx, time.Duration(rand.Int64N(int64(3*time.Millisecond))))
				if i == 0 {
					cancel()
				}
				unsent = c.tryUnsent(ctx, unsent)
				cancel()
			}
			c.neverApplied(unsent)
		},
	},
	{
		name: "not sent/hanging backend", needs: canStall, alone: true, says: saysNotSent,
		run: func(c *check) {
			name := c.name()
			c.release(c.a, c.acquire(c.a, c.request(name)))
			resume, err := c.cfg.Stall(c.ctx, name)
			if err != nil {
				c.fatalf("lockertest: Config.Stall: %v", err)
			}
			ctx, cancel := context.WithTimeout(c.ctx, 100*time.Millisecond)
			defer cancel()
			req := c.request(name)
			_, err = c.a.TryAcquire(ctx, req)
			resume()
			c.eventually("the backend answers again", func() bool {
				_, err := c.b.Inspect(c.ctx, name)
				return err == nil
			})
			if driver.NotSent(err) {
				c.neverApplied([]driver.Request{req})
			}
			c.release(c.b, driver.Lease{Name: name, ID: req.ID})
		},
	},
	{
		name: "not sent/fail-over", needs: canFailOver, alone: true, says: saysNotSent,
		run: func(c *check) {
			over, sent := make(chan struct{}), make(chan []driver.Request, 1)
			go func() {
				var unsent []driver.Request
				defer func() { sent <- unsent }()
				for ended := false; !ended; {
					select {
					case <-over:
						ended = true
					case <-time.After(10 * time.Millisecond):
					}
					ctx, cancel := context.WithTimeout(c.ctx, time.Second)
					unsent = c.tryUnsent(ctx, unsent)
					cancel()
				}
			}()
			err := c.cfg.FailOver(c.ctx)
			close(over)
			unsent := <-sent
			if err != nil {
				c.fatalf("lockertest: Config.FailOver: %v", err)
			}
			c.neverApplied(unsent)
		},
	},
}

// tryUnsent makes a request for a new name, and adds it to unsent if the driver says that it was not sent.
func (c *check) tryUnsent(ctx context.Context, unsent []driver.Request) []driver.Request {
	req := c.request(c.name())
	if _, err := c.a.TryAcquire(ctx, req); driver.NotSent(err) {
		return append(unsent, req)
	}
	return unsent
}

// neverApplied expects that requests that were not sent hold no lock, neither now nor a little later.
func (c *check) neverApplied(unsent []driver.Request) {
	for _, req := range unsent {
		var lease driver.Lease
		other := c.request(req.Name)
		err := c.certain(func() (err error) { lease, err = c.b.TryAcquire(c.ctx, other); return err })
		if err != nil {
			c.errorf("TryAcquire said that its request was not sent; another request for that lock then got error %v", err)
			continue
		}
		c.release(c.b, lease)
	}
	if len(unsent) > 0 {
		time.Sleep(100 * time.Millisecond)
	}
	for _, req := range unsent {
		if r := c.inspect(c.b, req.Name); r.State != driver.StateFree {
			c.errorf("TryAcquire said that its request was not sent; a little later the lock is %v", r.State)
		}
	}
}
