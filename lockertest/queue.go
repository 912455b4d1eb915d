package lockertest

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var queueClauses = []clause{
	{
		name: "queue/order", needs: canQueue,
		says: "A free lock is reserved for the waiters in their order: the first may take it at once. A request without a position comes " +
			"behind all of them.",
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
			case !held.Record.RemainingKnown || held.Record.Remaining > c.turnAt(2):
				c.errorf("the lock is reserved for another %v, want %v at most", held.Record.Remaining, c.turnAt(2))
			}
		},
	},
	{
		name: "queue/dead waiter", needs: canQueue, waits: true,
		says: "Position n may take the lock n-1 turns (Info.Turn) after it became free. A waiter that died in the queue costs the others one " +
			"turn, not more.",
		run: func(c *check) {
			lease, second := c.acquire(c.a, c.request(c.name())), c.fresh()
			c.join(c.b, lease.Name, 1)
			next := c.join(second, lease.Name, 2)
			c.release(c.a, lease)
			c.pass(c.ctx, c.turnAt(2)+c.tolerance(c.turnAt(2)))
			lease = c.acquire(second, next)
			c.release(second, lease)
			c.release(c.a, c.acquire(c.a, c.request(lease.Name))) // the dead waiter is not in the queue any more
		},
	},
	{
		name: "queue/end of the reservation", needs: canQueue, waits: true,
		says: "After MaxTurns turns at the latest anybody may take the lock.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			for i := range 8 {
				c.join(c.fresh(), lease.Name, i+1)
			}
			c.release(c.a, lease)
			c.pass(c.ctx, c.turnAt(driver.MaxTurns+1)+c.tolerance(c.turnAt(driver.MaxTurns+1)))
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
				req = c.waiting(c.b, lease.Name) // it is granted at once, so it has no position
				lease = c.acquire(c.a, c.request(lease.Name))
				c.release(c.a, lease)
			}
		},
	},
	{
		name: "queue/repeat", needs: canQueue,
		says: "A repeat leaves the queue alone.",
		run: func(c *check) {
			lease, waiting, last := c.acquire(c.a, c.request(c.name())), c.fresh(), c.fresh()
			req := c.join(c.b, lease.Name, 1)
			c.join(waiting, lease.Name, 2)
			c.join(last, lease.Name, 3)
			c.release(c.a, lease)
			c.acquire(c.b, req)
			c.acquire(c.b, req)
			c.acquire(c.a, driver.Request{Name: req.Name, ID: req.ID, Owner: req.Owner, TTL: req.TTL})
			c.join(last, lease.Name, 2)
			c.join(waiting, lease.Name, 1)
		},
	},
	{
		name: "queue/position ends", needs: canQueue, waits: true,
		says: "A position that is not refreshed by another request ends after QueueFor.",
		run: func(c *check) {
			lease, refreshed, waiting := c.acquire(c.a, c.request(c.name())), c.fresh(), c.fresh()
			enterFor := func(l driver.Locker, lasts time.Duration) driver.Record {
				req := c.waiting(l, lease.Name)
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
		says: "wake is called when waking has come into effect, and when the lock was released and the waiter has one of the first positions: " +
			"the first comes at once.",
		run: func(c *check) {
			lease, second := c.acquire(c.a, c.request(c.name())), c.fresh()
			first, stop := c.wait(c.b, lease.Name)
			defer stop()
			next, stopNext := c.wait(second, lease.Name)
			defer stopNext()
			c.waking(first)
			c.waking(next)
			req := c.join(c.b, lease.Name, 1)
			c.join(second, lease.Name, 2)
			c.release(c.a, lease)
			c.turn("the release of a lock by another Locker", first, driver.Wakeup{})
			c.turn("the release of a lock by another Locker", next, driver.Wakeup{After: c.turnAt(2)})
			c.acquire(c.b, req)
		},
	},
	{
		name: "queue/release of the uncontended", needs: canQueue,
		says: "l.Contended chooses the way in which waiters are woken. Nothing else depends on it: the first comes at once.",
		run: func(c *check) {
			for _, contended := range []bool{true, false} {
				lease := c.acquire(c.a, c.request(c.name()))
				first, stop := c.wait(c.b, lease.Name)
				c.waking(first)
				req := c.join(c.b, lease.Name, 1)
				lease.Contended = contended
				c.release(c.a, lease)
				c.turn("the release of a lock by another Locker", first, driver.Wakeup{})
				next := c.acquire(c.b, req)
				stop()
				next.Contended = contended // nobody waits
				c.release(c.b, next)
				c.acquire(c.a, c.request(lease.Name))
			}
		},
	},
	{
		name: "queue/grant of a later turn", needs: canQueue, waits: true,
		says: "A grant removes the waiters that were woken, had a lower position and did not come: at most the first two.",
		run: func(c *check) {
			lease, third, last := c.acquire(c.a, c.request(c.name())), c.fresh(), c.fresh()
			c.join(c.b, lease.Name, 1)
			c.join(c.fresh(), lease.Name, 2)
			c.join(third, lease.Name, 3)
			req := c.join(last, lease.Name, 4)
			c.release(c.a, lease)
			c.pass(c.ctx, c.turnAt(driver.MaxTurns+1)+c.tolerance(c.turnAt(driver.MaxTurns+1)))
			c.acquire(last, req)
			c.join(c.b, lease.Name, 2)
			c.join(third, lease.Name, 1)
		},
	},
	{
		name: "queue/leaving", needs: canQueue,
		says: "Leave gives up the waiter's positions in the queues of names. Those in which it has none are left alone. The end of Wake leaves " +
			"the position alone.",
		run: func(c *check) {
			lease, other, third := c.acquire(c.a, c.request(c.name())), c.acquire(c.a, c.request(c.name())), c.acquire(c.a, c.request(c.name()))
			one, stop := c.wait(c.b, lease.Name)
			c.waking(one)
			c.join(c.b, lease.Name, 1)
			stop()
			c.join(c.b, lease.Name, 1)
			c.join(c.b, other.Name, 1)
			second := c.fresh()
			c.join(second, other.Name, 2)
			c.join(c.b, third.Name, 1)
			c.join(second, third.Name, 2)
			names := []string{lease.Name, other.Name, lease.Name, c.name()}
			if err := c.b.Capabilities().Queue.Leave(c.ctx, c.waiterOf(c.b), names); err != nil {
				c.errorf("Leave: %v", err)
			}
			c.eventually("the position is given up", func() bool { return c.inspect(c.b, lease.Name).Waiters == 0 })
			c.join(second, lease.Name, 1)
			c.join(second, other.Name, 1)
			c.join(second, third.Name, 2)
			c.join(c.b, third.Name, 1)
		},
	},
	{
		name: "queue/waiters of one Locker", needs: canQueue,
		says: "Each waiter of a Locker has a position of its own, in which it is woken and granted the lock. Leave gives up those of one waiter.",
		run: func(c *check) {
			c.inTime(func() (early []string) {
				lease := c.acquire(c.a, c.request(c.name()))
				var waiting []driver.Request
				var turns []<-chan driver.Wakeup
				for i := range 3 {
					req := c.waiting(c.b, lease.Name)
					req.Waiter = driver.NewWaiterID()
					if r := c.held(c.b, req); r.Position != i+1 {
						c.errorf("waiter %d of a Locker has position %d of %d", i+1, r.Position, r.Waiters)
					}
					woken, stop := wake(c.b, lease.Name, req.Waiter)
					defer stop()
					c.waking(woken)
					waiting, turns = append(waiting, req), append(turns, woken)
				}
				if err := c.b.Capabilities().Queue.Leave(c.ctx, waiting[0].Waiter, []string{lease.Name}); err != nil {
					c.errorf("Leave: %v", err)
				}
				c.release(c.a, lease)
				c.turn("a release", turns[1], driver.Wakeup{})
				c.turn("a release", turns[2], driver.Wakeup{After: c.turnAt(2)})
				waiting[0].QueueFor = 0
				for _, i := range []int{0, 2} {
					if c.grants(c.b, waiting[i]) {
						return []string{fmt.Sprintf("waiter %d was granted the lock before waiter 2", i+1)}
					}
				}
				c.acquire(c.b, waiting[1])
				return nil
			})
		},
	},
	{
		name: "queue/positions in batch reads", needs: canQueue | canInspectBatch,
		says: "The Position of a record that InspectBatch returns is that of the waiter.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			c.join(c.b, lease.Name, 1)
			c.join(c.a, lease.Name, 2)
			for _, read := range []struct {
				l      driver.Locker
				waiter driver.WaiterID
				want   int
			}{{c.b, c.waiterOf(c.b), 1}, {c.a, c.waiterOf(c.a), 2}, {c.b, driver.NewWaiterID(), 0}, {c.b, "", 0}} {
				records, errs := read.l.Capabilities().BatchInspector.InspectBatch(c.ctx, read.waiter, []string{lease.Name})
				if errs[0] != nil || records[0].Position != read.want || records[0].Waiters != 2 {
					c.errorf("position %d of %d, error %v; want %d of 2", records[0].Position, records[0].Waiters, errs[0], read.want)
				}
			}
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
		if took := time.Since(start); took < c.info.Turn || c.cfg.Advance != nil {
			c.fatalf("%q", early)
		}
	}
}

// join sends a request of a waiter for a lock that another holds, and expects a position.
func (c *check) join(l driver.Locker, name string, position int) driver.Request {
	req := c.waiting(l, name)
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

// waiterOf returns the ID of the waiter that stands for a Locker.
func (c *check) waiterOf(l driver.Locker) driver.WaiterID {
	id, _ := c.waiters.LoadOrStore(l, driver.NewWaiterID())
	return id.(driver.WaiterID)
}

// waiting returns a request of a Locker's waiter.
func (c *check) waiting(l driver.Locker, name string) driver.Request {
	req := c.request(name)
	req.Waiter, req.QueueFor = c.waiterOf(l), c.long()
	return req
}

// wait returns a channel that gets the wake-ups of a Locker's waiter.
func (c *check) wait(l driver.Locker, name string) (turns <-chan driver.Wakeup, stop func()) {
	return wake(l, name, c.waiterOf(l))
}

// wake returns a channel that gets the wake-ups of a waiter.
func wake(l driver.Locker, name string, waiter driver.WaiterID) (turns <-chan driver.Wakeup, stop func()) {
	calls := make(chan driver.Wakeup, 100)
	return calls, l.Capabilities().Waker.Wake(name, waiter, func(up driver.Wakeup) {
		up.Ago = 0
		select {
		case calls <- up:
		default:
		}
	})
}

// began says that waking has come into effect.
var began = driver.Wakeup{Kind: driver.WakingBegan}

// waking expects that waking comes into effect, unless it reports some releases only.
func (c *check) waking(turns <-chan driver.Wakeup) {
	if !c.info.WakesInPart {
		c.turn("waking has come into effect", turns, began)
	}
}

// turn expects a wake-up. Calls without a reason may come first.
func (c *check) turn(why string, turns <-chan driver.Wakeup, want driver.Wakeup) {
	for timeout := time.After(c.cfg.Slack); ; {
		select {
		case got := <-turns:
			if got.Kind != driver.MayBeFree && c.info.WakesInPart {
				c.errorf("wake was called with %+v, as if waking were in effect", got)
			}
			if got == want {
				return
			}
		case <-timeout:
			c.fatalf("no call of wake with %+v within %v although this happened: %s", want, c.cfg.Slack, why)
		}
	}
}

// turnAt is how long after a lock became free the waiter at a position may take it.
func (c *check) turnAt(position int) time.Duration { return driver.TurnAt(c.info.Turn, position) }
