package lockertest

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var acquireClauses = []clause{
	{
		name: "acquire/free",
		says: "The lock is granted if the name has no record, or the lock was released, or its lease expired.",
		run: func(c *check) {
			name := c.name()
			c.release(c.a, c.acquire(c.a, c.request(name)))
			c.release(c.b, c.acquire(c.b, c.request(name)))
			c.acquire(c.a, c.request(name))
		},
	},
	{
		name: "acquire/held",
		says: "In all other cases the error is a *HeldError. Its Record has what the backend knows.",
		run: func(c *check) {
			name := c.name()
			lease := c.acquire(c.a, c.request(name))
			for _, l := range []driver.Locker{c.a, c.b} {
				r := c.held(l, c.request(name))
				c.checkHeldRecord(r, lease)
			}
			c.stillHeldBy("after two refused requests", lease)
		},
	},
	{
		name: "acquire/owner proves nothing",
		says: "ID proves ownership; two requests of one process with different IDs exclude each other. Owner is for people to read and proves " +
			"nothing.",
		run: func(c *check) {
			first := c.request(c.name())
			lease := c.acquire(c.a, first)
			second := c.request(first.Name)
			second.Owner = first.Owner
			c.held(c.a, second)
			c.held(c.b, second)
			c.lost("Renew with the holder's owner and token, but another ID",
				errOf(c.a.Renew(c.ctx, driver.Lease{Name: lease.Name, ID: second.ID, Owner: lease.Owner, Token: lease.Token, TTL: lease.TTL})))
			c.release(c.a, driver.Lease{Name: lease.Name, ID: second.ID, Owner: lease.Owner, Token: lease.Token, TTL: lease.TTL})
			c.stillHeldBy("after renewal and release by a request with the same owner and another ID", lease)
		},
	},
	{
		name: "acquire/one winner",
		says: "At most one holder at a time: of many requests at once for a name without a record one is granted, and the others get ErrHeld.",
		run:  oneWinner,
	},
	{
		name: "acquire/repeat",
		says: "The call is a repeat if req.ID itself holds the lock and its lease has not expired. The repeat returns the same token and " +
			"leaves the data alone.",
		run: func(c *check) {
			req := c.request(c.name())
			req.Data = []byte("first")
			first := c.acquire(c.a, req)
			for _, l := range []driver.Locker{c.a, c.b} {
				again := req
				again.Data = []byte("second")
				if lease := c.acquire(l, again); lease.Token != first.Token {
					c.errorf("the repeat got token %d, the first call got %d", lease.Token, first.Token)
				}
				if data := c.inspect(l, req.Name).Data; string(data) != "first" {
					c.errorf("after the repeat the data are %q, want %q", data, "first")
				}
			}
			c.stillHeldBy("after the repeats", first)
		},
	},
	{
		name: "acquire/repeats at once",
		says: "The repeat returns the same token. This makes retrying after a lost answer safe.",
		run: func(c *check) {
			req := c.request(c.name())
			var tokens sync.Map
			c.parallel(16, func(i int, l driver.Locker) {
				tokens.Store(c.acquire(l, req).Token, true)
			})
			n := 0
			tokens.Range(func(any, any) bool { n++; return true })
			if n > 1 {
				c.errorf("16 requests at once with one ID got %d different tokens", n)
			}
		},
	},
	{
		name: "acquire/replace",
		says: "The lock is granted if req.Replace is set and still equals the record's Revision, although the lease has not expired.",
		run:  replace,
	},
}

// checkHeldRecord compares the record of a held lock with its lease.
func (c *check) checkHeldRecord(r driver.Record, lease driver.Lease) {
	if r.State != driver.StateHeld && r.State != driver.StateUnknown {
		c.errorf("the state is %v, want held", r.State)
	}
	if r.Owner != "" && r.Owner != lease.Owner {
		c.errorf("the owner is %q, want %q (or none, if unknown)", r.Owner, lease.Owner)
	}
	if r.Token != 0 && r.Token != lease.Token {
		c.errorf("the token is %d, want %d (or 0, if unknown)", r.Token, lease.Token)
	}
	if r.TTL != 0 && r.TTL != lease.TTL {
		c.errorf("the TTL is %v, want %v (or 0, if unknown)", r.TTL, lease.TTL)
	}
	if r.RemainingKnown && (r.Remaining <= 0 || r.Remaining > lease.TTL+c.tolerance(lease.TTL)) {
		c.errorf("the record says that %v remain of a lease of %v granted just now; RemainingKnown must be false if that is unknown", r.Remaining,
			lease.TTL)
	}
	if r.Broken {
		c.errorf("the lock is shown as broken, but nobody broke it")
	}
}

// parallel runs n calls at once, half of them on each Locker.
func (c *check) parallel(n int, call func(i int, l driver.Locker)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		l := []driver.Locker{c.a, c.b}[i%2]
		wg.Go(func() {
			<-start
			call(i, l)
		})
	}
	close(start)
	wg.Wait()
}

func oneWinner(c *check) {
	for range 3 {
		name := c.name()
		var wins atomic.Int32
		c.parallel(64, func(_ int, l driver.Locker) {
			_, err := l.TryAcquire(c.ctx, c.request(name))
			switch {
			case err == nil:
				wins.Add(1)
			case !errors.Is(err, driver.ErrHeld):
				c.errorf("one of 64 requests at once for a new name failed: %v", err)
			}
		})
		if n := wins.Load(); n != 1 {
			c.errorf("%d of 64 requests at once for a new name were granted, want 1", n)
		}
	}
}

func replace(c *check) {
	name := c.name()
	first := c.acquire(c.a, c.request(name))
	seen := c.inspect(c.b, name).Revision

	guess := c.request(name)
	guess.Replace = driver.NewRevision("no backend's revision")
	c.held(c.b, guess)
	if seen.IsZero() {
		c.inPartOnly("the driver's records have no Revision")
		return
	}
	if again := c.inspect(c.a, name).Revision; again != seen {
		c.errorf("the Revision changed without a grant or a renewal")
	}
	c.pass(c.ctx, 2*time.Millisecond) // a revision may be a time
	c.renew(c.a, first)
	late := c.request(name)
	late.Replace = seen
	c.held(c.b, late) // the holder has renewed its lease since
	if c.inspect(c.b, name).Revision == seen {
		c.fatalf("the Revision is the same after a renewal, so a waiter would replace a live holder")
	}

	taker := c.request(name)
	taker.Replace = c.held(c.b, late).Revision
	if taker.Replace.IsZero() {
		taker.Replace = c.inspect(c.b, name).Revision
	}
	second := c.acquire(c.b, taker)
	if second.Token <= first.Token {
		c.errorf("the replacing grant got token %d after token %d", second.Token, first.Token)
	}
	c.lost("Renew by the holder that was replaced", errOf(c.a.Renew(c.ctx, first)))
	c.release(c.a, first)
	third := c.request(name)
	third.Replace = taker.Replace
	c.held(c.a, third) // the grant has changed the Revision
	c.stillHeldBy("after a replacement", second)
}
