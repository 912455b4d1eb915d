package lockertest

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var renewTimeClauses = []clause{
	{
		name: "renew/extends", waits: true,
		says: "Renew extends the lease to at least l.TTL from now on the backend's clock.",
		run: func(c *check) {
			c.extends(func(l driver.Lease, _ driver.Request) { c.renew(c.b, l) })
		},
	},
	{
		name: "acquire/repeat extends", waits: true,
		says: "If the call is a repeat, it extends the lease as Renew does.",
		run: func(c *check) {
			c.extends(func(_ driver.Lease, req driver.Request) { c.acquire(c.b, req) })
		},
	},
	{
		name: "renew/never shortens", waits: true,
		says: "Renew never shortens a lease.",
		run: func(c *check) {
			c.neverShortens(func(l driver.Lease, _ driver.Request) { c.renew(c.a, l) })
		},
	},
	{
		name: "acquire/repeat never shortens", waits: true,
		says: "If the call is a repeat, it extends the lease as Renew does, which never shortens a lease.",
		run: func(c *check) {
			c.neverShortens(func(_ driver.Lease, req driver.Request) { c.acquire(c.a, req) })
		},
	},
	{
		name: "renew/longer", waits: true,
		says:  "Renew extends the lease to at least l.TTL from now, also if that is longer than before.",
		needs: lengthens,
		run: func(c *check) {
			req := c.brief(c.name())
			lease := c.acquire(c.a, req)
			lease.TTL = c.twice()
			sent := c.now()
			c.renew(c.a, lease)
			c.takeOver(c.b, c.request(req.Name), sent.Add(lease.TTL), c.now().Add(lease.TTL))
		},
	},
	{
		name: "renew/expired but untaken", waits: true,
		says: "Renew also renews a lease that has expired, if nobody has taken the lock since.",
		run: func(c *check) {
			req := c.brief(c.name())
			lease := c.acquire(c.a, req)
			c.expire(req.TTL)
			sent := c.now()
			c.renew(c.a, lease)
			next := c.takeOver(c.b, c.request(req.Name), sent.Add(req.TTL), c.now().Add(req.TTL))
			c.tokenRises(lease, next)
		},
	},
}

// twice returns about two TTLs, as far as the limits allow.
func (s *suite) twice() time.Duration { return s.allowed(2 * s.cfg.TTL) }

// extends expects that the lease lasts one TTL from the call of again, which is made after about
// half a TTL.
func (c *check) extends(again func(driver.Lease, driver.Request)) {
	req := c.brief(c.name())
	lease := c.acquire(c.a, req)
	c.pass(c.ctx, req.TTL/2)
	sent := c.now()
	again(lease, req)
	next := c.takeOver(c.b, c.request(req.Name), sent.Add(req.TTL), c.now().Add(req.TTL))
	c.tokenRises(lease, next)
}

// neverShortens expects that a lease keeps its end if again asks for a shorter TTL.
func (c *check) neverShortens(again func(driver.Lease, driver.Request)) {
	req := c.brief(c.name())
	req.TTL = c.twice()
	sent := c.now()
	lease := c.acquire(c.a, req)
	granted := c.now()
	lease.TTL, req.TTL = c.cfg.TTL, c.cfg.TTL
	again(lease, req)
	r := c.inspect(c.a, req.Name)
	if r.TTL != 0 && r.TTL < c.twice() && c.now().Before(sent.Add(c.twice())) {
		c.errorf("after a renewal with a shorter TTL the record's TTL is %v, although the lease still runs for %v: "+
			"a waiter that sees a Revision unchanged for the TTL would replace a live lease", r.TTL, c.twice())
	}
	next := c.takeOver(c.b, c.request(req.Name), sent.Add(c.twice()), granted.Add(c.twice()+c.cfg.TTL))
	c.tokenRises(lease, next)
}

var renewClauses = []clause{
	{
		name: "renew/any Locker",
		says: "A Lease is a plain value: any Locker of the same backend can renew and release it.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			c.renew(c.b, lease)
			c.renew(c.a, lease)
			c.stillHeldBy("after renewals by two Lockers", lease)
			c.release(c.b, lease)
			c.acquire(c.a, c.request(lease.Name))
		},
	},
	{
		name: "renew/released",
		says: "ErrLost means that the lease is certainly not l's any more: it was released.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			c.release(c.a, lease)
			c.lost("Renew after Release", errOf(c.a.Renew(c.ctx, lease)))
			c.lost("Renew after Release, through another Locker", errOf(c.b.Renew(c.ctx, lease)))
			c.acquire(c.b, c.request(lease.Name)) // the renewals did not take the lock again
		},
	},
	{
		name: "renew/stale",
		says: "ErrLost means that the lease is certainly not l's any more: another has taken the lock.",
		run: func(c *check) {
			first := c.acquire(c.a, c.request(c.name()))
			c.release(c.a, first)
			second := c.acquire(c.b, c.request(first.Name))
			c.lost("Renew by the predecessor", errOf(c.a.Renew(c.ctx, first)))
			c.stillHeldBy("after a renewal by the predecessor", second)
		},
	},
	{
		name: "renew/unknown name",
		says: "ErrLost means that the lease is certainly not l's any more: the record is gone.",
		run: func(c *check) {
			req := c.request(c.name())
			lease := driver.Lease{Name: req.Name, ID: req.ID, Token: 1, TTL: req.TTL}
			c.lost("Renew of a name without a record", errOf(c.a.Renew(c.ctx, lease)))
			if r := c.inspect(c.a, req.Name); r.State != driver.StateFree {
				c.errorf("after it the lock is %v", r.State)
			}
		},
	},
	{
		name: "renew/removed", needs: canForget, waits: true,
		says: "ErrLost means that the lease is certainly not l's any more: the record is gone.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			c.forget(lease.Name)
			c.lost("Renew after the record was removed", errOf(c.a.Renew(c.ctx, lease)))
			c.release(c.a, lease)
			c.pass(c.ctx, c.clockStep())
			c.acquire(c.b, c.request(lease.Name))
		},
	},
	{
		name: "renew/keeps the data",
		says: "Renew extends the lease, and nothing else.",
		run: func(c *check) {
			req := c.request(c.name())
			req.Data = []byte("kept")
			lease := c.acquire(c.a, req)
			bare := driver.Lease{Name: lease.Name, ID: lease.ID, TTL: lease.TTL}
			c.renew(c.b, bare)
			r := c.inspect(c.a, req.Name)
			c.checkHeldRecord(r, lease)
			if string(r.Data) != "kept" {
				c.errorf("after a renewal the data are %q, want %q", r.Data, "kept")
			}
		},
	},
}

func (c *check) forget(name string) {
	if err := c.cfg.Forget(c.ctx, name); err != nil {
		c.fatalf("lockertest: Config.Forget: %v", err)
	}
}
