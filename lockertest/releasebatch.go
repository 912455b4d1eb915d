package lockertest

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var releaseBatchClauses = []clause{
	{
		name: "release batch/frees", needs: canReleaseBatch,
		says: "ReleaseBatch releases each lease as Release does: the next TryAcquire succeeds at once, and the record's token and data survive.",
		run: func(c *check) {
			var leases []driver.Lease
			tag := c.name()
			for _, odd := range oddEnds {
				req := c.request(tag + odd)
				req.Owner, req.Data = odd, []byte("kept")
				leases = append(leases, c.acquire(c.a, req))
			}
			c.releaseBatch(c.b, leases, make([]error, len(leases))...)
			for _, lease := range leases {
				if r := c.inspect(c.a, lease.Name); r.State != driver.StateFree || c.can(keepsData) && string(r.Data) != "kept" {
					c.errorf("after ReleaseBatch the lock %q is %v with the data %q, want free with %q", lease.Name, r.State, r.Data, "kept")
				}
				c.tokenRises(lease, c.acquire(c.b, c.request(lease.Name)))
			}
		},
	},
	{
		name: "release batch/mixed", needs: canReleaseBatch,
		says: "ReleaseBatch returns one result for each lease, in order. Every error has the meaning that it has for Release, which never " +
			"touches another's lease.",
		run: func(c *check) {
			live := func() driver.Lease { return c.acquire(c.a, c.request(c.name())) }
			lease, released, stale, twice, bare := live(), live(), live(), live(), live()
			c.release(c.a, released)
			c.release(c.a, stale)
			req := c.request(c.name())
			unknown := driver.Lease{Name: req.Name, ID: req.ID, Token: 1, TTL: req.TTL}
			nameless, never := unknown, live()
			nameless.Name = ""
			held := []driver.Lease{c.acquire(c.b, c.request(stale.Name)), live(), live(), never}
			never.ID = driver.LeaseID{}
			swapped, other := held[1], held[2]
			swapped.ID, other.ID = other.ID, swapped.ID
			bare = driver.Lease{Name: bare.Name, ID: bare.ID}
			c.releaseBatch(c.b, []driver.Lease{lease, released, stale, unknown, nameless, twice, never, twice, swapped, other, bare},
				nil, nil, nil, nil, driver.ErrInvalid, nil, nil, nil, nil, nil, nil)
			for _, lease := range held {
				c.stillHeldBy("after a batch of releases by others", lease)
			}
			if r := c.inspect(c.a, unknown.Name); r.State != driver.StateFree || r.Token != 0 {
				c.errorf("a batch of releases with an unknown name left it %v with token %d", r.State, r.Token)
			}
			for _, freed := range []driver.Lease{lease, released, twice, bare} {
				c.acquire(c.a, c.request(freed.Name))
			}
			c.releaseBatch(c.a, nil)
		},
	},
	{
		name: "release batch/many", needs: canReleaseBatch,
		says: "ReleaseBatch releases many leases. It never touches another's.",
		run: func(c *check) {
			const n = 600
			leases, held := make([]driver.Lease, n), make([]driver.Lease, n)
			c.each(n, func(i int) {
				leases[i] = c.acquire(c.a, c.request(c.name()))
				if i%100 == 0 {
					held[i] = leases[i]
					leases[i].ID = newID()
				}
			})
			c.releaseBatch(c.b, leases, make([]error, n)...)
			c.each(n, func(i int) {
				if held[i].Name != "" {
					c.stillHeldBy("after a batch of releases with another ID", held[i])
				} else {
					c.acquire(c.a, c.request(leases[i].Name))
				}
			})
		},
	},
	{
		name: "release batch/late and doubled", needs: canReleaseBatch,
		says: "A batch can take effect late, even after ReleaseBatch has returned. It never touches another's lease.",
		run: func(c *check) {
			names := []string{c.name(), c.name(), c.name()}
			var gone []driver.Lease
			for range 4 {
				var holders []driver.Lease
				for _, name := range names {
					holders = append(holders, c.acquire(c.a, c.request(name)))
				}
				c.parallel(4, func(_ int, l driver.Locker) { c.releaseBatch(l, gone, make([]error, len(gone))...) })
				for _, holder := range holders {
					c.stillHeldBy("after late batches of earlier holders", holder)
				}
				c.parallel(4, func(_ int, l driver.Locker) { c.releaseBatch(l, holders, make([]error, len(holders))...) })
				gone = append(gone, holders...)
			}
		},
	},
	{
		name: "release batch/wakes", needs: canReleaseBatch | canBeWoken,
		says: "ReleaseBatch wakes the waiters of each lock.",
		run: func(c *check) {
			var leases []driver.Lease
			var awaited []func()
			for range 3 {
				lease := c.acquire(c.a, c.request(c.name()))
				leases = append(leases, lease)
				if c.can(canQueue) {
					turns, stop := c.wait(c.b, lease.Name)
					defer stop()
					c.turn("waking has come into effect", turns, began)
					req := c.join(c.b, lease.Name, 1)
					awaited = append(awaited, func() {
						c.turn("a batch of releases by another Locker", turns, driver.Wakeup{})
						c.acquire(c.b, req)
					})
				} else {
					wake, stop := watch(c.b, lease.Name)
					defer stop()
					c.awake("the watch has come into effect", wake)
					drain(wake)
					awaited = append(awaited, func() { c.awake("a batch of releases by another Locker", wake) })
				}
			}
			c.releaseBatch(c.a, leases, nil, nil, nil)
			for _, wait := range awaited {
				wait()
			}
		},
	},
	{
		name: "release batch/context ended", needs: canReleaseBatch,
		says: "ReleaseBatch returns one result for each lease, also when the context has ended.",
		run: func(c *check) {
			leases := []driver.Lease{c.acquire(c.a, c.request(c.name())), c.acquire(c.a, c.request(c.name()))}
			ctx, cancel := context.WithCancel(c.ctx)
			cancel()
			for _, err := range c.a.Capabilities().BatchReleaser.ReleaseBatch(ctx, leases) {
				if !errors.Is(err, context.Canceled) {
					c.wrongf("got error %v, want one that wraps %v", err, context.Canceled)
				}
			}
			c.releaseBatch(c.a, leases, nil, nil)
			for _, lease := range leases {
				c.acquire(c.b, c.request(lease.Name))
			}
		},
	},
	{
		name: "release batch/race", needs: canReleaseBatch,
		says: "At most one holder at a time, and each grant's token is greater than that of every earlier grant, also if locks are released in " +
			"batches, and again later.",
		run: func(c *check) {
			const goroutines, rounds = 8, 25
			contests := []*contest{{name: c.name()}, {name: c.name()}, {name: c.name()}}
			deadline := time.Now().Add(10 * time.Second)
			c.parallel(goroutines, func(_ int, l driver.Locker) {
				for range rounds {
					if time.Now().Before(deadline) {
						c.competeForAll(contests, l)
					}
				}
			})
			for _, a := range contests {
				if a.grants.Load() == 0 {
					c.errorf("no attempt of %d was granted", goroutines*rounds)
				}
			}
		},
	},
}

