package lockertest

import (
	"errors"

	"github.com/holdfast-go/holdfast/driver"
)

var stateClauses = []clause{
	{
		name: "state/kept",
		says: "Renew returns l with the State for the next request.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			for range 3 {
				lease = c.renewed(c.a, lease)
				lease = c.renewed(c.b, lease)
			}
			c.usable(lease)
		},
	},
	{
		name: "state/old",
		says: "l.State may be older than what the backend has: after a lost answer, or a request of another process.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			granted := lease
			for range 3 {
				lease = c.renewed(c.a, lease)
			}
			c.renewed(c.a, granted)
			c.renewed(c.b, granted)
			c.usable(granted)
		},
	},
	{
		name: "state/empty",
		says: "The State is empty if another process uses the lease.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			bare := lease
			bare.State = driver.LeaseState{}
			c.renewed(c.a, bare)
			c.renewed(c.b, bare)
			c.renewed(c.a, lease)
			c.usable(bare)
		},
	},
	{
		name: "state/of another lease",
		says: "If the State is not of this lease, the driver decides by name and ID, as with an empty State.",
		run: func(c *check) {
			first := c.acquire(c.a, c.request(c.name()))
			other := c.acquire(c.a, c.request(c.name()))
			c.release(c.a, first)
			lease := c.acquire(c.a, c.request(first.Name))
			for _, state := range []driver.LeaseState{first.State, other.State, driver.NewLeaseState("no State of any driver")} {
				lease.State = state
				c.renewed(c.a, lease)
				c.renewed(c.b, lease)
			}
			c.usable(lease)
			c.stillHeldBy("after the use of its State for another lock", other)
		},
	},
	{
		name: "state/lost",
		says: "ErrLost means that another has taken the lock. A State of before does not change that.",
		run: func(c *check) {
			granted := c.acquire(c.a, c.request(c.name()))
			lease := c.renewed(c.a, granted)
			bare := lease
			bare.State = driver.LeaseState{}
			c.release(c.b, bare)
			next := c.acquire(c.b, c.request(lease.Name))
			forged := lease
			forged.State = next.State
			for _, l := range []driver.Lease{granted, lease, bare, forged} {
				c.lost("Renew by the predecessor, whatever its State is", errOf(c.a.Renew(c.ctx, l)))
				if store := c.a.Capabilities().DataStore; store != nil {
					c.lost("WriteData by the predecessor", store.WriteData(c.ctx, l, []byte("x"), driver.DataRevision{Token: next.Token}))
				}
				c.release(c.a, l)
			}
			c.stillHeldBy("after renewals and releases by its predecessor", next)
		},
	},
	{
		name: "state/in a batch", needs: canRenewBatch,
		says: "RenewBatch returns one lease for each lease. Every result has the meaning that it has for Renew.",
		run: func(c *check) {
			batch := c.a.Capabilities().BatchRenewer
			old := []driver.Lease{c.acquire(c.a, c.request(c.name())), c.acquire(c.a, c.request(c.name())), c.acquire(c.a, c.request(c.name()))}
			leases := old
			for round := range 3 {
				renewed, errs := batch.RenewBatch(c.ctx, leases)
				if err := errors.Join(errs...); err != nil {
					c.fatalf("RenewBatch, round %d: %v", round, err)
				}
				leases = renewed
			}
			mixed := []driver.Lease{leases[0], old[1], old[2]}
			mixed[2].State = driver.LeaseState{}
			if err := errors.Join(errOf(batch.RenewBatch(c.ctx, mixed))...); err != nil {
				c.errorf("RenewBatch with a present, an old and an empty State: %v", err)
			}
			for _, lease := range mixed {
				c.usable(lease)
			}
		},
	},
}

// renewed expects success, and returns the lease for the next request.
func (c *check) renewed(l driver.Locker, lease driver.Lease) driver.Lease {
	next, err := l.Renew(c.ctx, lease)
	if err != nil {
		c.fatalf("Renew by the holder of %q: %v", short(lease.Name), err)
	}
	return next
}

// usable expects that a lease can be renewed, can write its data, twice with the same State, and is released.
func (c *check) usable(lease driver.Lease) {
	c.renewed(c.a, lease)
	if store := c.a.Capabilities().DataStore; store != nil {
		at := driver.DataRevision{Token: lease.Token}
		for _, text := range []string{"one", "two"} {
			if err := store.WriteData(c.ctx, lease, []byte(text), at); err != nil {
				c.errorf("WriteData by the holder of %q, write %d: %v", short(lease.Name), at.Next().Writes, err)
			}
			at = at.Next()
		}
		if err := store.WriteData(c.ctx, lease, []byte("one"), driver.DataRevision{Token: lease.Token}); !errors.Is(err, driver.ErrConflict) {
			c.errorf("WriteData with the revision of before: %v, want ErrConflict", err)
		}
		c.dataIs("still held", lease.Name, []byte("two"))
	}
	c.held(c.b, c.request(lease.Name))
	c.release(c.a, lease)
	c.acquire(c.b, c.request(lease.Name))
}

// checkRenewed compares a renewed lease with the one that the call was given.
func (c *check) checkRenewed(method string, given, got driver.Lease) {
	if got.State = given.State; got != given {
		c.errorf("%s(%v) returned another lease: %v, or another ID", method, given, got)
	}
}
