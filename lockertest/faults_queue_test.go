package lockertest

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// wakeFaults are of waking those without a position.
func wakeFaults() []fault {
	watches := func(do spoil) spoil {
		return on(driver.MethodWake, func(c *call) driver.Answer {
			if c.Waiter != "" {
				return c.send()
			}
			return do(c)
		})
	}
	effectOnly := func(c *call) driver.Answer {
		c.Wake(driver.Wakeup{})
		return driver.Answer{}
	}
	return []fault{
		{name: "watchers are never woken", says: "nothing woke the watcher", red: "watcher/wakes",
			do: ignores(driver.MethodWake, func(c *call) bool { return c.Waiter == "" })},
		{name: "releases do not wake", red: "watcher/wakes, watcher/own Locker, watcher/removal, watcher/many, watcher/odd names",
			do: watches(effectOnly)},
		{name: "removals do not wake", red: "watcher/removal",
			// A wake-up may call the memory driver, unlike others.
			do: silences(func(c *call, _ driver.Wakeup) bool { return c.record(c.lock()).Token == 0 })},
		{name: "one of several is woken", red: "watcher/many",
			do: watches(func(c *call) driver.Answer {
				if c.count("watches of "+c.lock()) > 1 {
					return effectOnly(c)
				}
				return c.send()
			})},
		{name: "watching waits for the backend", red: "watcher/no waiting",
			do: sends(driver.MethodWake, func(c *call) {
				if c.stalled() != nil {
					time.Sleep(1100 * time.Millisecond)
				}
			})},
		{name: "stop does nothing", says: "although it was stopped", red: "watcher/stop",
			do: answers(driver.MethodWake, func(_ *call, a *driver.Answer) { a.Stop = nil })},
		{name: "stop waits for the call of wake that is under way", red: "watcher/stop within wake",
			do: func(c *call) driver.Answer {
				var calls atomic.Int64
				a := wakeups(func(c *call, up driver.Wakeup) {
					calls.Add(1)
					defer calls.Add(-1)
					c.Wake(up)
				})(c)
				if stop := a.Stop; stop != nil {
					a.Stop = func() {
						for calls.Load() > 0 && c.noted("over") == nil { // until the end of the test
							time.Sleep(time.Millisecond)
						}
						stop()
					}
				}
				return a
			}},
		{name: "stop stops the others", red: "watcher/stop",
			do: answers(driver.MethodWake, func(c *call, a *driver.Answer) {
				key := "stops of " + c.lock()
				stops, _ := c.noted(key).([]func())
				c.note(key, append(stops, a.Stop))
				a.Stop = func() {
					for _, stop := range c.noted(key).([]func()) {
						stop()
					}
				}
			})},
	}
}

// waits notes the waiter of a request, and empty has all that were noted leave the queue of a lock.
func waits(c *call) {
	if c.Request.QueueFor > 0 {
		before, _ := c.noted("waiters " + c.lock()).([]driver.WaiterID)
		c.note("waiters "+c.lock(), append(slices.Clip(before), c.Request.Waiter))
	}
}

func empty(c *call) {
	waiters, _ := c.noted("waiters " + c.lock()).([]driver.WaiterID)
	for _, waiter := range waiters {
		_ = c.plain.Leave(context.Background(), waiter, []string{c.lock()})
	}
}