// competeForAll makes one attempt for each lock, and releases what it was granted in one batch,
// together with leases that were released before.
func (c *check) competeForAll(contests []*contest, l driver.Locker) {
	var leases, batch []driver.Lease
	var of []*contest
	for _, a := range contests {
		if old := a.stale.Load(); old != nil {
			batch = append(batch, *old)
		}
		lease, err := l.TryAcquire(c.ctx, c.request(a.name))
		if err == nil {
			c.enter(a, lease)
			leases, of = append(leases, lease), append(of, a)
		} else if !errors.Is(err, driver.ErrHeld) {
			c.errorf("an attempt among many failed: %v", err)
		}
	}
	pause()
	for i, lease := range leases {
		if rand.IntN(2) == 0 {
			c.renew(l, lease)
		}
		of[i].holders.Add(-1)
	}
	batch = append(batch, leases...)
	c.releaseBatch(l, batch, make([]error, len(batch))...)
	for i, lease := range leases {
		of[i].stale.Store(&lease)
	}
}

// releaseBatch compares the results with what is wanted, one for each lease.
func (c *check) releaseBatch(l driver.Locker, leases []driver.Lease, want ...error) {
	for i, err := range l.Capabilities().BatchReleaser.ReleaseBatch(c.ctx, leases) {
		if !errors.Is(err, want[i]) {
			c.errorf("result %d of the batch of releases is %v, want %v", i, err, want[i])
		}
	}
}

// checkResults checks the results of a batch.
func (c *check) checkResults(method string, leases []driver.Lease, errs []error) {
	if len(errs) != len(leases) {
		c.fatalf("%s of %d leases returned %d results", method, len(leases), len(errs))
	}
	for i, err := range errs {
		_ = c.checkError(method, leases[i].Name, leases[i].ID.Reveal(), err)
	}
}
