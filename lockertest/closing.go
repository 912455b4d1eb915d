package lockertest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var closeClauses = []clause{
	{
		name: "close/ErrClosed",
		says: "After Close every method with an error result returns ErrClosed. Closing again does nothing.",
		run: func(c *check) {
			l := c.fresh()
			lease := c.acquire(l, c.request(c.name()))
			for range 2 {
				if err := l.Close(c.ctx); err != nil {
					c.errorf("Close: %v", err)
				}
			}
			for _, m := range c.methods(l, lease.Name) {
				if err := m.call(c.ctx); !errors.Is(err, driver.ErrClosed) {
					c.wrongf("%s after Close: got error %v, want ErrClosed", m.name, err)
				}
			}
			if lister := l.Capabilities().Lister; lister != nil {
				n := 0
				for _, err := range lister.List(c.ctx, "") {
					if n++; !errors.Is(err, driver.ErrClosed) {
						c.wrongf("List after Close yielded error %v, want ErrClosed", err)
					}
				}
				if n != 1 {
					c.errorf("List after Close yielded %d times, want one error", n)
				}
			}
			if l.Info() != c.info {
				c.errorf("Info changed by Close")
			}
		},
	},
	{
		name: "close/leases stay",
		says: "Close does not release leases.",
		run: func(c *check) {
			l := c.fresh()
			lease := c.acquire(l, c.request(c.name()))
			if err := l.Close(c.ctx); err != nil {
				c.errorf("Close: %v", err)
			}
			c.stillHeldBy("after its Locker was closed", lease)
			c.release(c.b, lease)
		},
	},
	{
		name: "close/others unaffected",
		says: "Close frees what the Locker itself made.",
		run: func(c *check) {
			other := c.fresh()
			lease := c.acquire(c.a, c.request(c.name()))
			if err := other.Close(c.ctx); err != nil {
				c.errorf("Close: %v", err)
			}
			c.stillHeldBy("after another Locker was closed", lease)
		},
	},
	{
		name: "close/ended context",
		says: "Once ctx has ended, even before the call, Close frees everything at once without waiting for the backend.",
		run: func(c *check) {
			ctx, cancel := context.WithCancel(c.ctx)
			cancel()
			l := c.fresh()
			lease := c.acquire(l, c.request(c.name()))
			c.closesWithin(ctx, 0, l)
			for _, m := range c.methods(l, lease.Name) {
				if err := m.call(c.ctx); !errors.Is(err, driver.ErrClosed) {
					c.wrongf("%s after Close with a context that had ended: got error %v, want ErrClosed", m.name, err)
				}
			}
		},
	},
	{
		name: "close/hanging backend", needs: canStall, alone: true,
		says: "Close returns soon after its context ends, whatever the backend does.",
		run: func(c *check) {
			l := c.fresh()
			name := c.name()
			c.acquire(l, c.request(name))
			if can := l.Capabilities(); driver.Watches(l) {
				open := make(chan struct{}, 1)
				defer can.Waker.Wake(name, "", func(driver.Wakeup) {
					select {
					case open <- struct{}{}:
					default:
					}
				})()
				select {
				case <-open:
				case <-time.After(c.cfg.Slack): // watching may be impossible
				}
			}
			resume, err := c.cfg.Stall(c.ctx, name)
			if err != nil {
				c.fatalf("lockertest: Config.Stall: %v", err)
			}
			defer resume()
			const limit = time.Second
			ctx, cancel := context.WithTimeout(c.ctx, limit)
			defer cancel()
			c.closesWithin(ctx, limit, l)
		},
	},
	{
		name: "close/while in use",
		says: "All methods are safe for concurrent use.",
		run: func(c *check) {
			l := c.fresh()
			var closed atomic.Pointer[time.Time] // when Close had returned
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for {
						req := c.request(c.name())
						lease, err := l.TryAcquire(c.ctx, req)
						if err == nil {
							_, err = l.Renew(c.ctx, lease)
						}
						if errors.Is(err, driver.ErrClosed) {
							return
						}
						if at := closed.Load(); at != nil && time.Since(*at) > c.cfg.Slack {
							c.wrongf("no ErrClosed although the Locker was closed %v ago: got %v", time.Since(*at), err)
							return
						}
					}
				})
			}
			for range 2 {
				wg.Go(func() {
					defer func() { // also if the request fails: the others go on until the Locker is closed
						if err := l.Close(c.ctx); err != nil {
							c.errorf("Close while in use: %v", err)
						}
						now := time.Now()
						closed.CompareAndSwap(nil, &now)
					}()
					c.acquire(c.a, c.request(c.name())) // a while later
				})
			}
			wg.Wait()
		},
	},
}

// closesWithin closes a Locker with a context that ends after the limit. Close may return an
// error, which says what could not be freed.
func (c *check) closesWithin(ctx context.Context, limit time.Duration, l driver.Locker) {
	closed := make(chan error, 1) // nothing waits for a Close that hangs
	start := time.Now()
	go func() { closed <- l.Close(ctx) }()
	select {
	case err := <-closed:
		if late := time.Since(start) - limit; late > c.soon {
			c.errorf("Close returned %v after its context had ended, with error %v", late, err)
		}
	case <-time.After(limit + c.soon + time.Second):
		c.errorf("Close had not returned %v after its context had ended", c.soon+time.Second)
	}
}
