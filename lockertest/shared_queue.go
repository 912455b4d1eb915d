package lockertest

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var sharedQueueClauses = []clause{
	{
		name: "shared/a writer is not overtaken", needs: canShare | canQueue,
		says: "A Shared request is refused while an Exclusive one has a position before it.",
		run: func(c *check) {
			reader := c.acquire(c.a, c.shared(c.name(), c.long()))
			writer := c.join(c.b, reader.Name, 1)
			c.held(c.a, c.shared(reader.Name, c.long()))
			second := c.fresh()
			c.joinShared(second, reader.Name, 2)
			c.release(c.a, reader)
			c.acquire(c.b, writer)
		},
	},
	{
		name: "shared/a dead reader ends no turn", needs: canShare | canQueue, waits: true,
		says: "A free lock is reserved for the waiters in their order. The last of its holders to release it has made it free, although the " +
			"lease of another had expired before.",
		run: func(c *check) {
			name := c.name()
			dead, last := c.acquire(c.a, c.shared(name, c.cfg.TTL)), c.acquire(c.a, c.shared(name, c.long()))
			c.expire(dead.TTL + driver.MaxTurns*c.info.Turn)
			writer := c.join(c.b, name, 1)
			released := time.Now()
			c.release(c.a, last)
			overtaken := c.grants(c.a, c.shared(name, c.long()))
			if inTime := time.Since(released) < c.info.Turn || c.cfg.Advance != nil; overtaken && inTime {
				c.fatalf("a reader without a position was granted the lock before the writer that waits")
			}
			if !overtaken {
				c.acquire(c.b, writer)
			}
		},
	},
	{
		name: "shared/readers have one turn", needs: canShare | canQueue,
		says: "Readers that follow one another in the queue have one turn. Those before a waiting writer are granted the lock before it.",
		run: func(c *check) {
			c.inTime(func() (early []string) {
				lease, second, last := c.acquire(c.a, c.request(c.name())), c.fresh(), c.fresh()
				one := c.joinShared(c.b, lease.Name, 1)
				two := c.joinShared(second, lease.Name, 2)
				writer := c.join(last, lease.Name, 3)
				c.release(c.a, lease)
				if c.grants(last, writer) {
					return []string{"the writer was granted the lock before the readers"}
				}
				if !c.grants(second, two) {
					return []string{"the second reader was refused in the turn of the first"}
				}
				if !c.grants(c.b, one) {
					return []string{"the first reader was refused after the second"}
				}
				c.held(c.a, c.shared(lease.Name, c.long()))
				return nil
			})
		},
	},
	{
		name: "shared/readers are woken", needs: canShare | canQueue,
		says: "A release wakes all readers that come first in the queue, and so does a writer before them that leaves it.",
		run: func(c *check) {
			lease, second := c.acquire(c.a, c.request(c.name())), c.fresh()
			var turns [2]<-chan driver.Wakeup
			for i, l := range []driver.Locker{c.b, second} {
				var stop func()
				turns[i], stop = c.wait(l, lease.Name)
				defer stop()
				c.waking(turns[i])
				c.joinShared(l, lease.Name, i+1)
			}
			c.release(c.a, lease)
			for _, t := range turns {
				c.turn("a release", t, driver.Wakeup{})
			}
			reader := c.acquire(c.b, c.sharedWaiting(c.b, lease.Name))
			third := c.fresh()
			c.join(third, lease.Name, 2) // behind the second reader, which has not come yet
			c.acquire(second, c.sharedWaiting(second, lease.Name))
			c.joinShared(second, lease.Name, 2)
			if err := third.Capabilities().Queue.Leave(c.ctx, c.waiterOf(third), []string{lease.Name}); err != nil {
				c.errorf("Leave: %v", err)
			}
			c.turn("a writer has left the queue", turns[1], driver.Wakeup{})
			c.renew(c.b, reader)
		},
	},
}

// sharedWaiting is waiting for a shared request.
func (c *check) sharedWaiting(l driver.Locker, name string) driver.Request {
	req := c.waiting(l, name)
	req.Mode = driver.Shared
	return req
}

// joinShared is join for a shared request.
func (c *check) joinShared(l driver.Locker, name string, position int) driver.Request {
	req := c.sharedWaiting(l, name)
	if r := c.held(l, req); r.Position != position {
		c.errorf("a reader that was refused has position %d of %d, want %d", r.Position, r.Waiters, position)
	}
	return req
}
