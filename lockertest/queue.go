package lockertest

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func canQueue(s *suite) bool { return s.capabilities.Queue != nil }

var queueClauses = []clause{
	{
		name: "queue/order", needs: canQueue,
		says: "A free lock is reserved for the waiters in their order: the first may take it at once. A request without a position comes behind all of them.",
		run: func(c *check) {
			c.inTime(func() (early []string) {
				lease, second := c.acquire(c.a, c.request(c.name())), c.fresh()
				first := c.join(c.b, lease.Name, 1)
				next := c.join(second, lease.Name, 2)
				c.release(c.a, lease)
				if c.grants(c.a, c.request(lease.Name)) {
					early = append(early, "a request without a position was granted before the waiters")
				}
				if c.grants(second, next) {
					early = append(early, "the second waiter was granted the lock before the first")
				}
				if len(early) == 0 {
					c.acquire(c.b, first)
				}
				return early
			})
		},
	},
	{
		name: "queue/refusal", needs: canQueue,
		says: "A reserved lock is refused with a *HeldError that says so, names no holder, and has the time that the reservation lasts.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			c.join(c.b, lease.Name, 1)
			c.release(c.a, lease)
			_, err := c.a.TryAcquire(c.ctx, c.request(lease.Name))
			var held *driver.HeldError
			switch {
			case err == nil: // the first turn is over: the machine is busy
			case !errors.As(err, &held) || !held.Reserved || held.Record.Owner != "" || held.Record.Token != 0:
				c.errorf("TryAcquire of a lock that is reserved for a waiter: %#v, %v", held, err)
			case !held.Record.RemainingKnown || held.Record.Remaining > driver.Turn(2):
				c.errorf("the lock is reserved for another %v, want %v at most", held.Record.Remaining, driver.Turn(2))
			}
		},
	},
	{
		name: "queue/dead waiter", needs: canQueue, waits: true,
		says: "Position n may take the lock Turn(n) after it became free. A waiter that died in the queue costs the others one turn, not more.",
		run: func(c *check) {
			lease, second := c.acquire(c.a, c.request(c.name())), c.fresh()
			c.join(c.b, lease.Name, 1)
			next := c.join(second, lease.Name, 2)
			c.release(c.a, lease)
			c.pass(c.ctx, driver.Turn(2)+c.tolerance(driver.Turn(2)))
			lease = c.acquire(second, next)
			c.release(second, lease)
			c.release(c.a, c.acquire(c.a, c.request(lease.Name))) // the dead waiter is not in the queue any more
		},
	},
	{
		name: "queue/end of the reservation", needs: canQueue, waits: true,
		says: "After MaxTurn at the latest anybody may take the lock.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			for i := range 8 {
				c.join(c.fresh(), lease.Name, i+1)
			}
			c.release(c.a, lease)
			c.pass(c.ctx, driver.MaxTurn+c.tolerance(driver.MaxTurn))
			c.acquire(c.a, c.request(lease.Name))
		},
	},
	{
		name: "queue/nobody waits", needs: canQueue,
		says: "With an empty queue nothing is reserved. A grant removes the waiter from the queue.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			req := c.join(c.b, lease.Name, 1)
			c.release(c.a, lease)
			for range 3 {
				c.release(c.b, c.acquire(c.b, req))
				req = c.request(lease.Name)
				req.QueueFor = c.long() // it is granted at once, so it has no position
				lease = c.acquire(c.a, c.request(lease.Name))
				c.release(c.a, lease)
			}
		},
	},
	{
		name: "queue/repeat", needs: canQueue,
		says: "A repeat leaves the queue alone.",
		run: func(c *check) {
			lease, waiting := c.acquire(c.a, c.request(c.name())), c.fresh()
			req := c.join(c.b, lease.Name, 1)
			c.join(waiting, lease.Name, 2)
			c.release(c.a, lease)
			c.acquire(c.b, req)
			c.acquire(c.b, req)
			c.acquire(c.a, driver.Request{Name: req.Name, ID: req.ID, Owner: req.Owner, TTL: req.TTL})
			c.join(waiting, lease.Name, 1)
		},
	},
	{
		name: "queue/position ends", needs: canQueue, waits: true,
		says: "A position that is not refreshed by another request ends after QueueFor.",
		run: func(c *check) {
			lease, refreshed, waiting := c.acquire(c.a, c.request(c.name())), c.fresh(), c.fresh()
			enterFor := func(l driver.Locker, lasts time.Duration) driver.Record {
				req := c.request(lease.Name)
				req.QueueFor = lasts
				return c.held(l, req)
			}
			brief := c.cfg.TTL
			enterFor(c.b, brief)
			enterFor(refreshed, brief)
			c.pass(c.ctx, brief/2)
			enterFor(refreshed, c.long())
			c.pass(c.ctx, brief)
			if r := enterFor(waiting, c.long()); r.Position != 2 || r.Waiters != 2 {
				c.errorf("position %d of %d behind one that has ended and one that was refreshed, want 2 of 2", r.Position, r.Waiters)
			}
		},
	},
	{
		name: "queue/wakes", needs: canQueue,
		says: "wake is called when waking has come into effect, and when the lock was released and the Locker has one of the first positions. turn is zero for the first position.",
		run: func(c *check) {
			lease, second := c.acquire(c.a, c.request(c.name())), c.fresh()
			first, stop := wait(c.b, lease.Name)
			defer stop()
			next, stopNext := wait(second, lease.Name)
			defer stopNext()
			c.turn("waking has come into effect", first, driver.MaybeMissed)
			c.turn("waking has come into effect", next, driver.MaybeMissed)
			req := c.join(c.b, lease.Name, 1)
			c.join(second, lease.Name, 2)
			c.release(c.a, lease)
			c.turn("the release of a lock by another Locker", first, 0)
			c.turn("the release of a lock by another Locker", next, driver.Turn(2))
			c.acquire(c.b, req)
		},
	},
	{
		name: "queue/leaving", needs: canQueue,
		says: "After the last stop for a name the Locker gives up its position.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			one, stop := wait(c.b, lease.Name)
			_, stopOther := wait(c.b, lease.Name)
			c.turn("waking has come into effect", one, driver.MaybeMissed)
			c.join(c.b, lease.Name, 1)
			stop()
			c.join(c.b, lease.Name, 1)
			stopOther()
			c.eventually("the position is given up", func() bool { return c.inspect(c.b, lease.Name).Waiters == 0 })
		},
	},
}

