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
		says: "At most one holder at a time, and each grant's token is greater than that of every earlier grant, whatever the timing of " +
			"acquire, renew and release.",
		run: exclusion,
	},
}

// contest is one lock for which many goroutines compete. Only holders write its fields, between
// the reply of a grant and the call of the release.
type contest struct {
	name    string
	holders atomic.Int32
	last    atomic.Uint64 // token
	grants  atomic.Int32
	stale   atomic.Pointer[driver.Lease] // the lease that was released last
}

func exclusion(c *check) {
	const goroutines, rounds = 16, 25
	contests := []*contest{{name: c.name()}, {name: c.name()}}
	deadline := time.Now().Add(10 * time.Second)
	c.parallel(goroutines, func(_ int, l driver.Locker) {
		for range rounds {
			if time.Now().After(deadline) {
				return // the backend is slow; the results so far count
			}
			c.compete(contests[rand.IntN(len(contests))], l)
		}
	})
	for _, a := range contests {
		if a.grants.Load() == 0 {
			c.errorf("no attempt of %d was granted", goroutines*rounds/len(contests))
		}
	}
}

// compete makes one attempt. If it is granted, it renews and releases.
func (c *check) compete(a *contest, l driver.Locker) {
	lease, err := l.TryAcquire(c.ctx, c.request(a.name))
	if err != nil {
		if !errors.Is(err, driver.ErrHeld) {
			c.errorf("an attempt among many failed: %v", err)
		}
		if old := a.stale.Load(); old != nil { // late calls of a former holder have no effect
			c.lost("Renew of a released lease, while others compete for the lock", errOf(l.Renew(c.ctx, *old)))
			c.release(l, *old)
		}
		pause() // otherwise all rounds end before the first holder releases
		return
	}
	c.enter(a, lease)
	for range rand.IntN(3) {
		c.renew(l, lease)
		pause()
	}
	a.holders.Add(-1)
	c.release(l, lease)
	a.stale.Store(&lease)
}

// enter records a grant.
func (c *check) enter(a *contest, lease driver.Lease) {
	if n := a.holders.Add(1); n != 1 {
		c.errorf("%d hold the lock at once", n)
	}
	if last := a.last.Swap(lease.Token); last >= lease.Token {
		c.errorf("token %d was granted after token %d", lease.Token, last)
	}
	a.grants.Add(1)
}

// pause waits for a random time of up to half a millisecond.
func pause() { time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond) }
