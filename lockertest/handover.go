package lockertest

import (
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var handOverTimeClauses = []clause{
	{
		name: "handoff/whole TTL", needs: canHandOver, waits: true,
		says: "HandOver does what TryAcquire does: TTL is how long the lease lasts unless it is renewed, whatever was left of the lease before.",
		run:  handsOverWholeTTL,
	},
	{
		name: "handoff/repeat extends", needs: canHandOver, waits: true,
		says: "If req.ID holds the lock, the call is a repeat, which extends the lease as Renew does.",
		run: func(c *check) {
			c.extends(func(l driver.Lease, req driver.Request) { c.handOver(c.b, c.stranger(l.Name), req) })
		},
	},
	{
		name: "handoff/expired", needs: canHandOver, waits: true,
		says: "If from does not hold the lock (any more), the lock is granted if it is free, also if from has expired. The handoff ends the " +
			"lease of from.",
		run: func(c *check) {
			from := c.acquire(c.a, c.brief(c.name()))
			c.expire(from.TTL)
			next := c.handOver(c.b, from, c.request(from.Name))
			c.follows(from, next)
		},
	},
}

var handOverClauses = []clause{
	{
		name: "handoff/granted", needs: canHandOver,
		says: "A lock held by from counts as free. The handoff ends the lease of from: a later Renew of it is refused with ErrLost. The token " +
			"is greater than that of every earlier grant.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			for i := range 6 {
				l := []driver.Locker{c.b, c.a}[i%2]
				next := c.handOver(l, lease, c.request(lease.Name))
				c.follows(lease, next)
				lease = next
			}
			c.release(c.b, lease)
			c.tokenRises(lease, c.acquire(c.a, c.request(lease.Name)))
		},
	},
	{
		name: "handoff/by name and ID", needs: canHandOver,
		says: "Only from.Name and from.ID matter.",
		run: func(c *check) {
			from := c.acquire(c.a, c.request(c.name()))
			next := c.handOver(c.b, driver.Lease{Name: from.Name, ID: from.ID}, c.request(from.Name))
			c.follows(from, next)
			alike := next
			alike.ID = newID()
			c.notHandedOver(c.a, alike, c.request(next.Name))
			c.stillHeldBy("after a handoff from a lease with the holder's owner and token and another's ID", next)
		},
	},
	{
		name: "handoff/data", needs: canHandOver,
		says: "HandOver does what TryAcquire does: Data replaces the data stored with the lock; nil keeps the stored data.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			for _, step := range []struct{ bring, want []byte }{
				{nil, nil}, {[]byte("one"), []byte("one")}, {nil, []byte("one")}, {[]byte("two"), []byte("two")}, {[]byte{}, nil},
			} {
				req := c.request(lease.Name)
				req.Data = slices.Clone(step.bring)
				lease = c.handOver(c.b, lease, req)
				if len(req.Data) > 0 {
					req.Data[0]++ // the driver has its own copy
				}
				c.dataIs("handed over to a request with data "+quoteOrNil(step.bring), lease.Name, step.want)
			}
		},
	},
	{
		name: "handoff/free", needs: canHandOver,
		says: "If from does not hold the lock (any more), the lock is granted if it is free.",
		run: func(c *check) {
			name := c.name()
			first := c.handOver(c.a, c.stranger(name), c.request(name)) // there is no record
			c.release(c.a, first)
			second := c.handOver(c.b, first, c.request(name)) // from was the last holder
			c.follows(first, second)
			c.release(c.b, second)
			c.follows(second, c.handOver(c.a, first, c.request(name))) // from was one before
		},
	},
	{
		name: "handoff/held", needs: canHandOver,
		says: "If from does not hold the lock (any more), HandOver is refused with a *HeldError if another holds it.",
		run:  handOverRefused,
	},
	{
		name: "handoff/repeat", needs: canHandOver,
		says: "If req.ID holds the lock, the call is a repeat: it returns the same token and leaves the data alone.",
		run: func(c *check) {
			from := c.acquire(c.a, c.request(c.name()))
			req := c.request(from.Name)
			req.Data = []byte("first")
			next := c.handOver(c.a, from, req)
			req.Data = []byte("second")
			for _, l := range []driver.Locker{c.a, c.b} {
				if again := c.handOver(l, from, req); again.Token != next.Token {
					c.errorf("the repeat got token %d, the first call got %d", again.Token, next.Token)
				}
				if again := c.acquire(l, req); again.Token != next.Token {
					c.errorf("TryAcquire after HandOver, with the same ID, got token %d, HandOver got %d", again.Token, next.Token)
				}
				c.dataIs("held, after repeats", from.Name, []byte("first"))
			}
			c.follows(from, next)
		},
	},
	{
		name: "handoff/to itself", needs: canHandOver,
		says: "If req.ID holds the lock, the call is a repeat, also if from is that very lease.",
		run: func(c *check) {
			req := c.request(c.name())
			lease := c.acquire(c.a, req)
			if again := c.handOver(c.b, lease, req); again.Token != lease.Token {
				c.errorf("a handoff from a lease to itself got token %d, it had %d", again.Token, lease.Token)
			}
			c.stillHeldBy("after a handoff to itself", lease)
			c.release(c.a, lease)
			other := c.acquire(c.b, c.request(req.Name))
			c.notHandedOver(c.a, lease, req)
			c.stillHeldBy("after a handoff of its predecessor to itself", other)
		},
	},
	{
		name: "handoff/broken", needs: canHandOver | canBreak,
		says: "A lock held by from counts as free, broken or not.",
		run: func(c *check) {
			from := c.acquire(c.a, c.request(c.name()))
			c.breakLock(from.Name)
			next := c.handOver(c.a, from, c.request(from.Name))
			if r := c.inspect(c.b, from.Name); r.Broken {
				c.errorf("the next holder's lock is shown as broken")
			}
			c.follows(from, next)
		},
	},
	{
		name: "handoff/replace", needs: canHandOver,
		says: "In all else HandOver is TryAcquire: the lock is granted if req.Replace is set and still equals the record's Revision.",
		run: func(c *check) {
			holder := c.acquire(c.a, c.request(c.name()))
			req := c.request(holder.Name)
			req.Replace = driver.NewRevision("no backend's revision")
			c.notHandedOver(c.b, c.stranger(holder.Name), req)
			if req.Replace = c.inspect(c.b, holder.Name).Revision; req.Replace.IsZero() {
				c.inPartOnly("the driver's records have no Revision")
				return
			}
			next := c.handOver(c.b, c.stranger(holder.Name), req)
			c.follows(holder, next)
			late := c.request(holder.Name)
			late.Replace = req.Replace
			c.notHandedOver(c.a, holder, late)
			c.stillHeldBy("after a replacement", next)
		},
	},
	{
		name: "handoff/arguments", needs: canHandOver,
		says: "Only from.Name, which must be req.Name, and from.ID matter. Arguments are checked first, and a call with an invalid one changes " +
			"nothing.",
		run: func(c *check) {
			from, other := c.acquire(c.a, c.request(c.name())), c.acquire(c.a, c.request(c.name()))
			req := c.request(from.Name)
			try := func(what, field string, from driver.Lease, req driver.Request) {
				_, err := c.a.Capabilities().HandOverer.HandOver(c.ctx, from, req)
				c.invalid("HandOver "+what, field, err)
			}
			try("from a lease of another lock", "from.Name", other, req)
			try("from a lease without a name", "from.Name", driver.Lease{ID: from.ID}, req)
			try("from a lease without an ID", "from.ID", driver.Lease{Name: from.Name}, req)
			bad := req
			bad.ID = driver.LeaseID{}
			try("to a request without an ID", "ID", from, bad)
			bad = req
			bad.TTL = 0
			try("to a request without a TTL", "TTL", from, bad)
			for _, lease := range []driver.Lease{from, other} {
				c.stillHeldBy("after requests that are not valid", lease)
			}
		},
	},
	{
		name: "handoff/odd names", needs: canHandOver,
		says: "Names are compared byte for byte, whatever characters they have, also in a handoff.",
		run: func(c *check) {
			tag := c.name()
			var leases []driver.Lease
			for _, odd := range []string{"$kid", "$$NOW", "a.b", "\x00", "\u00e9", "e\u0301", "A", "a", "/", "..", "%2F", "*"} {
				leases = append(leases, c.acquire(c.a, c.request(tag+odd)))
			}
			for i, lease := range leases {
				leases[i] = c.handOver(c.b, lease, c.request(lease.Name))
			}
			for _, lease := range leases {
				c.stillHeldBy("after locks with similar names were handed over", lease)
			}
		},
	},
	{
		name: "handoff/IDs taken literally", needs: canHandOver,
		says: "An ID is taken as it is, whatever it means in the backend's own language.",
		run: func(c *check) {
			for _, text := range []string{"$kid", "$$id", "$$from", "$$ROOT", "$", "$.a", `{"$ne":""}`, "\n", "*", "%", "null", "' OR ''='"} {
				c.handsOverFromAnyID(text)
			}
		},
	},
}

