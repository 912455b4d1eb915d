package lockertest

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var freeTimeClauses = []clause{
	{
		name: "free/token", needs: keepsToken, waits: true,
		says: "Info.Free.Token: Inspect returns the token of a lock that was released or whose lease has expired.",
		run: func(c *check) {
			c.freed(func(how string, lease driver.Lease, r driver.Record) {
				if r.Token != lease.Token {
					c.errorf("the token of a lock that %s is %d, want %d", how, r.Token, lease.Token)
				}
			})
		},
	},
	{
		name: "free/data", needs: keepsData, waits: true,
		says: "Info.Free.Data: Inspect returns the data of a lock that was released or whose lease has expired. The next holder finds them.",
		run: func(c *check) {
			c.freed(func(how string, lease driver.Lease, r driver.Record) {
				if string(r.Data) != freeData {
					c.errorf("the data of a lock that %s are %s, want %q", how, quoteOrNil(r.Data), freeData)
				}
				next := c.takeOver(c.b, c.request(lease.Name), time.Time{}, c.now())
				c.dataIs("held by the next, after a lock that "+how, lease.Name, []byte(freeData))
				c.release(c.b, next)
			})
		},
	},
	{
		name: "free/stays", needs: keepsToken | canAdvance, waits: true,
		says: "Info.Free.RemovedAfter is how long after the end of the last lease the backend may remove the record. 0 means that it does not " +
			"do so by itself.",
		run: func(c *check) {
			stays := 3 * 365 * 24 * time.Hour
			if after := c.info.Free.RemovedAfter; after > 0 {
				stays = after / 2
			}
			lease := c.acquire(c.a, c.request(c.name()))
			c.release(c.a, lease)
			c.pass(c.ctx, stays)
			if r := c.inspect(c.b, lease.Name); r.State != driver.StateFree || r.Token != lease.Token {
				c.errorf("%s after its release a lock is %v with token %d, want free with token %d",
					driver.FormatDuration(stays), r.State, r.Token, lease.Token)
			}
		},
	},
}

// freeClauses are about a lock that is free after a release.
var freeClauses = []clause{
	{
		name: "release/keeps token and data", needs: keepsData,
		says: "Info.Free.Data: the record's data survive a release. Its token does not change.",
		run: func(c *check) {
			req := c.request(c.name())
			req.Data = []byte("kept")
			lease := c.acquire(c.a, req)
			c.release(c.a, lease)
			r := c.inspect(c.b, req.Name)
			if r.State != driver.StateFree {
				c.errorf("after Release the state is %v, want free", r.State)
			}
			if string(r.Data) != "kept" {
				c.errorf("after Release the data are %q, want %q", r.Data, "kept")
			}
			if r.Token != 0 && r.Token != lease.Token {
				c.errorf("after Release the token is %d, want %d, that of the last grant (or 0, if unknown)", r.Token, lease.Token)
			}
			c.tokenRises(lease, c.acquire(c.b, c.request(req.Name)))
		},
	},
}

const freeData = "kept while nobody holds the lock"

// freed calls look with the record of a lock that was released, and of one whose lease has expired.
func (c *check) freed(look func(how string, lease driver.Lease, r driver.Record)) {
	for _, how := range []string{"was released", "has expired"} {
		req := c.brief(c.name())
		req.Data = []byte(freeData)
		lease := c.acquire(c.a, req)
		c.inspect(c.b, req.Name) // a Locker that judges by observation begins here
		if how == "was released" {
			c.release(c.a, lease)
		}
		for latest := c.now().Add(req.TTL); ; c.pass(c.ctx, req.TTL/10) {
			r := c.inspect(c.b, req.Name)
			if r.State == driver.StateFree {
				look(how, lease, r)
				break
			}
			if late := c.now().Sub(latest); late > c.cfg.Slack {
				c.fatalf("a lock that %s is still shown as %v %v after its lease ended", how, r.State, late)
			}
		}
	}
}
