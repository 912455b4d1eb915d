package lockertest

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// isRepeat reports whether the holder asks. repeats spoils such requests.
func isRepeat(c *call) bool { return !isFree(c) && c.holds(c.lease()) }

func repeats(do spoil) spoil {
	return on(driver.MethodTryAcquire, func(c *call) driver.Answer {
		if isRepeat(c) {
			return do(c)
		}
		return c.send()
	})
}

// checkThenAct grants a lock that was free a moment ago.
func checkThenAct(when func(driver.Record) bool) spoil {
	return frees(driver.MethodTryAcquire, func(c *call) bool {
		free := when(c.record(c.lock()))
		if free {
			time.Sleep(20 * time.Millisecond)
		}
		return free
	})
}

func grantFaults() []fault {
	return []fault{
		{name: "a constant token", says: "token 7 was granted to another ID before",
			red: "token/rises, token/another Locker, release/frees, race/exclusion, expiry/takeover, release/keeps token and data",
			do:  grants(func(_ *call, l *driver.Lease) { l.Token = 7 })},
		{name: "token 0", says: "token 0", red: "acquire/free",
			do: grants(func(_ *call, l *driver.Lease) { l.Token = 0 })},
		{name: "tokens count from 1 after a removal", red: "token/removed",
			do: grants(func(c *call, l *driver.Lease) {
				if c.note("removed "+l.Name, nil) != nil {
					l.Token = 1
				}
			})},
		{name: "each Locker counts tokens by itself", red: "token/another Locker, token/rises",
			do: grants(func(c *call, l *driver.Lease) { l.Token = uint64(c.count(c.own("grants"))) })},
		{name: "another's lease is returned", says: "returned another's name, ID, owner or TTL", red: "acquire/free",
			do: grants(func(_ *call, l *driver.Lease) { l.ID = driver.NewLeaseID("other") })},
		{name: "a lease comes with an error", says: "together with an error", red: "acquire/held",
			do: answers(driver.MethodTryAcquire, func(c *call, a *driver.Answer) { a.Lease.Name = c.lock() })},
		{name: "released locks stay held", says: "should be granted", red: "acquire/free, release/frees, release/by name and ID",
			do: ignores(driver.MethodRelease, always)},
		{name: "whoever asked may release", red: "release/late and doubled",
			do: chain(asks(func(c *call) { c.note("asked "+c.Request.ID.Reveal(), true) }),
				frees(driver.MethodRelease, func(c *call) bool { return c.noted("asked "+c.Lease.ID.Reveal()) != nil }))},
		{name: "a refused request is released, but late", red: "acquire/after refusals",
			do: answers(driver.MethodTryAcquire, func(c *call, a *driver.Answer) {
				if id := "refused " + c.Request.ID.Reveal(); a.Err != nil {
					c.note(id, true)
				} else if c.note(id, nil) != nil {
					c.free(c.lock())
				}
			})},
		{name: "every request is granted", red: "acquire/held, acquire/one winner, race/exclusion, data/refused request",
			do: frees(driver.MethodTryAcquire, always)},
		{name: "a new name is checked, then taken", says: "of 64 requests at once", red: "acquire/one winner",
			do: checkThenAct(func(r driver.Record) bool { return r.Token == 0 })},
		{name: "an expired lock is checked, then taken", says: "of 16 requests at once", red: "expiry/one winner",
			do: checkThenAct(func(r driver.Record) bool { return r.Token != 0 && r.State == driver.StateFree })},
		{name: "the owner proves ownership", red: "acquire/owner proves nothing",
			do: frees(driver.MethodTryAcquire, func(c *call) bool { return c.record(c.lock()).Owner == c.Request.Owner })},
		{name: "a repeat gets a new token", says: "the repeat got token", red: "acquire/repeat, acquire/repeats at once",
			do: frees(driver.MethodTryAcquire, isRepeat)},
		{name: "a repeat is refused", red: "acquire/repeat, acquire/repeats at once, acquire/repeat extends",
			do: excludes(isRepeat)},
		{name: "a repeat replaces the data", says: `the data are "second"`, red: "acquire/repeat",
			do: repeats(func(c *call) driver.Answer {
				a := c.send()
				if a.Err == nil {
					a.Err = c.write(a.Lease, c.Request.Data)
				}
				return a
			})},
		{name: "a repeat does not extend", says: "before the lease could end", red: "acquire/repeat extends, breaker/runs out",
			do: repeats(func(c *call) driver.Answer {
				lease := c.lease()
				lease.Token = c.record(lease.Name).Token
				return driver.Answer{Lease: lease}
			})},
		{name: "the same ID is refused forever", red: "expiry/same ID",
			do: asks(func(c *call) {
				if c.note("used "+c.Request.ID.Reveal(), true) != nil && isFree(c) {
					c.Request.ID, c.Request.TTL = newID(), time.Hour // the grant is to an ID that nobody knows
				}
			})},
		{name: "the same ID keeps its token forever", red: "expiry/same ID",
			do: grants(func(c *call, l *driver.Lease) { l.Token = first(c, "token of "+l.ID.Reveal(), l.Token) })},
		{name: "Replace is ignored", says: "should be granted", red: "acquire/replace",
			do: asks(func(c *call) { c.Request.Replace = driver.Revision{} })},
		{name: "Replace is not compared", red: "acquire/replace",
			do: frees(driver.MethodTryAcquire, func(c *call) bool { return !c.Request.Replace.IsZero() })},
		{name: "a refused request leaves its data", red: "data/refused request",
			do: answers(driver.MethodTryAcquire, func(c *call, a *driver.Answer) {
				if a.Err == nil {
					c.note("lease of "+c.lock(), a.Lease)
				} else if holder, ok := c.noted("lease of " + c.lock()).(driver.Lease); ok {
					_ = c.write(holder, c.Request.Data)
				}
			})},
	}
}