func queueFaults() []fault {
	return []fault{
		{name: "waking is always said to have been in effect before", says: "waking was reported to be in effect",
			red: "watcher/waking since",
			do: wakeups(func(c *call, up driver.Wakeup) {
				if up.Kind == driver.WakingBegan {
					up.Ago = time.Hour
				}
				c.Wake(up)
			})},
		{name: "no waiter has a position", says: "before the waiters",
			red: "queue/order, queue/dead waiter, queue/position ends, queue/repeat",
			do:  asks(func(c *call) { c.Request.QueueFor = 0 })},
		{name: "a reserved lock looks held by its last holder", red: "queue/refusal",
			do: answers(driver.MethodTryAcquire, func(c *call, a *driver.Answer) {
				var held *driver.HeldError
				if errors.As(a.Err, &held) && held.Reserved {
					r := c.record(c.lock())
					r.State = driver.StateHeld
					a.Err = heldErr(r)
				}
			})},
		{name: "only the first waiter is ever granted the lock", red: "queue/dead waiter, queue/end of the reservation",
			do: excludes(func(c *call) bool {
				a := c.next(c.ctx, driver.Call{Method: driver.MethodInspect, Name: c.lock()})
				return isFree(c) && a.Record.Waiters > 0 && a.Record.Position != 1
			})},
		{name: "a waiter stays in the queue after its grant", red: "queue/nobody waits",
			do: grants(func(c *call, _ *driver.Lease) {
				if again := c.Call; again.Request.QueueFor > 0 {
					again.Request.ID = newID()
					_ = c.next(c.ctx, again)
				}
			})},
		{name: "a repeat empties the queue", says: "position 1 of 1", red: "queue/repeat",
			do: repeats(func(c *call) driver.Answer { c.store.Remove(c.lock()); return c.send() })},
		{name: "positions never end", red: "queue/position ends",
			do: asks(func(c *call) {
				if c.Request.QueueFor > 0 {
					c.Request.QueueFor = time.Hour
				}
			})},
		{name: "wake-ups of unknown kinds", says: "Wakeup.Kind 3 is invalid: must be MayBeFree", red: "queue/wakes",
			do: wakeups(func(c *call, up driver.Wakeup) { c.Wake(driver.Wakeup{Kind: driver.WakingEnded + 1}); c.Wake(up) })},
		{name: "waiters are not woken", says: "no call of wake", red: "queue/wakes",
			do: ignores(driver.MethodWake, func(c *call) bool { return c.Waiter != "" })},
		{name: "every waiter is woken as if it were the first", says: "no call of wake", red: "queue/wakes",
			do: wakeups(func(c *call, _ driver.Wakeup) { c.Wake(driver.Wakeup{}) })},
		{name: "a release of a lease without Contended wakes nobody", says: "no call of wake", red: "queue/release of the uncontended",
			do: chain(sends(driver.MethodRelease, func(c *call) {
				if !c.Lease.Contended {
					c.note("quiet "+c.lock(), true)
				}
			}), silences(func(c *call, up driver.Wakeup) bool {
				return up.Kind == driver.MayBeFree && c.noted("quiet "+c.lock()) != nil
			}))},
		{name: "a grant ends the queue", red: "queue/grant of a later turn",
			do: chain(asks(waits), grants(func(c *call, _ *driver.Lease) { empty(c) }))},
		{name: "a waiter that leaves stays in the queue", says: "the position is given up",
			red: "queue/leaving, queue/waiters of one Locker", do: ignores(driver.MethodLeave, always)},
		{name: "a waiter leaves one queue of several", says: "want 1", red: "queue/leaving",
			do: sends(driver.MethodLeave, func(c *call) { c.Names = c.Names[:1] })},
		{name: "a Locker has one position for all its waiters", red: "queue/waiters of one Locker",
			do: asks(func(c *call) {
				if c.Request.Waiter != "" {
					c.Request.Waiter = driver.WaiterID(c.own("waiter"))
				}
			})},
		{name: "a batch read shows no position", red: "queue/positions in batch reads",
			do: inspectsEach(func(_ *call, r *driver.Record) { r.Position = 0 })},
	}
}

