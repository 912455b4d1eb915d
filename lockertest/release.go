package lockertest

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// clockStep is long enough for the backend's clock to pass the last token. The clock of a
// service may count whole seconds.
func (s *suite) clockStep() time.Duration {
	return max(time.Second, s.cfg.ClockStep) + 500*time.Millisecond
}

var releaseClauses = []clause{
	{
		name: "release/frees",
		says: "Release frees the lock if l still holds it, so that the next TryAcquire succeeds at once.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			for range 5 {
				c.release(c.a, lease)
				next := c.acquire(c.b, c.request(lease.Name))
				c.tokenRises(lease, next)
				lease = next
			}
		},
	},
	{
		name: "release/idempotent",
		says: "If l does not hold the lock (any more), Release returns nil and changes nothing.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			for range 3 {
				c.release(c.a, lease)
				c.release(c.b, lease)
			}
			unknown := c.request(c.name())
			c.release(c.a, driver.Lease{Name: unknown.Name, ID: unknown.ID, TTL: unknown.TTL})
			if r := c.inspect(c.b, unknown.Name); r.State != driver.StateFree || r.Token != 0 {
				c.errorf("the release of a name without a record left a record: %v, token %d", r.State, r.Token)
			}
			c.acquire(c.b, unknown)
		},
	},
	{
		name: "release/stale",
		says: "Release never touches another's lease.",
		run: func(c *check) {
			first := c.acquire(c.a, c.request(c.name()))
			c.release(c.a, first)
			second := c.acquire(c.b, c.request(first.Name))
			c.release(c.a, first)
			c.release(c.b, first)
			c.stillHeldBy("after a release by the predecessor", second)
		},
	},
	{
		name: "release/by name and ID",
		says: "Only l.Name and l.ID matter to Release.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			c.release(c.b, driver.Lease{Name: lease.Name, ID: lease.ID})
			next := c.acquire(c.b, c.request(lease.Name))
			c.release(c.a, driver.Lease{Name: next.Name, ID: lease.ID, Owner: next.Owner, Token: next.Token, TTL: next.TTL})
			c.stillHeldBy("after a release with the holder's owner and token and another's ID", next)
		},
	},
}

var tokenClauses = []clause{
	{
		name: "token/rises",
		says: "The token is greater than that of every earlier grant of the name.",
		run: func(c *check) {
			name := c.name()
			var last driver.Lease
			for i := range 20 {
				l := []driver.Locker{c.a, c.b}[i%2]
				lease := c.acquire(l, c.request(name))
				c.tokenRises(last, lease)
				c.release(l, lease)
				last = lease
			}
		},
	},
	{
		name: "token/another Locker",
		says: "The token is greater than that of every earlier grant of the name, also if the processes of those grants have ended.",
		run: func(c *check) {
			name := c.name()
			first := c.fresh()
			before := c.acquire(first, c.request(name))
			c.release(first, before)
			if err := first.Close(c.ctx); err != nil {
				c.errorf("Close: %v", err)
			}
			c.tokenRises(before, c.acquire(c.fresh(), c.request(name)))
		},
	},
	{
		name: "token/removed", waits: true, needs: canForget,
		says: "After a removal of the record the token still rises, provided the backend's clock has passed the last token.",
		run: func(c *check) {
			name := c.name()
			before := c.acquire(c.a, c.request(name))
			c.release(c.a, before)
			c.forget(name)
			if r := c.inspect(c.b, name); r.State != driver.StateFree || r.Token != 0 {
				c.errorf("a removed record is shown as %v with token %d; want free with token 0", r.State, r.Token)
			}
			c.pass(c.ctx, c.clockStep())
			c.tokenRises(before, c.acquire(c.b, c.request(name)))
		},
	},
}
