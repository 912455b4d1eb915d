package lockertest

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var sharedTimeClauses = []clause{
	{
		name: "shared/a writer waits for all", needs: canShare, waits: true,
		says: "Shared: any number of holders, all of them Shared. An Exclusive request is granted when the lease of the last one has ended.",
		run: func(c *check) {
			name := c.name()
			c.acquire(c.a, c.shared(name, c.cfg.TTL))
			req := c.shared(name, c.twice())
			sent := c.now()
			last := c.acquire(c.b, req)
			granted := c.now()
			writer := c.takeOver(c.a, c.request(name), sent.Add(req.TTL), granted.Add(req.TTL))
			c.tokenRises(last, writer)
			c.lost("Renew by a reader after a writer was granted the lock", errOf(c.b.Renew(c.ctx, last)))
			c.stillHeldBy("after the readers before it have expired", writer)
		},
	},
	{
		name: "shared/one expires", needs: canShare, waits: true,
		says: "Each holder of a Shared lock has a lease of its own: one that expires is no holder any more, and the others are.",
		run: func(c *check) {
			name := c.name()
			brief, lasting := c.acquire(c.a, c.shared(name, c.cfg.TTL)), c.acquire(c.b, c.shared(name, c.long()))
			c.expire(brief.TTL)
			c.readBy("after the other reader's lease has expired", name, lasting)
			c.held(c.a, c.request(name))
			third := c.acquire(c.a, c.shared(name, c.long()))
			c.readBy("after another was granted the lock", name, lasting, third)
			c.release(c.a, brief) // it changes nothing
			c.readBy("after the late release of a lease that has expired", name, lasting, third)
		},
	},
	{
		name: "shared/renewed alone", needs: canShare, waits: true,
		says: "A renewal extends the lease of one holder. Renew also renews a lease that has expired, if no Exclusive request was granted " +
			"since, nobody else was granted the lock, and no other holder has released it.",
		run: func(c *check) {
			name := c.name()
			one, two := c.acquire(c.a, c.shared(name, c.cfg.TTL)), c.acquire(c.b, c.shared(name, c.cfg.TTL))
			c.pass(c.ctx, c.cfg.TTL/2)
			c.renew(c.a, one)
			c.pass(c.ctx, c.cfg.TTL/2+c.tolerance(c.cfg.TTL)+c.cfg.TTL/10)
			c.renew(c.b, two)
			c.expire(two.TTL)
			c.acquire(c.b, c.request(name))
			for _, lease := range []driver.Lease{one, two} {
				c.lost("Renew after a writer was granted the lock", errOf(c.a.Renew(c.ctx, lease)))
			}
		},
	},
}

