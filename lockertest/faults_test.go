package lockertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// fault is one way of breaking the contract.
type fault struct {
	name string
	red  string                       // the clauses that must fail, with commas between them
	says string                       // part of the text of a failure
	do   spoil                        // what happens to calls, if not nil
	info func(*fixture, *driver.Info) // changes what the Locker declares, if not nil
	has  func(*driver.Capabilities)   // changes its capabilities, if not nil
}

// allFaults is the table: the files faults_*_test.go have its parts.
func allFaults() []fault {
	return slices.Concat(grantFaults(), leaseFaults(), recordFaults(), historyFaults(), inputFaults(), errorFaults(), contextFaults(),
		closeFaults(), declarationFaults(), lastingFaults(), notSentFaults(), stateFaults(), batchFaults(), inspectBatchFaults(),
		listerFaults(), breakerFaults(), checkerFaults(), dataStoreFaults(), wakeFaults(), queueFaults(), sharedFaults())
}

// racing are the clauses that make many calls at once. Whether these calls meet is up to the
// scheduler, so that one run of such a clause may miss a fault.
var racing = []string{
	"acquire/one winner", "acquire/repeats at once", "expiry/one winner", "race/exclusion", "release batch/race", "datastore/one of many",
}

// TestFaults breaks the memory driver in many ways. The clauses about each fault must detect it.
func TestFaults(t *testing.T) {
	detected := map[string]bool{}
	for _, f := range allFaults() {
		red := strings.Split(f.red, ", ")
		for _, name := range red {
			detected[name] = true
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			cfg := newFixture().config(f)
			cfg.Slack = 300 * time.Millisecond // what never happens is waited for that long
			s := newSuite(t, cfg)
			s.soon, s.ownLimit = time.Second, time.Second
			said := ""
			for _, name := range red {
				failures := s.failures(t, name)
				for again := 0; len(failures) == 0 && again < 30 && slices.Contains(racing, name); again++ {
					failures = s.failures(t, name)
				}
				if len(failures) == 0 {
					t.Errorf("clause %q did not detect the fault", name)
				}
				said += fmt.Sprintln(failures)
			}
			if !containsFold(said, f.says) {
				t.Errorf("the failures do not say %q:\n%s", f.says, said)
			}
		})
	}
	for _, c := range clauses() {
		if !detected[c.name] {
			t.Errorf("clause %q detects no fault", c.name)
		}
	}
}

// TestNoFaults shows that the failures in TestFaults come from the faults.
func TestNoFaults(t *testing.T) { allPass(t, newSuite(t, newFixture().config(fault{}))) }

// allPass runs all clauses, except those that the suite leaves out.
func allPass(t *testing.T, s *suite) {
	t.Helper()
	for _, c := range clauses() {
		if !s.can(c.needs) {
			continue
		}
		if failures := s.await(s.start(t, c)); len(failures) > 0 {
			t.Errorf("%s: %q", c.name, failures)
		}
	}
}

// failures runs one clause and returns its failures.
func (s *suite) failures(t *testing.T, name string) []string {
	t.Helper()
	for _, c := range clauses() {
		if c.name == name {
			if why := s.lacking(c.needs); why != nil {
				t.Fatalf("clause %q is left out: %q", name, why)
			}
			return s.await(s.start(t, c))
		}
	}
	t.Fatalf("there is no clause %q", name)
	return nil
}

func containsFold(s, part string) bool {
	return strings.Contains(strings.ToLower(s), strings.ToLower(part))
}

// The rest of this file is what the entries of the table are made of.

// on spoils the calls of one method.
func on(method driver.Method, do spoil) spoil {
	return func(c *call) driver.Answer {
		if c.Method != method {
			return c.send()
		}
		return do(c)
	}
}

// each spoils every call that takes a context but Close. Of a batch it spoils a call for each lock, whose answer has Err, Lease and
// Record, like that of other calls.
func each(do spoil) spoil {
	return func(c *call) (all driver.Answer) {
		switch c.Method {
		case driver.MethodWake, driver.MethodClose:
			return c.send()
		case driver.MethodRenewBatch, driver.MethodReleaseBatch, driver.MethodInspectBatch:
			for i := range max(len(c.Leases), len(c.Names)) {
				one := *c
				if c.Method == driver.MethodInspectBatch {
					one.Names = c.Names[i : i+1]
				} else {
					one.Leases = c.Leases[i : i+1]
				}
				one.next = func(ctx context.Context, of driver.Call) driver.Answer {
					a := c.next(ctx, of)
					if a.Err == nil && len(a.Errs) > 0 {
						a.Err = a.Errs[0]
					}
					if len(a.Leases) > 0 {
						a.Lease = a.Leases[0]
					}
					if len(a.Records) > 0 {
						a.Record = a.Records[0]
					}
					return a
				}
				a := do(&one)
				all.Leases, all.Records, all.Errs = append(all.Leases, a.Lease), append(all.Records, a.Record), append(all.Errs, a.Err)
			}
			return all
		}
		return do(c)
	}
}