// handOver expects that the request is granted.
func (c *check) handOver(l driver.Locker, from driver.Lease, req driver.Request) driver.Lease {
	lease, err := l.Capabilities().HandOverer.HandOver(c.ctx, from, req)
	if err != nil {
		c.fatalf("HandOver of %q, which should be granted: %v", short(req.Name), err)
	}
	return lease
}

// notHandedOver expects that the handoff is refused because another holds the lock.
func (c *check) notHandedOver(l driver.Locker, from driver.Lease, req driver.Request) driver.Record {
	lease, err := l.Capabilities().HandOverer.HandOver(c.ctx, from, req)
	var held *driver.HeldError
	if !errors.As(err, &held) {
		c.fatalf("HandOver of %q, which another holds: got lease %v, error %v; want a *HeldError", short(req.Name), lease, err)
	}
	return held.Record
}

// stranger returns a lease that was never granted.
func (c *check) stranger(name string) driver.Lease {
	return driver.Lease{Name: name, ID: newID(), Token: 1, TTL: c.long()}
}

// follows expects that next holds the lock, and that nothing done with from changes that.
func (c *check) follows(from, next driver.Lease) {
	c.tokenRises(from, next)
	c.checkHeldRecord(c.inspect(c.b, next.Name), next)
	for _, l := range []driver.Locker{c.a, c.b} {
		c.lost("Renew of a lease that was handed over", errOf(l.Renew(c.ctx, from)))
		if batch := l.Capabilities().BatchRenewer; batch != nil {
			c.lost("RenewBatch of a lease that was handed over", errOf(batch.RenewBatch(c.ctx, []driver.Lease{from}))[0])
		}
		c.release(l, from)
	}
	c.stillHeldBy("after renewals and releases of the lease before it", next)
}

