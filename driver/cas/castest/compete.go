package castest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Competition is a lock for which clients compete while faults happen; see [Compete].
type Competition struct {
	// Lockers are the clients. Their requests have a time limit that is much shorter than TTL.
	Lockers []driver.Locker
	// TTL is that of the leases. The default is 1 min. It is longer than a fault, because a lease that has ended proves nothing.
	TTL time.Duration
	// Faults is how often Fault is called, with the rounds from 0.
	Faults int
	// Fault makes the store fail, and ends the fault: for example it kills the server and starts it again. Its error ends the test.
	Fault func(round int) error
}

const (
	// competed is the lock, and enough how many grants show that clients can take it.
	competed = "castest-compete"
	enough   = 20
)

// Compete has clients take, renew and release one lock while faults happen. It checks the history: no two clients hold the lock at
// once, tokens rise, and no client loses its lease. Before the first fault and after each one there are grants, within two TTLs:
// a lock that was granted without an answer is held until its lease ends. Nothing else should use the lock castest-compete.
//
// Unlike the faults of [Faulty], those of a competition are real: a crash of the server, a [Proxy], a partition. What its clients
// get may be an unknown outcome, so it complements the conformance suite.
func Compete(tb testing.TB, c Competition) {
	tb.Helper()
	if c.TTL == 0 {
		c.TTL = time.Minute
	}
	ctx, stop := context.WithCancel(tb.Context())
	history := &competition{tb: tb, ttl: c.TTL}
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop()
	for i, l := range c.Lockers {
		clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				history.try(ctx, l, fmt.Sprint(i, "-", n))
			}
		})
	}
	for round := range c.Faults {
		if !history.goesOn() {
			return
		}
		if err := c.Fault(round); err != nil {
			tb.Errorf("fault %d: %v", round, err)
			return
		}
	}
	history.goesOn()
	tb.Logf("%d grants", history.grants.Load())
}

// competition is the history of a lock, as its clients see it.
type competition struct {
	tb           testing.TB
	ttl          time.Duration
	holder       atomic.Pointer[string]
	last, grants atomic.Uint64
}

// try has one client take, renew and release the lock.
func (c *competition) try(ctx context.Context, l driver.Locker, client string) {
	id := driver.NewLeaseID(client + "-" + rand.Text())
	began := time.Now()
	lease, err := l.TryAcquire(ctx, driver.Request{Name: competed, ID: id, Owner: "client " + client, TTL: c.ttl})
	if err != nil {
		if !errors.Is(err, driver.ErrHeld) { // it may be held without an answer
			_ = l.Release(ctx, driver.Lease{Name: competed, ID: id})
		}
		time.Sleep(time.Millisecond)
		return
	}
	c.grants.Add(1)
	if !c.holder.CompareAndSwap(nil, &client) && time.Since(began) < c.ttl {
		c.tb.Errorf("%s was granted the lock, and another client holds it", client)
	}
	if before := c.last.Swap(lease.Token); lease.Token <= before {
		c.tb.Errorf("token %d after %d", lease.Token, before)
	}
	if _, err = l.Renew(ctx, lease); errors.Is(err, driver.ErrLost) && time.Since(began) < c.ttl {
		c.tb.Errorf("%s has lost the lock: %v", client, err)
	}
	c.holder.Store(nil)
	for l.Release(ctx, driver.Lease{Name: competed, ID: id}) != nil && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
}

// goesOn waits until the lock is granted again and again.
func (c *competition) goesOn() bool {
	before, limit := c.grants.Load(), 2*c.ttl
	for end := time.Now().Add(limit); c.grants.Load() < before+enough; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			c.tb.Errorf("%d grants within %v, want %d", c.grants.Load()-before, limit, enough)
			return false
		}
	}
	return true
}
