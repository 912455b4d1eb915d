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

// Competition is about locks for which clients compete while faults happen; see [Compete].
type Competition struct {
	// Names are the locks. The default is one, castest-compete. Nothing else should use them.
	Names []string
	// Lockers are the clients. Their requests have a time limit that is much shorter than TTL.
	Lockers []driver.Locker
	// TTL is that of the leases. The default is 1 min. It is longer than a fault, because a lease that has ended proves nothing.
	TTL time.Duration
	// Faults is how often Fault is called, with the rounds from 0.
	Faults int
	// Fault makes the store fail, and ends the fault: for example it kills the server and starts it again. Its error ends the test.
	Fault func(round int) error
}

// enough is how many grants show that clients can take a lock.
const enough = 20

// Compete has clients take, renew and release locks while faults happen. It checks the history: no two clients hold a lock at once,
// its tokens rise, and no client loses its lease. Before the first fault and after each one there are grants of each lock, within two
// TTLs: one that was granted without an answer is held until its lease ends.
//
// Unlike the faults of [Faulty], those of a competition are real: a crash of the server, a [Proxy], a partition. What its clients
// get may be an unknown outcome, so it complements the conformance suite.
func Compete(tb testing.TB, c Competition) {
	tb.Helper()
	if c.TTL == 0 {
		c.TTL = time.Minute
	}
	if len(c.Names) == 0 {
		c.Names = []string{"castest-compete"}
	}
	ctx, stop := context.WithCancel(tb.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop()
	var all []*competition
	for _, name := range c.Names {
		one := &competition{tb: tb, name: name, ttl: c.TTL}
		all = append(all, one)
		for i, l := range c.Lockers {
			clients.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					one.try(ctx, l, fmt.Sprint(i, "-", n))
				}
			})
		}
	}
	for round := range c.Faults {
		if !goOn(all) {
			return
		}
		if err := c.Fault(round); err != nil {
			tb.Errorf("fault %d: %v", round, err)
			return
		}
	}
	goOn(all)
	for _, one := range all {
		tb.Logf("%d grants of %s", one.grants.Load(), one.name)
	}
}

// goOn waits until each lock is granted again and again.
func goOn(all []*competition) bool {
	for _, one := range all {
		if !one.goesOn() {
			return false
		}
	}
	return true
}

// competition is the history of a lock, as its clients see it.
type competition struct {
	tb           testing.TB
	name         string
	ttl          time.Duration
	holder       atomic.Pointer[string]
	last, grants atomic.Uint64
}

// try has one client take, renew and release the lock.
func (c *competition) try(ctx context.Context, l driver.Locker, client string) {
	id := driver.NewLeaseID(client + "-" + rand.Text())
	began := time.Now()
	lease, err := l.TryAcquire(ctx, driver.Request{Name: c.name, ID: id, Owner: "client " + client, TTL: c.ttl})
	if err != nil {
		if !errors.Is(err, driver.ErrHeld) { // it may be held without an answer
			_ = l.Release(ctx, driver.Lease{Name: c.name, ID: id})
		}
		time.Sleep(time.Millisecond)
		return
	}
	c.grants.Add(1)
	if !c.holder.CompareAndSwap(nil, &client) && time.Since(began) < c.ttl {
		c.tb.Errorf("%s was granted %s, and another client holds it", client, c.name)
	}
	if before := c.last.Swap(lease.Token); lease.Token <= before {
		c.tb.Errorf("%s: token %d after %d", c.name, lease.Token, before)
	}
	if _, err = l.Renew(ctx, lease); errors.Is(err, driver.ErrLost) && time.Since(began) < c.ttl {
		c.tb.Errorf("%s has lost %s: %v", client, c.name, err)
	}
	c.holder.Store(nil)
	for l.Release(ctx, driver.Lease{Name: c.name, ID: id}) != nil && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
}

// goesOn waits until the lock is granted again and again.
func (c *competition) goesOn() bool {
	before, limit := c.grants.Load(), 2*c.ttl
	for end := time.Now().Add(limit); c.grants.Load() < before+enough; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			c.tb.Errorf("%d grants of %s within %v, want %d", c.grants.Load()-before, c.name, limit, enough)
			return false
		}
	}
	return true
}