func handsOverWholeTTL(c *check) {
	for _, before := range []time.Duration{c.cfg.TTL, c.long()} {
		first := c.brief(c.name())
		first.TTL = before
		from := c.acquire(c.a, first)
		c.pass(c.ctx, c.cfg.TTL/2)
		req := c.brief(first.Name)
		sent := c.now()
		next := c.handOver(c.b, from, req)
		last := c.takeOver(c.a, c.request(req.Name), sent.Add(req.TTL), c.now().Add(req.TTL))
		c.tokenRises(next, last)
	}
}

func handOverRefused(c *check) {
	from := c.acquire(c.a, c.request(c.name()))
	c.release(c.a, from)
	req := c.request(from.Name)
	req.Data = []byte("holder's")
	holder := c.acquire(c.a, req)
	for _, lease := range []driver.Lease{from, c.stranger(from.Name)} {
		for _, l := range []driver.Locker{c.a, c.b} {
			other := c.request(from.Name)
			other.Data = []byte("other's")
			c.checkHeldRecord(c.notHandedOver(l, lease, other), holder)
		}
	}
	c.checkHeldRecord(c.inspect(c.b, from.Name), holder)
	c.dataIs("held, after handoffs from leases that do not hold it", from.Name, req.Data)
	c.stillHeldBy("after handoffs from leases that do not hold it", holder)
}

// handsOverFromAnyID checks an ID that looks like part of a query. A backend that accepts only
// UUIDs refuses it with ErrInvalid.
func (c *check) handsOverFromAnyID(text string) {
	holder := c.acquire(c.a, c.request(c.name()))
	odd := driver.Lease{Name: holder.Name, ID: driver.NewLeaseID(text)}
	_, err := c.b.Capabilities().HandOverer.HandOver(c.ctx, odd, c.request(odd.Name))
	if errors.Is(err, driver.ErrInvalid) {
		return
	}
	if !errors.Is(err, driver.ErrHeld) {
		c.fatalf("HandOver from an ID like %q, while another holds the lock: got error %v, want ErrHeld", text, err)
	}
	req := c.request(holder.Name)
	req.ID = driver.NewLeaseID(text)
	next := c.handOver(c.b, holder, req)
	c.follows(holder, next)
	c.follows(next, c.handOver(c.a, next, c.request(next.Name)))
}
