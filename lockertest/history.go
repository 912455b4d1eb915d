package lockertest

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var historyTimeClauses = []clause{
	{
		name: "history/expired", needs: keepsHistory | keepsFreeHistory, waits: true,
		says: "History has the past holders. The first one of a free lock is its last holder, also if its lease has expired. Until is when the " +
			"lease expired.",
		run: func(c *check) {
			began := time.Now()
			first := c.acquire(c.a, c.brief(c.name()))
			c.inspect(c.b, first.Name) // a Locker that judges expiry by observation begins here
			late := time.Since(began)
			c.expire(first.TTL)
			if !c.info.EndsUnknown {
				c.pass(c.ctx, first.TTL)
			}
			c.pastIs("after its lease has expired", first, driver.EndExpired)
			c.acquire(c.b, c.request(first.Name))
			past := c.pastIs("after it was replaced", first, driver.EndExpired)
			lasted, tolerance := past.Until.Sub(past.From), first.TTL/2+late
			if !past.Until.IsZero() && (lasted < first.TTL-tolerance || lasted > first.TTL+tolerance+2*c.cfg.ClockStep) {
				c.errorf("a lease of %v that expired lasted %v in the history", first.TTL, lasted)
			}
		},
	},
	{
		name: "history/broken", needs: keepsHistory | canBreak, waits: true,
		says: "EndBroken: the holder's renewals were refused. Its lease ran out, or it released the lock.",
		run: func(c *check) {
			first := c.acquire(c.a, c.brief(c.name()))
			c.breakLock(first.Name)
			c.expire(first.TTL)
			second := c.acquire(c.b, c.request(first.Name))
			c.pastIs("after it was broken and replaced", first, driver.EndBroken)
			c.breakLock(first.Name)
			c.release(c.b, second)
			c.acquire(c.a, c.request(first.Name))
			c.pastIs("after it was broken and has released the lock", second, driver.EndBroken)
		},
	},
}

var historyClauses = []clause{
	{
		name: "history/released", needs: keepsHistory | keepsFreeHistory,
		says: "History has the past holders, the latest first. The first one of a free lock is its last holder. From is when the lock was " +
			"granted.",
		run: func(c *check) {
			name := c.name()
			var leases []driver.Lease
			for i := range min(3, c.info.History) {
				lease := c.acquire([]driver.Locker{c.a, c.b}[i%2], c.request(name))
				granted := c.inspect(c.b, name)
				if n := len(granted.History); n != i {
					c.errorf("holder %d has %d past holders", i+1, n)
				}
				c.renew(c.a, lease)
				c.pass(c.ctx, 2*time.Millisecond)
				c.release(c.a, lease)
				past := c.pastIs("after its release", lease, driver.EndReleased)
				if !granted.AcquiredAt.IsZero() && (past.From.Sub(granted.AcquiredAt)).Abs() > time.Millisecond {
					c.errorf("a lock that was acquired at %v was held from %v", granted.AcquiredAt, past.From)
				}
				leases = append(leases, lease)
			}
			c.acquire(c.a, c.request(name))
			past := c.inspect(c.b, name).History
			slices.Reverse(leases)
			if len(past) != len(leases) {
				c.fatalf("the history has %d holders after %d", len(past), len(leases))
			}
			for i, lease := range leases {
				c.checkTenure("afterwards", past[i], lease, driver.EndReleased, driver.EndUnknown)
			}
		},
	},
	{
		name: "history/bounded", needs: keepsHistory | keepsFreeHistory,
		says: "History is how many past holders of a lock the backend keeps with it.",
		run: func(c *check) {
			name := c.name()
			var last driver.Lease
			for range c.info.History + 2 {
				last = c.acquire(c.a, c.request(name))
				c.release(c.a, last)
			}
			free := c.inspect(c.b, name).History
			c.acquire(c.a, c.request(name))
			for _, past := range [][]driver.Tenure{free, c.inspect(c.b, name).History} {
				if len(past) != c.info.History || past[0].Token != last.Token {
					c.errorf("%d past holders after many, want %d with token %d first: %+v", len(past), c.info.History, last.Token, past)
				}
			}
		},
	},
	{
		name: "history/no tenure", needs: keepsHistory,
		says: "History has the past holders. A repeat, a renewal, a refused request and a late release end no tenure.",
		run: func(c *check) {
			first := c.acquire(c.a, c.request(c.name()))
			c.release(c.a, first)
			req := c.request(first.Name)
			second := c.acquire(c.b, req)
			c.acquire(c.a, req)
			c.renew(c.a, second)
			c.held(c.a, c.request(first.Name))
			c.release(c.a, first)
			if past := c.inspect(c.a, first.Name).History; len(past) != 1 {
				c.errorf("the history has %d holders after one: %+v", len(past), past)
			}
			c.pastIs("while another holds the lock", first, driver.EndReleased)
		},
	},
	{
		name: "history/freed", needs: keepsHistory | keepsFreeHistory | canBreak,
		says: "EndFreed at once, by BreakNow.",
		run: func(c *check) {
			first := c.acquire(c.a, c.request(c.name()))
			if err := c.b.Capabilities().Breaker.BreakNow(c.ctx, first.Name, driver.BreakToken(first.Token)); err != nil {
				c.fatalf("BreakNow: %v", err)
			}
			c.pastIs("after BreakNow", first, driver.EndFreed)
			c.release(c.a, first)
			c.acquire(c.a, c.request(first.Name))
			c.pastIs("after BreakNow and a late release", first, driver.EndFreed)
		},
	},
	{
		name: "history/taken over", needs: keepsHistory,
		says: "EndTakenOver by a waiter, before the lease had run out.",
		run: func(c *check) {
			first := c.acquire(c.a, c.request(c.name()))
			req := c.request(first.Name)
			if req.Replace = c.inspect(c.b, first.Name).Revision; req.Replace.IsZero() {
				c.inPartOnly("the driver's records have no Revision")
				return
			}
			c.acquire(c.b, req)
			c.pastIs("after a takeover", first, driver.EndTakenOver)
		},
	},
	{
		name: "history/own copy", needs: keepsHistory,
		says: "A Record is the caller's own.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			c.release(c.a, lease)
			c.acquire(c.a, c.request(lease.Name))
			past := c.inspect(c.a, lease.Name).History
			if len(past) == 0 {
				c.fatalf("no history")
			}
			past[0].Owner = "changed"
			c.pastIs("after the caller has changed its copy", lease, driver.EndReleased)
		},
	},
}

