package lockertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func errorFaults() []fault {
	// instead has the errors of one meaning say something else.
	instead := func(meaning, other error) spoil {
		return fails(func(c *call, err error) error {
			if errors.Is(err, meaning) {
				return c.err(other)
			}
			return err
		})
	}
	return []fault{
		{name: "ErrHeld without a record", says: "ErrHeld without a *HeldError", red: "acquire/held, acquire/one winner",
			do: instead(driver.ErrHeld, driver.ErrHeld)},
		{name: "held is an unknown outcome", says: "want a *HeldError", red: "acquire/held, acquire/one winner",
			do: instead(driver.ErrHeld, errors.New("duplicate key"))},
		{name: "the HeldError says free", says: "says that the lock is free", red: "acquire/held",
			do: fails(func(c *call, err error) error {
				if errors.Is(err, driver.ErrHeld) {
					return heldErr(driver.Record{Name: c.lock(), State: driver.StateFree})
				}
				return err
			})},
		{name: "invalid without a field", says: "names field and rule", red: "argument/TTL, argument/ID",
			do: instead(driver.ErrInvalid, driver.ErrInvalid)},
		{name: "IDs in errors", says: "shows the lease ID: ", red: "acquire/held, renew/stale, release/stale",
			do: chain(
				fails(func(c *call, err error) error {
					return c.err(fmt.Errorf("for lease %s: %w", c.lease().ID.Reveal(), err))
				}),
				refuses(driver.MethodRelease, errors.New("no such lease"), func(c *call) bool { return !c.holds(c.Lease) }))},
		{name: "a secret in errors", says: "shows a secret: ", red: "acquire/held",
			do: fails(func(c *call, err error) error { return c.err(fmt.Errorf("at db://me:pa55word@host: %w", err)) })},
		{name: "errors with the prefix of another", says: "has it nowhere else", red: "acquire/held, name/invalid",
			do: fails(func(c *call, err error) error { return c.err(fmt.Errorf("the server: %w", err)) })},
		{name: "errors without operation", says: "no *OpError", red: "acquire/held, renew/stale, name/invalid",
			do: fails(func(_ *call, err error) error { return errors.Unwrap(err) })},
		{name: "errors name no backend", says: "want both", red: "acquire/held",
			do: fails(func(c *call, err error) error {
				return &driver.OpError{Op: "try", Name: c.lock(), Err: errors.Unwrap(err)}
			})},
		{name: "errors name another lock", says: "the OpError names lock", red: "acquire/held",
			do: fails(func(_ *call, err error) error { return opErr("another", errors.Unwrap(err)) })},
		{name: "errors with two meanings", says: "means several things at once", red: "renew/stale",
			do: fails(func(c *call, err error) error { return c.err(errors.Join(err, driver.ErrClosed)) })},
		{name: "a loss that is also a timeout", says: "the outcome is unknown", red: "renew/stale",
			do: fails(func(c *call, err error) error { return c.err(errors.Join(err, context.DeadlineExceeded)) })},
	}
}

func contextFaults() []fault {
	const pastSoon = 1100 * time.Millisecond // TestFaults gives calls a second
	return []fault{
		{name: "contexts are ignored", red: "context/ended before",
			do: each(func(c *call) driver.Answer { c.ctx = context.WithoutCancel(c.ctx); return c.send() })},
		{name: "batch reads ignore the context", red: "context/ended before, inspectbatch/context ended",
			do: sends(driver.MethodInspectBatch, func(c *call) { c.ctx = context.WithoutCancel(c.ctx) })},
		{name: "an error wraps the context's cause", red: "context/cause",
			do: on(driver.MethodRenew, func(c *call) driver.Answer {
				if c.ctx.Err() != nil {
					return c.fail(fmt.Errorf("%w: %w", c.ctx.Err(), context.Cause(c.ctx)))
				}
				return c.send()
			})},
		{name: "a request under way ends with the context's cause", says: "another lock's",
			red: "context/hanging backend, context/ends during",
			do: each(func(c *call) driver.Answer {
				if c.ctx.Err() != nil { // it is not sent
					return c.fail(c.ctx.Err())
				}
				_ = c.wait()
				select {
				case <-time.After(2 * time.Millisecond):
				case <-c.ctx.Done():
				}
				if c.ctx.Err() != nil {
					return c.fail(context.Cause(c.ctx))
				}
				return c.send()
			})},
		{name: "a call goes on after its context has ended", says: "after its context had ended", red: "context/ends during",
			do: asks(func(c *call) {
				if c.count("calls") == 1 {
					time.Sleep(pastSoon)
				}
			})},
		{name: "a context's end is hidden", red: "context/ended before, context/ends during",
			do: each(func(c *call) driver.Answer {
				time.Sleep(time.Millisecond)
				// A context may end a little later than its deadline.
				if end, limited := c.ctx.Deadline(); c.ctx.Err() != nil || limited && time.Now().After(end) {
					return c.fail(errors.New("it took too long"))
				}
				return c.send()
			})},
		{name: "a call waits for a hanging backend", says: "after its context had ended", red: "context/hanging backend",
			do: each(func(c *call) driver.Answer {
				if c.stalled() != nil {
					time.Sleep(2 * pastSoon)
				}
				return c.send()
			})},
		{name: "a call has no time limit of its own", says: "it had not returned", red: "context/own limit",
			do: each(func(c *call) driver.Answer {
				if _, limited := c.ctx.Deadline(); !limited {
					c.hang()
				}
				return c.send()
			})},
		{name: "a call hangs until the backend answers", says: "had not returned", red: "context/hanging backend, context/own limit",
			do: each(func(c *call) driver.Answer { c.hang(); return c.send() })},
		{name: "a hanging backend counts as done", red: "context/own limit, context/hanging backend",
			do: ignores(driver.MethodRenew, func(c *call) bool { return c.wait() != nil })},
	}
}

