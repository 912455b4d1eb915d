package lockertest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var inspectBatchClauses = []clause{
	{
		name: "inspectbatch/as Inspect", needs: canInspectBatch,
		says: "InspectBatch returns for each name what Inspect does, but without the data. Facts about a held lock that would cost a call of " +
			"their own may stay unknown.",
		run: func(c *check) {
			names := []string{c.name(), c.name(), c.name()}
			req := c.request(names[0])
			req.Data = []byte("data")
			lease := c.acquire(c.a, req)
			c.renew(c.a, lease)
			c.release(c.a, c.acquire(c.a, c.request(names[1])))
			if breaker := c.a.Capabilities().Breaker; breaker != nil {
				broken := c.acquire(c.a, c.request(c.name()))
				if err := breaker.Break(c.ctx, broken.Name, driver.BreakAnybody()); err != nil {
					c.fatalf("Break: %v", err)
				}
				names = append(names, broken.Name)
			}
			for _, l := range []driver.Locker{c.a, c.b} {
				for i, r := range c.inspectBatch(l, names) {
					c.sameAsInspect(r, c.inspect(l, names[i]))
				}
			}
			c.stillHeldBy("after InspectBatch", lease)
		},
	},
	{
		name: "inspectbatch/expired", needs: canInspectBatch, waits: true,
		says: "InspectBatch returns for each name what Inspect does: a lock whose lease has ended is free.",
		run: func(c *check) {
			ended := c.acquire(c.a, c.brief(c.name()))
			live := c.request(c.name())
			live.TTL = c.allowed(24 * time.Hour)
			c.acquire(c.a, live)
			c.inspect(c.b, ended.Name) // a Locker that judges expiry by observation begins here
			c.expire(ended.TTL)
			c.eventually("InspectBatch shows a lock as free whose lease has ended", func() bool {
				return c.inspectBatch(c.b, []string{live.Name, ended.Name})[1].State == driver.StateFree
			})
		},
	},
	{
		name: "inspectbatch/order", needs: canInspectBatch,
		says: "InspectBatch returns one record and one error for each name, in order. Names may occur twice.",
		run: func(c *check) {
			held, other, free, never := c.acquire(c.a, c.request(c.name())), c.acquire(c.a, c.request(c.name())),
				c.acquire(c.a, c.request(c.name())), c.name()
			c.release(c.a, free)
			want := map[string]driver.State{held.Name: driver.StateHeld, other.Name: driver.StateHeld}
			names := []string{never, held.Name, free.Name, other.Name, held.Name, never, free.Name, held.Name}
			for i, r := range c.inspectBatch(c.b, names) {
				c.isInState(r, max(want[names[i]], driver.StateFree))
			}
			c.inspectBatch(c.b, nil)
		},
	},
	{
		name: "inspectbatch/many", needs: canInspectBatch,
		says: "InspectBatch reads many records. It returns one for each name, in order.",
		run: func(c *check) {
			const n, used = 2500, 60
			tag := c.name()
			names := make([]string, n)
			want := map[string]driver.State{}
			for i := range names {
				names[i] = tag + strings.Repeat("x", i%40) + c.name()
			}
			c.each(used, func(i int) {
				name := names[i*(n/used)]
				lease := c.acquire(c.a, c.request(name))
				if i%2 == 0 {
					c.release(c.a, lease)
				}
			})
			for i := 1; i < used; i += 2 {
				want[names[i*(n/used)]] = driver.StateHeld
			}
			for i, r := range c.inspectBatch(c.b, names) {
				c.isInState(r, max(want[names[i]], driver.StateFree))
			}
		},
	},
	{
		name: "inspectbatch/odd names", needs: canInspectBatch,
		says: "Names are compared byte for byte, whatever characters they have, also in a batch.",
		run: func(c *check) {
			tag := c.name()
			var names []string
			for i, odd := range []string{"$kid", "$$NOW", "a.b", "\x00", "\u00e9", "e\u0301", "A", "a", "/", "..", "%2F", "*", ".", "(", "a/b",
				"=41"} {
				names = append(names, tag+odd)
				if i%2 == 0 {
					c.acquire(c.a, c.request(tag+odd))
				}
			}
			for i, r := range c.inspectBatch(c.b, names) {
				c.isInState(r, []driver.State{driver.StateHeld, driver.StateFree}[i%2])
			}
		},
	},
	{
		name: "inspectbatch/context ended", needs: canInspectBatch,
		says: "InspectBatch returns one record and one error for each name, also when the context has ended.",
		run: func(c *check) {
			names := []string{c.name(), c.acquire(c.a, c.request(c.name())).Name}
			ctx, cancel := context.WithCancel(c.ctx)
			cancel()
			_, errs := c.a.Capabilities().BatchInspector.InspectBatch(ctx, "", names)
			for _, err := range errs {
				if !errors.Is(err, context.Canceled) {
					c.wrongf("got error %v, want one that wraps %v", err, context.Canceled)
				}
			}
		},
	},
}

// inspectBatch expects success for all names.
func (c *check) inspectBatch(l driver.Locker, names []string) []driver.Record {
	records, errs := l.Capabilities().BatchInspector.InspectBatch(c.ctx, "", names)
	for i, err := range errs {
		if err != nil {
			c.fatalf("InspectBatch, of %q: %v", short(names[i]), err)
		}
		if records[i].Data != nil {
			c.errorf("InspectBatch, of %q: data %s, want none", short(names[i]), quoteOrNil(records[i].Data))
		}
	}
	return records
}

// isInState expects the state of a record from InspectBatch.
func (c *check) isInState(r driver.Record, want driver.State) {
	if r.State != want {
		c.errorf("InspectBatch shows %q as %v, want %v", short(r.Name), r.State, want)
	}
}

// sameAsInspect compares a record from InspectBatch with one that Inspect returned just after it.
func (c *check) sameAsInspect(batch, single driver.Record) {
	c.isInState(batch, single.State)
	differ := func(field string, unknown bool, got, want any) {
		if !unknown && got != want {
			c.errorf("InspectBatch says of %q, which is %v, %s %v, and Inspect %v", short(batch.Name), single.State, field, got, want)
		}
	}
	differ("owner", batch.Owner == "", batch.Owner, single.Owner)
	differ("token", batch.Token == 0, batch.Token, single.Token)
	differ("TTL", batch.TTL == 0, batch.TTL, single.TTL)
	differ("AcquiredAt", batch.AcquiredAt.IsZero(), batch.AcquiredAt.UTC(), single.AcquiredAt.UTC())
	differ("RenewedAt", batch.RenewedAt.IsZero(), batch.RenewedAt.UTC(), single.RenewedAt.UTC())
	differ("Revision", batch.Revision.IsZero(), batch.Revision, single.Revision)
	differ("Broken", single.State == driver.StateUnknown, batch.Broken, single.Broken)
	differ("RemainingKnown", !batch.RemainingKnown, true, single.RemainingKnown)
	if batch.RemainingKnown && single.RemainingKnown && (batch.Remaining < single.Remaining ||
		batch.Remaining > single.Remaining+c.cfg.Slack) {
		c.errorf("InspectBatch says that %v remain of %q, Inspect just after it %v", batch.Remaining, short(batch.Name), single.Remaining)
	}
}