func sharedFaults() []fault {
	// retried sends a request that was refused again, where unblocks changes the store.
	retried := func(unblocks func(c *call, r driver.Record) bool) spoil {
		return on(driver.MethodTryAcquire, func(c *call) driver.Answer {
			a := c.send()
			if errors.Is(a.Err, driver.ErrHeld) && unblocks(c, c.record(c.lock())) {
				return c.send()
			}
			return a
		})
	}
	// overtakes has readers come before the writer that waits for a lock in a state.
	overtakes := func(state driver.State) spoil {
		return retried(func(c *call, r driver.Record) bool {
			if c.Request.Mode == driver.Exclusive {
				waits(c)
				return false
			}
			// A writer that holds the lock is not overtaken, but excludes.
			if r.State != state || state == driver.StateHeld && len(r.Holders) == 0 || c.noted("waiters "+c.lock()) == nil {
				return false
			}
			empty(c)
			return true
		})
	}
	// breaks changes whom Break of a shared lock affects.
	breaks := func(target func(r driver.Record) driver.BreakTarget) spoil {
		return sends(driver.MethodBreak, func(c *call) {
			if r := c.record(c.lock()); len(r.Holders) > 0 {
				c.Target = target(r)
			}
		})
	}
	shared := func(c *call) bool { return c.lease().Mode == driver.Shared }
	return []fault{
		{name: "a single reader keeps no writer out", says: "before the lease could end",
			red: "shared/a writer waits for all, shared/one expires, shared/one releases",
			do:  retried(func(c *call, r driver.Record) bool { return !shared(c) && len(r.Holders) == 1 && c.free(c.lock()) })},
		{name: "readers ignore a writer", red: "shared/excluded",
			do: retried(func(c *call, r driver.Record) bool { return shared(c) && len(r.Holders) == 0 && c.free(c.lock()) })},
		{name: "a lock has five readers at most", says: "which should be granted", red: "shared/many",
			do: excludes(func(c *call) bool { return shared(c) && len(c.record(c.lock()).Holders) >= 5 })},
		{name: "a reader's repeat is a new grant", says: "a repeat has token", red: "shared/repeat",
			do: asks(func(c *call) {
				if shared(c) {
					_ = c.plain.Release(context.Background(), c.lease())
				}
			})},
		{name: "holders change the mode", red: "shared/no change of the mode",
			do: retried(func(c *call, _ driver.Record) bool { return c.plain.Release(context.Background(), c.lease()) == nil })},
		{name: "shared requests are corrected", says: "a shared request with data", red: "shared/arguments",
			do: asks(func(c *call) {
				if shared(c) {
					c.Request.Data, c.Request.Owner = nil, c.Request.Owner[:min(len(c.Request.Owner), driver.MaxSharedOwner)]
				}
			})},
		{name: "readers overtake a waiting writer", red: "shared/a writer is not overtaken", do: overtakes(driver.StateHeld)},
		{name: "nothing is reserved after readers", says: "before the writer that waits", red: "shared/a dead reader ends no turn",
			do: overtakes(driver.StateFree)},
		{name: "each reader has a turn of its own", says: "in the turn of the first", red: "shared/readers have one turn",
			do: asks(func(c *call) {
				if c.Request.QueueFor > 0 {
					c.Request.Mode = driver.Exclusive
				}
			})},
		{name: "readers in the queue are not woken", red: "shared/readers are woken",
			do: silences(func(c *call, up driver.Wakeup) bool { return c.Waiter != "" && up.Kind == driver.MayBeFree })},
		{name: "readers are not renewed", red: "shared/renewed alone", do: ignores(driver.MethodRenew, shared)},
		{name: "only the latest holder is shown", red: "shared/together",
			do: inspects(func(_ *call, r *driver.Record) { r.Holders = r.Holders[max(0, len(r.Holders)-1):] })},
		{name: "the revision is that of the latest grant", says: "one of those before", red: "shared/revision",
			do: inspects(func(_ *call, r *driver.Record) {
				if len(r.Holders) > 0 {
					r.Revision = driver.NewRevision(string(rune(r.Token)))
				}
			})},
		{name: "readers have no history", red: "shared/history",
			do: inspects(func(_ *call, r *driver.Record) {
				r.History = slices.DeleteFunc(r.History, func(t driver.Tenure) bool { return t.Mode == driver.Shared })
			})},
		{name: "Break of one reader affects all", red: "shared/Break one",
			do: breaks(func(driver.Record) driver.BreakTarget { return driver.BreakAnybody() })},
		{name: "Break of all readers affects the latest", red: "shared/Break all",
			do: breaks(func(r driver.Record) driver.BreakTarget { return driver.BreakToken(r.Token) })},
	}
}