func closeFaults() []fault {
	closing := func(first func(c *call)) spoil { return sends(driver.MethodClose, first) }
	return []fault{
		{name: "Close is ignored", says: "want ErrClosed", red: "close/ErrClosed, close/while in use", do: ignores(driver.MethodClose, always)},
		{name: "Close with a context that has ended is refused", red: "close/ended context",
			do: refuses(driver.MethodClose, context.Canceled, func(c *call) bool { return c.ctx.Err() != nil })},
		{name: "Close hangs until the backend answers", says: "Close had not returned", red: "close/hanging backend",
			do: closing(func(c *call) { c.hang() })},
		{name: "Close waits for a hanging backend", says: "after its context had ended", red: "close/hanging backend",
			do: closing(func(c *call) {
				if c.stalled() != nil {
					time.Sleep(2200 * time.Millisecond)
				}
			})},
		{name: "the second Close is an error", red: "close/ErrClosed, close/while in use",
			do: refuses(driver.MethodClose, driver.ErrClosed, func(c *call) bool { return c.count(c.own("closes")) > 1 })},
		{name: "Close releases", red: "close/leases stay",
			do: chain(asks(func(c *call) { c.note(c.own("lock"), c.lock()) }), closing(func(c *call) {
				if name, ok := c.noted(c.own("lock")).(string); ok {
					c.free(name)
				}
			}))},
		{name: "Close closes the store", red: "close/others unaffected, close/leases stay",
			do: chain(ignores(driver.MethodClose, func(c *call) bool { c.note("closed", true); return true }),
				each(func(c *call) driver.Answer {
					if c.noted("closed") != nil {
						return c.fail(driver.ErrClosed)
					}
					return c.send()
				}))},
	}
}

// declarationFaults are of drivers that declare what does not fit together, or more than they keep.
func declarationFaults() []fault {
	const day = 24 * time.Hour
	free := func(change func(c *call, r *driver.Record)) spoil {
		return inspects(func(c *call, r *driver.Record) {
			if r.State == driver.StateFree {
				change(c, r)
			}
		})
	}
	return []fault{
		{name: "Backend is not what the errors say", says: `Info.Backend is "store"`, red: "info/backend",
			info: func(_ *fixture, i *driver.Info) { i.Backend = "store" }},
		{name: "limits that change", red: "info/sane",
			info: func(w *fixture, i *driver.Info) { i.Limits.MaxName -= w.count("limits") }},
		{name: "limits that do not fit together", red: "info/sane", info: func(_ *fixture, i *driver.Info) { i.Limits.Poll = 0 }},
		{name: "a queue without turns", says: "Info.Turn is 0", red: "info/sane", info: func(_ *fixture, i *driver.Info) { i.Turn = 0 }},
		{name: "a queue without a Waker", says: "no Waker that wakes its waiters", red: "info/sane",
			has: func(c *driver.Capabilities) { c.Waker = nil }},
		{name: "GrantsSurvive, and a fail-over forgets the last grant", says: "after a fail-over another request",
			red: "failover/grants survive", do: grants(func(c *call, l *driver.Lease) { c.note("lost in a fail-over", l.Name) })},
		{name: "ByServer, and a lease is judged by observation", says: "as if leases were judged by observation",
			red: "expiry/a new Locker",
			do: excludes(func(c *call) bool {
				seen := first(c, c.own("first sees "+c.lock()), c.now())
				return c.record(c.lock()).Token != 0 && c.now().Sub(seen) < 15*time.Second // whose lease it is does not matter here
			})},
		{name: "Free.Token, and a free lock shows none", says: "is 0, want", red: "free/token, free/stays",
			do: free(func(_ *call, r *driver.Record) { r.Token = 0 })},
		{name: "Free.Data, and they end with the lease", says: "the data of a lock that has expired are nil", red: "free/data",
			do: free(func(_ *call, r *driver.Record) {
				if len(r.History) == 0 || r.History[0].End == driver.EndExpired {
					r.Data = nil
				}
			})},
		{name: "Free.Data, and the next holder does not find them", says: "held by the next", red: "free/data",
			do: inspects(func(_ *call, r *driver.Record) {
				if r.State == driver.StateHeld && len(r.History) > 0 {
					r.Data = nil
				}
			})},
		{name: "RemovedAfter is 0, and a record is removed after a day", says: "after its release a lock is free with token 0",
			red: "free/stays",
			do: free(func(c *call, r *driver.Record) {
				if len(r.History) > 0 && c.now().Sub(r.History[0].Until) > day {
					*r = driver.Record{Name: r.Name, State: driver.StateFree}
				}
			})},
	}
}

