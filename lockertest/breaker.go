package lockertest

import (
	"errors"

	"github.com/holdfast-go/holdfast/driver"
)

var breakerTimeClauses = []clause{
	{
		name: "breaker/runs out", needs: canBreak, waits: true,
		says: "Break makes the backend refuse the holder's renewals from now on. The lock becomes free when the holder's lease runs out, so " +
			"two holders never overlap.",
		run: func(c *check) {
			req := c.brief(c.name())
			sent := c.now()
			first := c.acquire(c.a, req)
			granted := c.now()
			c.breakLock(req.Name)
			c.lost("Renew after Break", errOf(c.a.Renew(c.ctx, first)))
			if again, err := c.a.TryAcquire(c.ctx, req); err == nil {
				if again.Token == first.Token || c.now().Before(sent.Add(req.TTL-c.tolerance(req.TTL))) {
					c.errorf("after Break the holder's repeat was granted with token %d, although its lease with token %d still ran", again.Token,
						first.Token)
				}
				c.release(c.a, again)
			}
			second := c.takeOver(c.b, c.request(req.Name), sent.Add(req.TTL), granted.Add(req.TTL))
			c.tokenRises(first, second)
			if r := c.inspect(c.a, req.Name); r.Broken {
				c.errorf("the next holder's lock is shown as broken")
			}
			c.stillHeldBy("after its predecessor's lease was broken", second)
		},
	},
	{
		name: "breaker/expired", needs: canBreak, waits: true,
		says: "Break makes the backend refuse the holder's renewals from now on, also those of a lease that has expired, if nobody has taken " +
			"the lock since.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.brief(c.name()))
			c.expire(lease.TTL)
			c.breakLock(lease.Name)
			c.lost("Renew after Break of an expired lease", errOf(c.a.Renew(c.ctx, lease)))
		},
	},
	{
		name: "breaker/expired token", needs: canBreak | keepsToken, waits: true,
		says: "target names the holder to break: if another's lease was the latest and has expired, nothing happens and there is no error.",
		run: func(c *check) {
			b := c.b.Capabilities().Breaker
			first := c.acquire(c.a, c.request(c.name()))
			c.release(c.a, first)
			second := c.acquire(c.a, c.brief(first.Name))
			c.inspect(c.b, first.Name) // by observation, it is judged from here
			c.expire(second.TTL)
			if err := b.Break(c.ctx, first.Name, driver.BreakToken(first.Token)); err != nil {
				c.errorf("Break with the token of an earlier holder, after the latest one's lease has expired: %v", err)
			}
			if err := b.BreakNow(c.ctx, first.Name, driver.BreakToken(first.Token)); err != nil {
				c.errorf("BreakNow with the token of an earlier holder, after the latest one's lease has expired: %v", err)
			}
			c.renew(c.a, second)
			c.expire(second.TTL)
			if err := b.Break(c.ctx, first.Name, driver.BreakToken(second.Token)); err != nil {
				c.errorf("Break with the token of a holder whose lease has expired: %v", err)
			}
			c.lost("Renew after Break with the token of a lease that has expired", errOf(c.a.Renew(c.ctx, second)))
		},
	},
}