// chain makes a fault of two: the first gets a call, and what it sends goes to the second.
func chain(first, second spoil) spoil {
	return func(c *call) driver.Answer {
		outer := *c
		outer.next = func(ctx context.Context, of driver.Call) driver.Answer {
			inner := *c
			inner.Call, inner.ctx = of, ctx
			return second(&inner)
		}
		return first(&outer)
	}
}

// sends changes the calls of a method on their way to the store. The lease that it answers has what the caller asked for.
func sends(method driver.Method, change func(c *call)) spoil {
	return on(method, func(c *call) driver.Answer {
		asked := c.Concerned()
		change(c)
		a := c.send()
		if a.Lease != (driver.Lease{}) {
			a.Lease.Name, a.Lease.ID, a.Lease.TTL, a.Lease.Mode = asked.Name, asked.ID, asked.TTL, asked.Mode
		}
		return a
	})
}

// asks changes requests on their way to the store.
func asks(change func(c *call)) spoil { return sends(driver.MethodTryAcquire, change) }

// answers changes the answers to the calls of a method.
func answers(method driver.Method, change func(c *call, a *driver.Answer)) spoil {
	return on(method, func(c *call) driver.Answer {
		a := c.send()
		change(c, &a)
		return a
	})
}

// grants changes the leases that are granted.
func grants(change func(c *call, l *driver.Lease)) spoil {
	return answers(driver.MethodTryAcquire, func(c *call, a *driver.Answer) {
		if a.Err == nil {
			change(c, &a.Lease)
		}
	})
}

// inspects changes the records from Inspect and in errors.
func inspects(change func(c *call, r *driver.Record)) spoil {
	return func(c *call) driver.Answer {
		a := c.send()
		var held *driver.HeldError
		switch {
		case c.Method == driver.MethodInspect && a.Err == nil:
			change(c, &a.Record)
		case c.Method == driver.MethodTryAcquire && errors.As(a.Err, &held):
			change(c, &held.Record)
		}
		return a
	}
}

// inspectsEach changes the records from InspectBatch.
func inspectsEach(change func(c *call, r *driver.Record)) spoil {
	return answers(driver.MethodInspectBatch, func(c *call, a *driver.Answer) {
		for i := range a.Records {
			if a.Errs[i] == nil {
				change(c, &a.Records[i])
			}
		}
	})
}

// fails changes the errors of all calls.
func fails(change func(c *call, err error) error) spoil {
	return each(func(c *call) driver.Answer {
		a := c.send()
		if a.Err != nil {
			a.Err = change(c, a.Err)
		}
		return a
	})
}

// ignores answers that all went well, without the store, where when holds.
func ignores(method driver.Method, when func(c *call) bool) spoil {
	return on(method, func(c *call) driver.Answer {
		if when(c) {
			return c.pretend()
		}
		return c.send()
	})
}

// refuses answers with an error, without the store, where when holds.
func refuses(method driver.Method, err error, when func(c *call) bool) spoil {
	return on(method, func(c *call) driver.Answer {
		if when(c) {
			return c.fail(err)
		}
		return c.send()
	})
}

// excludes refuses requests for which when holds, as if another held the lock.
func excludes(when func(c *call) bool) spoil {
	return on(driver.MethodTryAcquire, func(c *call) driver.Answer {
		if !when(c) {
			return c.send()
		}
		r := c.record(c.lock())
		r.State, r.History = driver.StateHeld, nil // its last holder may be the one that seems to hold it
		return driver.Answer{Err: heldErr(r)}
	})
}

// frees frees the lock before a call for which when holds.
func frees(method driver.Method, when func(c *call) bool) spoil {
	return sends(method, func(c *call) {
		if when(c) {
			c.free(c.lock())
		}
	})
}

func always(*call) bool { return true }

// isFree reports whether the lock is free, or was never held.
func isFree(c *call) bool { return c.record(c.lock()).State == driver.StateFree }

// reverses has a batch answer in the wrong order.
func reverses(method driver.Method) spoil {
	return answers(method, func(_ *call, a *driver.Answer) {
		slices.Reverse(a.Errs)
		slices.Reverse(a.Records)
	})
}

// cuts has a batch end at n locks.
func cuts(method driver.Method, n int) spoil {
	return sends(method, func(c *call) {
		c.Leases, c.Names = c.Leases[:min(len(c.Leases), n)], c.Names[:min(len(c.Names), n)]
	})
}

// wakeups has do get each wake-up, which it may pass on by c.Wake.
func wakeups(do func(c *call, up driver.Wakeup)) spoil {
	return sends(driver.MethodWake, func(c *call) {
		asked := *c
		c.Wake = func(up driver.Wakeup) { do(&asked, up) }
	})
}

// silences has the wake-ups for which when holds not arrive.
func silences(when func(c *call, up driver.Wakeup) bool) spoil {
	return wakeups(func(c *call, up driver.Wakeup) {
		if !when(c, up) {
			c.Wake(up)
		}
	})
}

// forgets adds to a fault that removes records by forget: their next tokens come from the clock alone, as in a
// store that knows nothing of a name without a record.
func forgets(do spoil) spoil {
	return chain(grants(func(c *call, l *driver.Lease) {
		if c.noted("forgotten "+l.Name) != nil {
			l.Token = uint64(c.now().UnixMilli())
		}
	}), do)
}