func lastingFaults() []fault {
	const damaged = "lasting/damaged"
	const both = "lasting/denied, " + damaged
	// lasting spoils calls that the store refuses.
	lasting := func(method driver.Method, do func(c *call, refusal error) driver.Answer) spoil {
		return on(method, func(c *call) driver.Answer {
			if refusal := c.refusal(); refusal != nil {
				return do(c, refusal)
			}
			return c.send()
		})
	}
	// reaches spoils requests for a lock in a state: they are refused, but the store gets them.
	reaches := func(state driver.State) spoil {
		return lasting(driver.MethodTryAcquire, func(c *call, refusal error) driver.Answer {
			if c.record(c.lock()).State == state {
				_, _ = c.plain.TryAcquire(context.Background(), c.Request)
			}
			return driver.Answer{Err: refusal}
		})
	}
	return []fault{
		{name: "a refused renewal counts as a loss", says: "Renew of a lock (held: true)", red: both,
			do: lasting(driver.MethodRenew, func(c *call, _ error) driver.Answer { return c.fail(driver.ErrLost) })},
		{name: "a refused request takes the lock", says: "the lock is ", red: both, do: reaches(driver.StateFree)},
		{name: "a refused request takes a position", says: "which should be granted", red: both, do: reaches(driver.StateHeld)},
		{name: "a refusal leaves the outcome unknown", says: "got error", red: both,
			do: lasting(driver.MethodTryAcquire, func(c *call, _ error) driver.Answer { return c.fail(errors.New("not now")) })},
		{name: "a refused request is sent again and again", says: "returned after", red: both,
			do: lasting(driver.MethodTryAcquire, func(c *call, _ error) driver.Answer {
				time.Sleep(1100 * time.Millisecond) // TestFaults gives calls a second
				return c.send()
			})},
		{name: "a lock that was refused once stays refused", says: "Inspect of", red: both,
			do: each(func(c *call) driver.Answer {
				if err := c.refusal(); err != nil {
					c.note("was refused "+c.lock(), err)
				}
				if err, was := c.noted("was refused " + c.lock()).(error); was {
					return driver.Answer{Err: err}
				}
				return c.send()
			})},
		{name: "a damaged record counts as a free lock", says: "TryAcquire of a lock (held: true), damaged", red: damaged,
			do: lasting(driver.MethodTryAcquire, func(c *call, _ error) (a driver.Answer) {
				c.free(c.lock())
				a.Lease, a.Err = c.plain.TryAcquire(context.Background(), c.Request)
				return a
			})},
		{name: "a damaged record is not shown", says: "Inspect of a lock (held: true), damaged", red: damaged,
			do: lasting(driver.MethodInspect, func(c *call, _ error) driver.Answer { return driver.Answer{Record: c.record(c.lock())} })},
		{name: "a record that is refused is not listed", says: "List of a lock (held: true)", red: both,
			do: lasting(driver.MethodList, func(*call, error) driver.Answer { return driver.Answer{} })},
		{name: "a damaged record fails its batch", says: "beside a damaged record", red: damaged,
			do: lasting(driver.MethodInspectBatch, func(_ *call, refusal error) driver.Answer { return driver.Answer{Err: refusal} })},
	}
}

// notSentFaults are of drivers that say of a request that was sent that it was not.
func notSentFaults() []fault {
	// brief spoils the requests with little time. With more time it is the suite that wants the lock.
	brief := func(do func(c *call) error) spoil {
		return on(driver.MethodTryAcquire, func(c *call) driver.Answer {
			if deadline, ok := c.ctx.Deadline(); !ok || time.Until(deadline) > 2*time.Second {
				return c.send()
			}
			return driver.Answer{Err: do(c)}
		})
	}
	unsent := func(c *call, err error) error {
		return &driver.OpError{Op: "try", Backend: "memory", Name: c.lock(), Err: err, NotSent: true}
	}
	return []fault{
		{name: "a request whose answer is lost counts as not sent", says: "another request for that lock then got error",
			red: "not sent/fail-over, not sent/context ends, not sent/hanging backend",
			do: brief(func(c *call) error {
				if _, err := c.plain.TryAcquire(context.Background(), c.Request); err != nil {
					return err
				}
				return unsent(c, errors.New("connection reset"))
			})},
		{name: "a request without an answer in time counts as not sent", says: "a little later the lock is held",
			red: "not sent/hanging backend, not sent/context ends",
			do: brief(func(c *call) error {
				<-c.ctx.Done()
				time.AfterFunc(50*time.Millisecond, func() { _, _ = c.plain.TryAcquire(context.Background(), c.Request) })
				return unsent(c, c.ctx.Err())
			})},
	}
}