var sharedClauses = []clause{
	{
		name: "shared/together", needs: canShare,
		says: "A Shared request is also granted while others hold the lock Shared. Holders has all of them, in the order of their tokens.",
		run: func(c *check) {
			name := c.name()
			one, two := c.acquire(c.a, c.shared(name, c.long())), c.acquire(c.b, c.shared(name, c.long()))
			c.tokenRises(one, two)
			c.readBy("held by two", name, one, two)
			for _, l := range []driver.Locker{c.a, c.b} {
				if r := c.held(l, c.request(name)); len(r.Holders) > 0 && len(r.Holders) != 2 {
					c.errorf("a refusal has %d holders, want 2", len(r.Holders))
				}
			}
			c.renew(c.a, one)
			c.renew(c.b, two)
		},
	},
	{
		name: "shared/excluded", needs: canShare,
		says: "Exclusive: nobody else holds the lock, not even Shared.",
		run: func(c *check) {
			writer := c.acquire(c.a, c.request(c.name()))
			c.held(c.b, c.shared(writer.Name, c.long()))
			c.stillHeldBy("after a shared request", writer)
			c.release(c.a, writer)
			reader := c.acquire(c.b, c.shared(writer.Name, c.long()))
			c.tokenRises(writer, reader)
			c.lost("Renew by the writer before", errOf(c.a.Renew(c.ctx, writer)))
			c.release(c.a, writer)
			c.readBy("after the late release of the writer before", writer.Name, reader)
		},
	},
	{
		name: "shared/one releases", needs: canShare,
		says: "Release ends the lease of one holder. The lock is free when the last one has ended.",
		run: func(c *check) {
			name := c.name()
			one, two := c.acquire(c.a, c.shared(name, c.long())), c.acquire(c.b, c.shared(name, c.long()))
			c.release(c.a, one)
			c.release(c.a, one)
			c.readBy("after one of two has released it", name, two)
			c.lost("Renew after the release", errOf(c.a.Renew(c.ctx, one)))
			c.held(c.a, c.request(name))
			c.release(c.a, driver.Lease{Name: two.Name, ID: two.ID, Mode: driver.Shared})
			if r := c.inspect(c.a, name); r.State != driver.StateFree || len(r.Holders) > 0 {
				c.errorf("after all have released it the lock is %v with %d holders", r.State, len(r.Holders))
			}
			writer := c.acquire(c.a, c.request(name))
			c.tokenRises(two, writer)
			c.stillHeldBy("after its readers", writer)
		},
	},
	{
		name: "shared/repeat", needs: canShare,
		says: "A repeat by a holder of a Shared lock returns the same token, and leaves the others alone.",
		run: func(c *check) {
			name := c.name()
			req := c.shared(name, c.long())
			one, two := c.acquire(c.a, req), c.acquire(c.b, c.shared(name, c.long()))
			for _, l := range []driver.Locker{c.a, c.b} {
				if again := c.acquire(l, req); again.Token != one.Token {
					c.errorf("a repeat has token %d, want %d", again.Token, one.Token)
				}
			}
			c.readBy("after a repeat", name, one, two)
		},
	},
	{
		name: "shared/no change of the mode", needs: canShare,
		says: "An ID that holds the lock in one mode is refused in the other.",
		run: func(c *check) {
			req := c.shared(c.name(), c.long())
			reader := c.acquire(c.a, req)
			req.Mode = driver.Exclusive
			c.held(c.a, req)
			c.readBy("after a request for the other mode", req.Name, reader)
			req = c.request(c.name())
			writer := c.acquire(c.a, req)
			req.Mode = driver.Shared
			c.held(c.a, req)
			c.stillHeldBy("after a request for the other mode", writer)
		},
	},
	{
		name: "shared/arguments", needs: canShare,
		says: "A Shared request has an owner of at most MaxSharedOwner bytes and no Data.",
		run: func(c *check) {
			name := c.name()
			long, data := c.shared(name, c.long()), c.shared(name, c.long())
			long.Owner = string(slices.Repeat([]byte("x"), driver.MaxSharedOwner+1))
			_, err := c.a.TryAcquire(c.ctx, long)
			c.invalid("a shared request with a long owner", "Owner", err)
			data.Data = []byte("x")
			_, err = c.a.TryAcquire(c.ctx, data)
			c.invalid("a shared request with data", "Data", err)
		},
	},
	{
		name: "shared/keeps the data", needs: canShare | canStore,
		says: "The data belong to all holders of a Shared lock: WriteData returns ErrLost to each of them, since it does not hold the lock " +
			"alone.",
		run: func(c *check) {
			req := c.request(c.name())
			req.Data = []byte("kept")
			c.release(c.a, c.acquire(c.a, req))
			reader := c.acquire(c.a, c.shared(req.Name, c.long()))
			if c.info.Free.Data {
				c.dataIs("held by a reader", req.Name, req.Data)
			}
			store := c.a.Capabilities().DataStore
			c.lost("WriteData by a reader", store.WriteData(c.ctx, reader, []byte("x"), driver.DataRevision{Token: reader.Token}))
			if c.info.Free.Data {
				c.dataIs("after a reader's WriteData", req.Name, req.Data)
			}
		},
	},
	{
		name: "shared/Break one", needs: canShare | canBreak,
		says: "Of the holders of a Shared lock Break and BreakNow affect the target alone.",
		run: func(c *check) {
			name, b := c.name(), c.b.Capabilities().Breaker
			one, two := c.acquire(c.a, c.shared(name, c.long())), c.acquire(c.a, c.shared(name, c.long()))
			three := c.acquire(c.b, c.shared(name, c.long()))
			if err := b.Break(c.ctx, name, driver.BreakToken(one.Token)); err != nil {
				c.errorf("Break of one of three: %v", err)
			}
			c.lost("Renew after Break", errOf(c.a.Renew(c.ctx, one)))
			c.renew(c.a, two)
			r := c.readBy("after Break of the first", name, one, two, three)
			if r.Broken || len(r.Holders) > 0 && (!r.Holders[0].Broken || r.Holders[1].Broken) {
				c.errorf("the record says broken %v, the first holder %v; want the first one alone", r.Broken, r.Holders)
			}
			if err := b.BreakNow(c.ctx, name, driver.BreakToken(two.Token)); err != nil {
				c.errorf("BreakNow of one of three: %v", err)
			}
			c.lost("Renew after BreakNow", errOf(c.a.Renew(c.ctx, two)))
			c.renew(c.b, three)
			c.readBy("after BreakNow of the second", name, one, three)
			if err := b.Break(c.ctx, name, driver.BreakToken(two.Token)); err == nil {
				c.errorf("Break of a holder that is none any more, while others hold the lock: no error, want a *HeldError")
			}
		},
	},
	{
		name: "shared/Break all", needs: canShare | canBreak,
		says: "With BreakAnybody, Break and BreakNow affect all that hold a Shared lock.",
		run: func(c *check) {
			name, b := c.name(), c.b.Capabilities().Breaker
			one, two := c.acquire(c.a, c.shared(name, c.long())), c.acquire(c.b, c.shared(name, c.long()))
			c.breakLock(name)
			for _, lease := range []driver.Lease{one, two} {
				c.lost("Renew after Break of all", errOf(c.a.Renew(c.ctx, lease)))
			}
			if r := c.inspect(c.a, name); r.State != driver.StateHeld || !r.Broken {
				c.errorf("after Break of all the lock is %v, broken %v", r.State, r.Broken)
			}
			if err := b.BreakNow(c.ctx, name, driver.BreakAnybody()); err != nil {
				c.errorf("BreakNow of all: %v", err)
			}
			c.stillHeldBy("after BreakNow of its readers", c.acquire(c.a, c.request(name)))
		},
	},
	{
		name: "shared/revision", needs: canShare,
		says: "Revision changes with every grant and renewal, by whichever holder, and a request that replaces it replaces all holders.",
		run: func(c *check) {
			name := c.name()
			one := c.acquire(c.a, c.shared(name, c.long()))
			seen := []driver.Revision{c.inspect(c.b, name).Revision}
			if seen[0].IsZero() {
				return // the backend cannot compare it
			}
			c.pass(c.ctx, 2*time.Millisecond) // a revision may be a time
			two := c.acquire(c.b, c.shared(name, c.long()))
			seen = append(seen, c.inspect(c.b, name).Revision)
			for _, lease := range []driver.Lease{one, two} {
				c.pass(c.ctx, 2*time.Millisecond)
				c.renew(c.a, lease)
				seen = append(seen, c.inspect(c.b, name).Revision)
			}
			for i, r := range seen {
				if slices.Contains(seen[:i], r) {
					c.errorf("revision %d is one of those before", i)
				}
			}
			req := c.request(name)
			req.Replace = seen[2]
			c.held(c.a, req)
			req.Replace = seen[3]
			c.tokenRises(two, c.acquire(c.a, req))
			for _, lease := range []driver.Lease{one, two} {
				c.lost("Renew by a reader that was replaced", errOf(c.b.Renew(c.ctx, lease)))
			}
		},
	},
	{
		name: "shared/renewed in a batch", needs: canShare | canRenewBatch,
		says: "RenewBatch renews each lease as Renew does, also several of one name.",
		run: func(c *check) {
			name := c.name()
			one, two := c.acquire(c.a, c.shared(name, c.long())), c.acquire(c.a, c.shared(name, c.long()))
			gone := c.acquire(c.a, c.shared(name, c.long()))
			c.release(c.b, gone)
			alone := c.acquire(c.a, c.request(c.name()))
			c.renewBatch([]driver.Lease{one, gone, alone, two}, nil, driver.ErrLost, nil, nil)
			c.readBy("after a batch", name, one, two)
		},
	},
	{
		name: "shared/broken in a batch", needs: canShare | canRenewBatch | canBreak,
		says: "RenewBatch renews each lease as Renew does: a broken holder of a Shared lock is lost, and all others are renewed.",
		run: func(c *check) {
			alone, other := c.acquire(c.a, c.shared(c.name(), c.long())), c.acquire(c.a, c.shared(c.name(), c.long()))
			name := c.name()
			one, two := c.acquire(c.a, c.shared(name, c.long())), c.acquire(c.a, c.shared(name, c.long()))
			for _, lease := range []driver.Lease{alone, two} {
				if err := c.b.Capabilities().Breaker.Break(c.ctx, lease.Name, driver.BreakToken(lease.Token)); err != nil {
					c.errorf("Break: %v", err)
				}
			}
			c.renewBatch([]driver.Lease{alone, other, one, two}, driver.ErrLost, nil, nil, driver.ErrLost)
		},
	},
	{
		name: "shared/released in a batch", needs: canShare | canReleaseBatch,
		says: "ReleaseBatch releases each lease as Release does, also several of one name.",
		run: func(c *check) {
			name := c.name()
			one, two := c.acquire(c.a, c.shared(name, c.long())), c.acquire(c.a, c.shared(name, c.long()))
			stays := c.acquire(c.a, c.shared(name, c.long()))
			alone := c.acquire(c.a, c.request(c.name()))
			for i, err := range c.b.Capabilities().BatchReleaser.ReleaseBatch(c.ctx, []driver.Lease{one, alone, two}) {
				if err != nil {
					c.errorf("result %d of the batch: %v", i, err)
				}
			}
			c.readBy("after a batch", name, stays)
			c.acquire(c.b, c.request(alone.Name))
		},
	},
	{
		name: "shared/history", needs: canShare | keepsHistory | keepsFreeHistory,
		says: "History has each holder of a Shared lock that has ended.",
		run: func(c *check) {
			if c.info.EndsUnknown || c.info.History < 2 {
				return
			}
			name := c.name()
			one, two := c.acquire(c.a, c.shared(name, c.long())), c.acquire(c.b, c.shared(name, c.long()))
			c.release(c.b, two)
			if past := c.inspect(c.a, name).History; len(past) != 1 || past[0].Token != two.Token || past[0].End != driver.EndReleased {
				c.errorf("after one of two readers has released the lock, its history is %+v", past)
			}
			c.release(c.a, one)
			if past := c.inspect(c.a, name).History; len(past) != 2 || past[0].Token != two.Token || past[1].Token != one.Token {
				c.errorf("after both readers have released the lock, its history is %+v", past)
			}
		},
	},
	{
		name: "shared/many", needs: canShare,
		says: "Any number of holders: each of them renews and releases its own lease.",
		run: func(c *check) {
			const n = 40
			name := c.name()
			leases := make([]driver.Lease, n)
			c.each(n, func(i int) { leases[i] = c.acquire(c.a, c.shared(name, c.long())) })
			c.each(n, func(i int) { c.renew(c.b, leases[i]) })
			slices.SortFunc(leases, func(a, b driver.Lease) int { return cmp.Compare(a.Token, b.Token) })
			c.readBy("held by many", name, leases...)
			c.each(n-1, func(i int) { c.release(c.b, leases[i]) })
			c.readBy("after all but the last have released it", name, leases[n-1])
			c.held(c.a, c.request(name))
		},
	},
}

// shared returns a shared request for a name.
func (c *check) shared(name string, ttl time.Duration) driver.Request {
	req := c.request(name)
	req.Mode, req.TTL = driver.Shared, ttl
	return req
}

// readBy expects that these leases hold a lock, and no others.
func (c *check) readBy(when, name string, leases ...driver.Lease) driver.Record {
	r := c.inspect(c.b, name)
	var got, want []uint64
	for _, h := range r.Holders {
		got = append(got, h.Token)
	}
	for _, l := range leases {
		want = append(want, l.Token)
	}
	if r.State != driver.StateHeld || !slices.Equal(got, want) {
		c.errorf("%s: the lock is %v by the tokens %d, want held by %d", when, r.State, got, want)
	}
	for i, h := range r.Holders {
		if i < len(leases) && (h.Owner != leases[i].Owner || h.AcquiredAt.IsZero() || h.RenewedAt.Before(h.AcquiredAt)) {
			c.errorf("%s: holder %d is %+v, want that of %v", when, i, h, leases[i])
		}
	}
	return r
}
