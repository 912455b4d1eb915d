package lockertest

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// checkFinding checks what a Checker reports.
func (c *check) checkFinding(f driver.Finding) {
	c.checkText("Check: the finding", fmt.Sprintf("%+v", f), "")
	if f.Subject == "" || f.Detail == "" || f.Level > driver.LevelWrong {
		c.errorf("Check reported a finding without a subject, a detail or a level: %+v", f)
	}
	if f.Level >= driver.LevelDoubtful && f.Remedy == "" {
		c.errorf("Check reported that %q is %v, without a remedy", f.Subject, f.Level)
	}
}

var checkerClauses = []clause{
	{
		name: "checker/Check", needs: canCheck,
		says: "Check calls report for each thing that it has examined, also for what is right. It changes nothing on the backend.",
		run: func(c *check) {
			held, free := c.acquire(c.a, c.request(c.name())), c.acquire(c.a, c.request(c.name()))
			c.release(c.a, free)
			n := 0
			if err := c.b.Capabilities().Checker.Check(c.ctx, func(driver.Finding) { n++ }); err != nil {
				c.errorf("Check: %v", err)
			}
			if n == 0 {
				c.errorf("Check reported nothing")
			}
			c.stillHeldBy("after Check", held)
			if r := c.inspect(c.b, free.Name); r.State != driver.StateFree || c.can(keepsToken) && r.Token != free.Token {
				c.errorf("after Check a free lock is %v with token %d, want token %d", r.State, r.Token, free.Token)
			}
		},
	},
	{
		name: "checker/RemoveProbe", needs: canCheck,
		says: "RemoveProbe removes the record of a lock that is free and has no data. A record that is missing is no error.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			c.release(c.a, lease)
			remove := func(what string) {
				if err := c.b.Capabilities().Checker.RemoveProbe(c.ctx, lease.Name); err != nil {
					c.fatalf("%s: %v", what, err)
				}
			}
			// The next token may come from the backend's clock, so the record may stay until that has passed the last one.
			for over := c.now().Add(c.clockStep()); ; c.pass(c.ctx, 10*time.Millisecond) {
				remove("RemoveProbe")
				r := c.inspect(c.b, lease.Name)
				if r.State == driver.StateFree && r.Token == 0 && r.Owner == "" && len(r.History) == 0 {
					break
				}
				if c.now().After(over) {
					c.errorf("RemoveProbe has left a record: %+v", r)
					break
				}
			}
			remove("RemoveProbe of a name without a record")
			next := c.acquire(c.b, c.request(lease.Name))
			c.tokenRises(lease, next)
			c.stillHeldBy("after RemoveProbe", next)
		},
	},
	{
		name: "checker/keeps", needs: canCheck | keepsData,
		says: "A record that is held or has data is kept.",
		run: func(c *check) {
			remove := func(name string) {
				if err := c.b.Capabilities().Checker.RemoveProbe(c.ctx, name); err != nil {
					c.errorf("RemoveProbe of a record that is kept: %v", err)
				}
			}
			held := c.acquire(c.a, c.request(c.name()))
			remove(held.Name)
			c.stillHeldBy("after RemoveProbe", held)
			req := c.request(c.name())
			req.Data = []byte("kept")
			lease := c.acquire(c.a, req)
			c.release(c.a, lease)
			remove(lease.Name)
			if r := c.inspect(c.b, lease.Name); string(r.Data) != "kept" || r.Token != lease.Token {
				c.errorf("after RemoveProbe the data of a free lock are %q, its token %d; want %q and %d", r.Data, r.Token, "kept", lease.Token)
			}
		},
	},
}
