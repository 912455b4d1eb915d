package lockertest

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var failOverClauses = []clause{
	{
		name: "failover/grants survive", needs: survivesFailover | canFailOver, alone: true,
		says: "GrantsSurvive: an acknowledged grant, its token and every acknowledged renewal and release are known after a fail-over, too.",
		run: func(c *check) {
			var holds []driver.Lease
			var ends []time.Time
			hold := func(l driver.Locker) {
				req := c.request(c.name())
				req.TTL = c.allowed(10 * time.Minute) // the fail-over and the calls after it may take long
				ends = append(ends, c.now().Add(req.TTL))
				holds = append(holds, c.acquire(l, req))
			}
			for range 3 {
				hold(c.a)
			}
			c.renew(c.b, holds[1])
			freed := c.acquire(c.a, c.request(c.name()))
			c.release(c.a, freed)
			hold(c.b) // as late as possible
			if err := c.cfg.FailOver(c.ctx); err != nil {
				c.fatalf("lockertest: Config.FailOver: %v", err)
			}
			for i := len(holds) - 1; i >= 0; i-- { // the latest grant first
				lease, other := holds[i], c.request(holds[i].Name)
				var again driver.Lease
				err := c.certain(func() (err error) { again, err = c.b.TryAcquire(c.ctx, other); return err })
				if err == nil && c.now().After(ends[i]) {
					c.inPartOnly("the fail-over took longer than a lease")
					continue
				}
				if !errors.Is(err, driver.ErrHeld) {
					c.errorf("after a fail-over another request for a held lock got %v, error %v; want ErrHeld, since it was granted with token %d",
						again, err, lease.Token)
					continue
				}
				if err := c.certain(func() error { return errOf(c.a.Renew(c.ctx, lease)) }); err != nil {
					c.errorf("after a fail-over the holder's renewal failed: %v", err)
				}
				if r := c.inspect(c.b, lease.Name); r.Token != 0 && r.Token != lease.Token {
					c.errorf("after a fail-over the token of a held lock is %d, want %d", r.Token, lease.Token)
				}
			}
			var next driver.Lease
			req := c.request(freed.Name)
			if err := c.certain(func() (err error) { next, err = c.a.TryAcquire(c.ctx, req); return err }); err != nil {
				c.fatalf("after a fail-over a lock that was released is not granted: %v", err)
			}
			c.tokenRises(freed, next)
		},
	},
}

// certain repeats a call until its outcome is known, as the calls after a fail-over need it.
func (c *check) certain(call func() error) error {
	for deadline := time.Now().Add(c.ownLimit); ; time.Sleep(20 * time.Millisecond) {
		err := call()
		if err == nil || driver.OutcomeKnown(err) {
			return err
		}
		if time.Now().After(deadline) {
			c.fatalf("%v after a fail-over the backend still does not answer: %v", c.ownLimit, err)
		}
	}
}
