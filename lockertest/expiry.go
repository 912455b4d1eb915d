package lockertest

import (
	"errors"

	"github.com/holdfast-go/holdfast/driver"
)

var expiryClauses = []clause{
	{
		name: "expiry/takeover", waits: true,
		says: "The lock is granted if its lease expired, judged by the backend's clock alone, and not before. The token is greater than that " +
			"of every earlier grant, and the data are kept (Info.Free.Data).",
		run: func(c *check) {
			req := c.brief(c.name())
			req.Data = []byte("kept")
			sent := c.now()
			first := c.acquire(c.a, req)
			granted := c.now()
			second := c.takeOver(c.b, c.request(req.Name), sent.Add(req.TTL), granted.Add(req.TTL))
			c.tokenRises(first, second)
			c.keptDataIs("held by the next", req.Name, req.Data)
			c.lost("Renew of a lease that expired and was taken over", errOf(c.a.Renew(c.ctx, first)))
			c.release(c.a, first)
			c.held(c.a, req)
			c.stillHeldBy("after renewal, release and repeat by the predecessor", second)
		},
	},
	{
		name: "expiry/a new Locker", needs: judgedByServer, waits: true,
		says: "ByServer: the backend's clock judges leases. So a process that has just started takes a lock over whose lease has ended, " +
			"although it has not watched it.",
		run: func(c *check) {
			req := c.brief(c.name())
			c.acquire(c.a, req)
			latest := c.now().Add(req.TTL)
			c.expire(req.TTL)
			for {
				l := c.fresh() // each makes one request
				_, err := l.TryAcquire(c.ctx, c.request(req.Name))
				if err == nil {
					return
				}
				if !errors.Is(err, driver.ErrHeld) {
					c.fatalf("TryAcquire after the lease has ended: %v", err)
				}
				if late := c.now().Sub(latest); late > c.cfg.Slack {
					c.fatalf("the first request of a new Locker is still refused %v after the lease has ended, as if leases were judged by observation",
						late)
				}
				if err := l.Close(c.ctx); err != nil {
					c.errorf("Close: %v", err)
				}
				c.pass(c.ctx, c.cfg.Slack/5)
			}
		},
	},
	{
		name: "expiry/each wait is whole", waits: true,
		says: "TTL is how long the lease lasts on the backend's clock unless it is renewed, also for the second holder of a name.",
		run: func(c *check) {
			name := c.name()
			first := c.brief(name)
			sent := c.now()
			a := c.acquire(c.a, first)
			second := c.brief(name)
			b := c.takeOver(c.b, second, sent.Add(first.TTL), c.now().Add(first.TTL))
			// The second lease was not granted before the first could end.
			z := c.takeOver(c.a, c.request(name), sent.Add(first.TTL+second.TTL), c.now().Add(second.TTL))
			c.tokenRises(a, b)
			c.tokenRises(b, z)
		},
	},
	{
		name: "expiry/one winner", waits: true,
		says: "At most one holder at a time, also when many wait for the same lease to end.",
		run: func(c *check) {
			name := c.name()
			req := c.brief(name)
			sent := c.now()
			first := c.acquire(c.a, req)
			c.expire(req.TTL)
			leases := make(chan driver.Lease, 16)
			c.parallel(16, func(_ int, l driver.Locker) {
				lease, err := l.TryAcquire(c.ctx, c.request(name))
				if err == nil {
					leases <- lease
				} else if !errors.Is(err, driver.ErrHeld) {
					c.errorf("one of 16 requests at once for an expired lock failed: %v", err)
				}
			})
			close(leases)
			n := 0
			for lease := range leases {
				n++
				c.tokenRises(first, lease)
			}
			if n > 1 {
				c.errorf("%d of 16 requests at once for an expired lock were granted, want 1", n)
			}
			if n == 0 { // the backend may take until the slack is over
				c.takeOver(c.a, c.request(name), sent.Add(req.TTL), c.now())
			}
		},
	},
	{
		name: "expiry/same ID", waits: true,
		says: "If its lease has expired, the same ID may acquire again. The token never falls, and rises if another held the lock since.",
		run: func(c *check) {
			req := c.brief(c.name())
			first := c.acquire(c.a, req)
			c.expire(req.TTL)
			sent := c.now()
			again := c.takeOver(c.b, req, sent.Add(-req.TTL), sent)
			if again.Token < first.Token {
				c.errorf("the same ID got token %d after token %d", again.Token, first.Token)
			}
			other := c.takeOver(c.a, c.brief(req.Name), sent.Add(req.TTL), c.now().Add(req.TTL))
			c.tokenRises(again, other)
			c.release(c.a, other)
			c.tokenRises(other, c.acquire(c.b, req))
		},
	},
	{
		name: "expiry/inspect", waits: true,
		says: "Inspect returns what the backend knows of a name: a lock whose lease expired is free, not held.",
		run: func(c *check) {
			req := c.brief(c.name())
			sent := c.now()
			lease := c.acquire(c.a, req)
			latest := c.now().Add(req.TTL)
			for {
				r := c.inspect(c.b, req.Name)
				if r.State == driver.StateFree {
					if early := sent.Add(req.TTL).Sub(c.now()); early > c.tolerance(req.TTL) {
						c.errorf("the lock was shown as free %v before its lease could end", early)
					}
					if r.Token != 0 && r.Token != lease.Token || r.Owner != "" && r.Owner != lease.Owner {
						c.errorf("the expired lock shows token %d and owner %q, want those of the last grant, %d and %q, or none", r.Token, r.Owner,
							lease.Token, lease.Owner)
					}
					return
				}
				if late := c.now().Sub(latest); late > c.cfg.Slack {
					c.fatalf("the lock is still shown as %v %v after its lease ended", r.State, late)
				}
				c.pass(c.ctx, req.TTL/20)
			}
		},
	},
}

// tokenRises expects that the later grant has the greater token.
func (c *check) tokenRises(before, after driver.Lease) {
	if after.Token <= before.Token {
		c.errorf("token %d was granted after token %d", after.Token, before.Token)
	}
}
