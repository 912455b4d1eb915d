package lockertest

import (
	"context"
	"errors"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// oddEnds end the names of locks in a batch.
var oddEnds = []string{"$kid", "$$NOW", "a.b", "\x00", "\u00e9", "e\u0301", "A", "a", strings.Repeat("x", 30)}

var batchClauses = []clause{
	{
		name: "batch/extends", needs: canRenewBatch, waits: true,
		says: "RenewBatch renews each lease as Renew does.",
		run: func(c *check) {
			c.extends(func(l driver.Lease, _ driver.Request) {
				c.renewBatch([]driver.Lease{c.acquire(c.a, c.request(c.name())), l}, nil, nil)
			})
		},
	},
	{
		name: "batch/never shortens", needs: canRenewBatch, waits: true,
		says: "RenewBatch renews each lease as Renew does; it never shortens it.",
		run: func(c *check) {
			c.neverShortens(func(l driver.Lease, _ driver.Request) {
				c.renewBatch([]driver.Lease{c.acquire(c.a, c.request(c.name())), l}, nil, nil)
			})
		},
	},
	{
		name: "batch/expired but untaken", needs: canRenewBatch, waits: true,
		says: "RenewBatch renews each lease as Renew does, also one that has expired, if nobody has taken the lock since.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.brief(c.name()))
			live := c.acquire(c.a, c.request(c.name()))
			c.expire(lease.TTL)
			c.renewBatch([]driver.Lease{lease, live}, nil, nil)
		},
	},
	{
		name: "batch/mixed", needs: canRenewBatch,
		says: "RenewBatch returns one result for each lease, in order. Every error has the meaning that it has for Renew.",
		run: func(c *check) {
			live := func() driver.Lease { return c.acquire(c.a, c.request(c.name())) }
			released, stale := live(), live()
			c.release(c.a, released)
			c.release(c.a, stale)
			successor := c.acquire(c.b, c.request(stale.Name))
			req := c.request(c.name())
			unknown := driver.Lease{Name: req.Name, ID: req.ID, Token: 1, TTL: req.TTL}
			nameless, badTTL := unknown, live()
			nameless.Name, badTTL.TTL = "", -1
			twice := live()
			lost, invalid := driver.ErrLost, driver.ErrInvalid
			c.renewBatch(
				[]driver.Lease{live(), released, live(), stale, unknown, nameless, live(), badTTL, twice, twice, successor},
				nil, lost, nil, lost, lost, invalid, nil, invalid, nil, nil, nil)
			c.stillHeldBy("after a batch with its predecessor and itself", successor)
			if r := c.inspect(c.a, unknown.Name); r.State != driver.StateFree {
				c.errorf("a batch with an unknown name left it %v", r.State)
			}
			c.renewBatch(nil)
		},
	},
	{
		name: "batch/broken", needs: canRenewBatch | canBreak,
		says: "RenewBatch renews each lease as Renew does: a broken one is lost, and the others are renewed.",
		run: func(c *check) {
			leases := []driver.Lease{c.acquire(c.a, c.request(c.name())), c.acquire(c.a, c.request(c.name())), c.acquire(c.a, c.request(c.name()))}
			c.breakLock(leases[1].Name)
			c.renewBatch(leases, nil, driver.ErrLost, nil)
		},
	},
	{
		name: "batch/many", needs: canRenewBatch,
		says: "RenewBatch renews many leases. It returns one result for each lease, in order.",
		run: func(c *check) {
			const n = 600
			leases := make([]driver.Lease, n)
			want := make([]error, n)
			c.each(n, func(i int) {
				leases[i] = c.acquire(c.a, c.request(c.name()))
				if i%7 == 0 {
					c.release(c.a, leases[i])
					want[i] = driver.ErrLost
				}
			})
			c.renewBatch(leases, want...)
		},
	},
	{
		name: "batch/odd names", needs: canRenewBatch,
		says: "Names are compared byte for byte, whatever characters they have, also in a batch.",
		run: func(c *check) {
			var leases []driver.Lease
			tag := c.name()
			for _, odd := range oddEnds {
				req := c.request(tag + odd)
				req.Owner = odd
				leases = append(leases, c.acquire(c.a, req))
			}
			c.renewBatch(leases, make([]error, len(leases))...)
		},
	},
	{
		name: "batch/context ended", needs: canRenewBatch,
		says: "RenewBatch returns one result for each lease, also when the context has ended.",
		run: func(c *check) {
			leases := []driver.Lease{c.acquire(c.a, c.request(c.name())), c.acquire(c.a, c.request(c.name()))}
			ctx, cancel := context.WithCancel(c.ctx)
			cancel()
			for _, err := range errOf(c.a.Capabilities().BatchRenewer.RenewBatch(ctx, leases)) {
				if !errors.Is(err, context.Canceled) {
					c.wrongf("got error %v, want one that wraps %v", err, context.Canceled)
				}
			}
			for _, lease := range leases {
				c.stillHeldBy("after a batch whose context had ended", lease)
			}
		},
	},
}

// renewBatch compares the results with what is wanted, one for each lease.
func (c *check) renewBatch(leases []driver.Lease, want ...error) {
	for i, err := range errOf(c.b.Capabilities().BatchRenewer.RenewBatch(c.ctx, leases)) {
		if !errors.Is(err, want[i]) {
			c.errorf("result %d of the batch is %v, want %v", i, err, want[i])
		}
	}
}
