package lockertest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// lastingClauses are about errors that stay until a person changes something.
var lastingClauses = []clause{
	{
		name: "lasting/denied", needs: canDeny, alone: true,
		says: "ErrDenied: the backend refused the request, and nothing was changed. The method returns it at once. As soon as the backend " +
			"allows requests again, all is as before.",
		run: func(c *check) {
			c.refused("denied", c.cfg.Deny, func(method string, held bool, err error) bool {
				return errors.Is(err, driver.ErrDenied) || method == "Leave" && err == nil // a waiter without a position
			})
		},
	},
	{
		name: "lasting/damaged", needs: canDamage,
		says: "ErrDamaged: the lock's record cannot be used, so nothing was changed. A method that needs the record returns it at once. Other " +
			"locks are as usual, and so is this one as soon as its record is mended.",
		run: func(c *check) {
			c.refused("damaged", c.cfg.Damage, func(method string, held bool, err error) bool {
				switch {
				case errors.Is(err, driver.ErrDamaged):
					return true
				case method == "TryAcquire":
					return held && errors.Is(err, driver.ErrHeld) // of a store that decides without the record
				case method == "Inspect" || method == "InspectBatch" || method == "List" || method == "ReadData":
					return false
				}
				lost := held && errors.Is(err, driver.ErrLost)
				return driver.OutcomeKnown(err) && !lost // a request by the ID of a lease may do without the record
			})
		},
	},
}

// refused calls every method while the store refuses requests, about a lock that is held and about one that is free. allowed
// reports whether a method may return an error.
func (c *check) refused(what string, refuse func(context.Context, string) (func(), error), allowed func(string, bool, error) bool) {
	meaning := map[string]error{"denied": driver.ErrDenied, "damaged": driver.ErrDamaged}[what]
	for _, held := range []bool{true, false} {
		req := c.request(c.name())
		req.Data = []byte("kept")
		lease := c.acquire(c.a, req)
		if !held {
			c.release(c.a, lease)
		}
		neighbour := c.acquire(c.a, c.request(c.name()))
		before := c.inspect(c.b, req.Name)
		end, err := refuse(c.ctx, req.Name)
		if err != nil {
			c.fatalf("lockertest: the record cannot be %s: %v", what, err)
		}
		other := c.request(req.Name)
		if c.can(canQueue) {
			other = c.waiting(c.a, req.Name)
		}
		for _, m := range append(c.methodsOf(c.a, other, lease), listing(c.a, req.Name)...) {
			if what == "damaged" && held && slices.Contains(needLease, m.name) {
				continue
			}
			start := time.Now()
			err := m.call(c.ctx)
			if !allowed(m.name, held, err) {
				c.errorf("%s of a lock (held: %v), %s: got error %v, want one that matches %q", m.name, held, what, err, meaning)
			}
			if took := time.Since(start); took > c.soon {
				c.errorf("%s of a lock that is %s returned after %v", m.name, what, took)
			}
		}
		if what == "damaged" {
			c.neighbour(req.Name, neighbour)
		}
		end()
		after := c.inspect(c.b, req.Name)
		if after.State != before.State || after.Token != before.Token || after.Owner != before.Owner ||
			string(after.Data) != string(before.Data) {
			c.errorf("after requests that were %s the lock is %+v, and was %+v", what, after, before)
		}
		if held {
			c.stillHeldBy("after requests that were "+what, lease)
			c.release(c.a, lease)
			other.Waiter, other.QueueFor = "", 0 // a position of the request that was refused would come first
		}
		c.tokenRises(lease, c.acquire(c.a, other))
		c.renew(c.a, neighbour)
	}
}

// needLease are the methods that change a lock that is held, and may need nothing of its record but the lease.
var needLease = []string{"Release", "ReleaseBatch", "Break", "BreakNow", "WriteData"}

// neighbour expects that a lock can be used while the record of another one is damaged, also in one batch with it.
func (c *check) neighbour(damaged string, lease driver.Lease) {
	c.renew(c.b, lease)
	if all := c.a.Capabilities(); all.BatchInspector != nil {
		records, errs := all.BatchInspector.InspectBatch(c.ctx, "", []string{damaged, lease.Name})
		if errs[1] != nil || records[1].State != driver.StateHeld {
			c.errorf("InspectBatch beside a damaged record: the other lock is %v, error %v", records[1].State, errs[1])
		}
	}
}