// inTime runs a scenario whose outcome must be seen before the first turn is over, and repeats it
// while the machine is too busy for that. The scenario returns what was granted too early.
func (c *check) inTime(scenario func() (early []string)) {
	for range 20 {
		start := time.Now()
		early := scenario()
		if len(early) == 0 {
			return
		}
		if took := time.Since(start); took < driver.TurnLength || c.cfg.Advance != nil {
			c.fatalf("%q", early)
		}
	}
}

// join sends a request of a waiter for a lock that another holds, and expects a position.
func (c *check) join(l driver.Locker, name string, position int) driver.Request {
	req := c.request(name)
	req.QueueFor = c.long()
	if r := c.held(l, req); r.Position != position || r.Waiters < position {
		c.errorf("a waiter that was refused has position %d of %d, want %d", r.Position, r.Waiters, position)
	}
	return req
}

// grants reports whether a request was granted.
func (c *check) grants(l driver.Locker, req driver.Request) bool {
	_, err := l.TryAcquire(c.ctx, req)
	if err != nil && !errors.Is(err, driver.ErrHeld) {
		c.fatalf("TryAcquire of %q: %v", short(req.Name), err)
	}
	return err == nil
}

// wait returns a channel that gets the turns of the calls of wake.
func wait(l driver.Locker, name string) (turns <-chan time.Duration, stop func()) {
	calls := make(chan time.Duration, 100)
	return calls, l.Capabilities().Queue.Wait(name, func(turn time.Duration) {
		select {
		case calls <- turn:
		default:
		}
	})
}

// turn expects a call of wake with a turn. Calls without a reason may come first.
func (c *check) turn(why string, turns <-chan time.Duration, want time.Duration) {
	for timeout := time.After(c.cfg.Slack); ; {
		select {
		case got := <-turns:
			if got == want {
				return
			}
		case <-timeout:
			c.fatalf("no call of wake with turn %v within %v although this happened: %s", want, c.cfg.Slack, why)
		}
	}
}