// pastIs expects that the latest past holder of a lock is that of a lease.
func (c *check) pastIs(when string, lease driver.Lease, end driver.End) driver.Tenure {
	past := c.inspect(c.b, lease.Name).History
	if len(past) == 0 {
		c.fatalf("%s there is no history", when)
	}
	allowed := []driver.End{end}
	if c.info.EndsUnknown {
		allowed = append(allowed, driver.EndUnknown)
		if end == driver.EndFreed {
			allowed = append(allowed, driver.EndBroken)
		}
		if end == driver.EndBroken {
			allowed = append(allowed, driver.EndReleased) // by its holder
		}
	}
	c.checkTenure(when, past[0], lease, allowed...)
	return past[0]
}

func (c *check) checkTenure(when string, t driver.Tenure, lease driver.Lease, ends ...driver.End) {
	if t.Owner != lease.Owner || t.Token != lease.Token {
		c.errorf("%s the history has owner %q with token %d, want %q with %d", when, t.Owner, t.Token, lease.Owner, lease.Token)
	}
	if !slices.Contains(ends, t.End) || t.End == driver.EndUnknown && !c.info.EndsUnknown {
		c.errorf("%s the end in the history is %q, want %q", when, t.End, ends[0])
	}
	if t.Until.IsZero() && !c.info.EndsUnknown {
		c.errorf("%s the history does not say until when the lock was held", when)
	}
}

// checkHistory checks the rules for all histories.
func (c *check) checkHistory(method string, r driver.Record) {
	if len(r.History) > c.info.History {
		c.errorf("%s: %d past holders, want at most %d", method, len(r.History), c.info.History)
	}
	next, writer := r.AcquiredAt, r.AcquiredAt // when the next holder was granted the lock, and the next that has it alone
	last := r.Token
	if r.State != driver.StateHeld || r.Owner == "" || len(r.Holders) > 0 { // the first entry may be that of the record
		next, writer, last = time.Time{}, time.Time{}, last+1
	}
	if len(r.Holders) > 0 {
		next = r.Holders[0].AcquiredAt
	}
	for _, t := range r.History {
		if t.Mode == driver.Shared {
			next = writer // those that share the lock overlap
		} else {
			writer = t.From
		}
		if t.Token == 0 || r.Token != 0 && t.Token >= last {
			c.errorf("%s: token %d in the history before token %d", method, t.Token, last)
		}
		if !t.Until.IsZero() && t.Until.Before(t.From) || !next.IsZero() && t.Until.After(next.Add(time.Second)) {
			c.errorf("%s: held from %v until %v, and then from %v", method, t.From, t.Until, next)
		}
		next, last = t.From, t.Token
	}
}
