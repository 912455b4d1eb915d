package lockertest

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var raceClauses = []clause{
	{
		name: "race/exclusion",
		says: "At most one holder at a time, and each grant's token is greater than that of every earlier grant, whatever the timing of acquire, renew, release and hand-over.",
		run:  exclusion,
	},
}

// arena is one lock that many fight for. What it notes is written by holders
// only, between the reply of a grant and the call of the release.
type arena struct {
	name    string
	holders atomic.Int32
	last    atomic.Uint64 // token
	grants  atomic.Int32
	stale   atomic.Pointer[driver.Lease] // one that was released
}

func exclusion(c *check) {
	const goroutines, rounds = 16, 25
	arenas := []*arena{{name: c.name()}, {name: c.name()}}
	deadline := time.Now().Add(10 * time.Second)
	c.parallel(goroutines, func(_ int, l driver.Locker) {
		for range rounds {
			if time.Now().After(deadline) {
				return // a slow backend; what was seen so far counts
			}
			c.fight(arenas[rand.IntN(len(arenas))], l)
		}
	})
	for _, a := range arenas {
		if a.grants.Load() == 0 {
			c.errorf("nobody got the lock in %d attempts", goroutines*rounds/len(arenas))
		}
	}
}

func (c *check) fight(a *arena, l driver.Locker) {
	lease, err := c.attempt(a, l)
	if err != nil {
		if !errors.Is(err, driver.ErrHeld) {
			c.errorf("an attempt among many failed: %v", err)
		}
		if old := a.stale.Load(); old != nil { // late calls of a predecessor do no harm
			c.lost("Renew of a released lease, while others fight for the lock", l.Renew(c.ctx, *old))
			c.release(l, *old)
		}
		pause() // or all rounds are over before the first holder is
		return
	}
	c.enter(a, lease)
	for range rand.IntN(3) {
		c.renew(l, lease)
		pause()
	}
	if canHandOver(c.suite) && rand.IntN(3) == 0 {
		lease = c.passOn(a, l, lease)
	}
	a.holders.Add(-1)
	c.release(l, lease)
	a.stale.Store(&lease)
}

// attempt asks for the lock, at times from the lease that was released last: one that
// does not hold it.
func (c *check) attempt(a *arena, l driver.Locker) (driver.Lease, error) {
	old, req := a.stale.Load(), c.request(a.name)
	if old != nil && canHandOver(c.suite) && rand.IntN(3) == 0 {
		return l.Capabilities().HandOverer.HandOver(c.ctx, *old, req)
	}
	return l.TryAcquire(c.ctx, req)
}

// enter notes a grant.
func (c *check) enter(a *arena, lease driver.Lease) {
	if n := a.holders.Add(1); n != 1 {
		c.errorf("%d hold the lock at once", n)
	}
	if last := a.last.Swap(lease.Token); last >= lease.Token {
		c.errorf("token %d was granted after token %d", lease.Token, last)
	}
	a.grants.Add(1)
}

// passOn hands the lock over, so that nobody else can get it in between.
func (c *check) passOn(a *arena, l driver.Locker, lease driver.Lease) driver.Lease {
	a.holders.Add(-1)
	next := c.handOver(l, lease, c.request(a.name))
	c.enter(a, next)
	a.stale.Store(&lease)
	return next
}

func pause() { time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond) }