// shortens has a lease end one TTL after a call for which when holds, even if it lasted longer before.
func shortens(when func(c *call) bool) spoil {
	return each(func(c *call) driver.Answer {
		end := "end of " + c.lock()
		if at, ok := c.noted(end).(time.Time); ok && c.Method == driver.MethodTryAcquire && !c.now().Before(at) {
			c.note(end, nil)
			c.free(c.lock())
		}
		a := c.send()
		if a.Err == nil && when(c) {
			c.note(end, c.now().Add(c.lease().TTL))
		}
		return a
	})
}

func leaseFaults() []fault {
	const early = "before the lease could end"
	tenth := func(ttl time.Duration) time.Duration { return ttl / 10 * 9 }
	return []fault{
		{name: "expiry is ignored", says: "is still held", red: "expiry/takeover, expiry/inspect, expiry/one winner, renew/extends",
			do: asks(func(c *call) { c.Request.TTL *= 1000 })},
		{name: "leases end early", says: early, red: "expiry/takeover, expiry/inspect, renew/longer, breaker/runs out",
			do: chain(asks(func(c *call) { c.Request.TTL = tenth(c.Request.TTL) }),
				sends(driver.MethodRenew, func(c *call) { c.Lease.TTL = tenth(c.Lease.TTL) }))},
		{name: "leases end 10 ms early", says: early, red: "expiry/takeover",
			do: asks(func(c *call) { c.Request.TTL -= 10 * time.Millisecond })},
		{name: "the second lease of a name is short", says: early, red: "expiry/each wait is whole",
			do: asks(func(c *call) {
				if c.count("grants of "+c.lock()) > 1 {
					c.Request.TTL /= 2
				}
			})},
		{name: "renewals do nothing", says: early, red: "renew/extends, renew/longer, renew/expired but untaken",
			do: sends(driver.MethodRenew, func(c *call) { c.Lease.TTL = time.Millisecond })},
		{name: "renewals shorten", says: early, red: "renew/never shortens",
			do: shortens(func(c *call) bool { return c.Method == driver.MethodRenew })},
		{name: "repeats shorten", says: early, red: "acquire/repeat never shortens",
			do: shortens(func(c *call) bool {
				return c.Method == driver.MethodTryAcquire && c.note("used "+c.Request.ID.Reveal(), true) != nil
			})},
		{name: "batches shorten", red: "batch/never shortens",
			do: shortens(func(c *call) bool { return c.Method == driver.MethodRenewBatch })},
		{name: "the recorded TTL shrinks with a renewal", says: "would replace a live lease", red: "renew/never shortens",
			do: chain(sends(driver.MethodRenew, func(c *call) { c.note("TTL of "+c.lock(), c.Lease.TTL) }),
				inspects(func(c *call, r *driver.Record) {
					if ttl, ok := c.noted("TTL of " + r.Name).(time.Duration); ok {
						r.TTL = ttl
					}
				}))},
		{name: "an expired lease is not renewed", red: "renew/expired but untaken",
			do: refuses(driver.MethodRenew, driver.ErrLost, isFree)},
		{name: "only the Locker that acquired may renew", red: "renew/any Locker",
			do: chain(asks(func(c *call) { c.note(c.own("acquires"), true) }), refuses(driver.MethodRenew, driver.ErrLost,
				func(c *call) bool { return c.noted(c.own("acquires")) == nil }))},
		{name: "a lost renewal says nil", says: "want ErrLost",
			red: "renew/released, renew/stale, renew/unknown name, renew/removed, expiry/takeover, race/exclusion, " +
				"acquire/owner proves nothing, acquire/replace",
			do: answers(driver.MethodRenew, func(c *call, a *driver.Answer) {
				if errors.Is(a.Err, driver.ErrLost) {
					*a = c.pretend()
				}
			})},
		{name: "a lost renewal is some error", says: "want ErrLost", red: "renew/stale, renew/unknown name",
			do: answers(driver.MethodRenew, func(c *call, a *driver.Answer) {
				if a.Err != nil {
					a.Err = c.err(errors.New("matched 0 documents"))
				}
			})},
		{name: "renewals take the lock again", red: "renew/stale, expiry/takeover",
			do: answers(driver.MethodRenew, func(c *call, a *driver.Answer) {
				if l := c.Lease; a.Err != nil {
					c.free(l.Name)
					*a = c.next(c.ctx, driver.Call{Method: driver.MethodTryAcquire,
						Request: driver.Request{Name: l.Name, ID: l.ID, Owner: l.Owner, TTL: l.TTL}})
					a.Lease.Token = l.Token
				}
			})},
		{name: "renewals clear the data", red: "renew/keeps the data",
			do: answers(driver.MethodRenew, func(c *call, _ *driver.Answer) { _ = c.write(c.Lease, nil) })},
		{name: "a release frees another's lock",
			red: "release/stale, release/by name and ID, acquire/owner proves nothing, race/exclusion, expiry/takeover, breaker/BreakNow",
			do:  frees(driver.MethodRelease, always)},
		{name: "the second release is an error", red: "release/idempotent",
			do: refuses(driver.MethodRelease, driver.ErrLost,
				func(c *call) bool { return c.note("released "+c.Lease.ID.Reveal(), true) != nil })},
		{name: "a release compares the token", red: "release/by name and ID, context/ends during",
			do: ignores(driver.MethodRelease, func(c *call) bool { return c.record(c.lock()).Token != c.Lease.Token })},
		{name: "a release deletes the record", red: "release/keeps token and data, token/rises, data/kept or replaced, datastore/read",
			do: forgets(answers(driver.MethodRelease, func(c *call, _ *driver.Answer) { c.forget(c.lock()) }))},
		{name: "a release waits for the lease's end", red: "release/frees",
			do: on(driver.MethodRelease, func(c *call) driver.Answer {
				return c.next(c.ctx, driver.Call{Method: driver.MethodBreak, Name: c.lock(), Target: driver.BreakAnybody()})
			})},
	}
}