var breakerClauses = []clause{
	{
		name: "breaker/Break", needs: canBreak,
		says: "Break makes the backend refuse the holder's renewals from now on. The lock stays held until its lease runs out. Broken means " +
			"that the holder's renewals are refused.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			c.breakLock(lease.Name)
			c.breakLock(lease.Name)
			c.lost("Renew after Break", errOf(c.a.Renew(c.ctx, lease)))
			c.held(c.b, c.request(lease.Name))
			if r := c.inspect(c.b, lease.Name); r.State != driver.StateHeld || !r.Broken {
				c.errorf("the record says %v, broken %v; want held and broken", r.State, r.Broken)
			}
			c.release(c.a, lease) // the holder may still end it early
			next := c.acquire(c.b, c.request(lease.Name))
			c.tokenRises(lease, next)
			c.stillHeldBy("after its predecessor's lease was broken", next)
		},
	},
	{
		name: "breaker/BreakNow", needs: canBreak,
		says: "BreakNow frees the lock at once. The holder is not notified before its next renewal.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			if err := c.b.Capabilities().Breaker.BreakNow(c.ctx, lease.Name, driver.BreakAnybody()); err != nil {
				c.fatalf("BreakNow: %v", err)
			}
			if r := c.inspect(c.a, lease.Name); r.State != driver.StateFree {
				c.errorf("after BreakNow the state is %v, want free", r.State)
			}
			next := c.acquire(c.b, c.request(lease.Name))
			c.tokenRises(lease, next)
			c.lost("Renew after BreakNow", errOf(c.a.Renew(c.ctx, lease)))
			c.release(c.a, lease)
			c.stillHeldBy("after BreakNow of its predecessor", next)
		},
	},
	{
		name: "breaker/BreakNow untaken", needs: canBreak,
		says: "ErrLost means that the lease is certainly not l's any more: it was broken.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			if err := c.b.Capabilities().Breaker.BreakNow(c.ctx, lease.Name, driver.BreakAnybody()); err != nil {
				c.fatalf("BreakNow: %v", err)
			}
			c.lost("Renew after BreakNow, before another took the lock", errOf(c.a.Renew(c.ctx, lease)))
		},
	},
	{
		name: "breaker/free", needs: canBreak,
		says: "Breaking a free lock is no error.",
		run: func(c *check) {
			b := c.a.Capabilities().Breaker
			req := c.request(c.name())
			if err := errors.Join(b.Break(c.ctx, req.Name, driver.BreakAnybody()), b.BreakNow(c.ctx, req.Name, driver.BreakAnybody())); err != nil {
				c.errorf("breaking a name without a record: %v", err)
			}
			if r := c.inspect(c.b, req.Name); r.State != driver.StateFree || r.Token != 0 {
				c.errorf("breaking a name without a record left one: %v, token %d", r.State, r.Token)
			}
			lease := c.acquire(c.a, req)
			c.release(c.a, lease)
			if err := errors.Join(b.Break(c.ctx, req.Name, driver.BreakAnybody()), b.BreakNow(c.ctx, req.Name, driver.BreakAnybody())); err != nil {
				c.errorf("breaking a released lock: %v", err)
			}
			c.stillHeldBy("after its name was broken while it was free", c.acquire(c.b, c.request(req.Name)))
		},
	},
	{
		name: "breaker/token", needs: canBreak,
		says: "target names the holder to break: if another holds the lock, nothing happens and the error is a *HeldError.",
		run: func(c *check) {
			b := c.b.Capabilities().Breaker
			first := c.acquire(c.a, c.request(c.name()))
			c.release(c.a, first)
			second := c.acquire(c.a, c.request(first.Name))
			for name, err := range map[string]error{
				"Break": b.Break(c.ctx, first.Name, driver.BreakToken(first.Token)), "BreakNow": b.BreakNow(c.ctx, first.Name,
					driver.BreakToken(first.Token)),
			} {
				if !errors.Is(err, driver.ErrHeld) {
					c.errorf("%s with the token of an earlier holder: %v, want a *HeldError", name, err)
				}
			}
			for name, err := range map[string]error{
				"Break":    b.Break(c.ctx, first.Name, driver.BreakUnknown()),
				"BreakNow": b.BreakNow(c.ctx, first.Name, driver.BreakUnknown()),
			} {
				if !errors.Is(err, driver.ErrHeld) {
					c.errorf("%s of an unknown holder, while the holder has a token: %v, want a *HeldError", name, err)
				}
			}
			c.stillHeldBy("after a break with an earlier token, and one of an unknown holder", second)
			if err := b.Break(c.ctx, second.Name, driver.BreakToken(second.Token)); err != nil {
				c.errorf("Break with the holder's token: %v", err)
			}
			c.lost("Renew after Break with the holder's token", errOf(c.a.Renew(c.ctx, second)))
			if err := b.BreakNow(c.ctx, second.Name, driver.BreakToken(second.Token)); err != nil {
				c.errorf("BreakNow with the holder's token: %v", err)
			}
			if r := c.inspect(c.a, second.Name); r.State != driver.StateFree {
				c.errorf("after BreakNow with the holder's token the state is %v, want free", r.State)
			}
			if err := b.Break(c.ctx, second.Name, driver.BreakToken(first.Token)); err != nil {
				c.errorf("Break of a free lock with an earlier token: %v", err)
			}
		},
	},
	{
		name: "breaker/no target", needs: canBreak,
		says: "The zero target is refused, before I/O.",
		run: func(c *check) {
			b := c.b.Capabilities().Breaker
			lease := c.acquire(c.a, c.request(c.name()))
			for _, name := range []string{lease.Name, c.name()} {
				c.invalid("Break without a target", "Target", b.Break(c.ctx, name, driver.BreakToken(0)))
				c.invalid("BreakNow without a target", "Target", b.BreakNow(c.ctx, name, driver.BreakTarget{}))
			}
			c.stillHeldBy("after a break without a target", lease)
		},
	},
	{
		name: "breaker/keeps the data", needs: canBreak | keepsData,
		says: "Data are kept when a lock is broken and granted to the next holder.",
		run: func(c *check) {
			req := c.request(c.name())
			req.Data = []byte("kept")
			c.acquire(c.a, req)
			c.breakLock(req.Name)
			c.dataIs("broken", req.Name, req.Data)
			if err := c.b.Capabilities().Breaker.BreakNow(c.ctx, req.Name, driver.BreakAnybody()); err != nil {
				c.fatalf("BreakNow: %v", err)
			}
			c.dataIs("free after BreakNow", req.Name, req.Data)
			c.acquire(c.b, c.request(req.Name))
			c.dataIs("held by the next", req.Name, req.Data)
		},
	},
}

func (c *check) breakLock(name string) {
	if err := c.b.Capabilities().Breaker.Break(c.ctx, name, driver.BreakAnybody()); err != nil {
		c.fatalf("Break of %q: %v", short(name), err)
	}
}
