package lockertest

import (
	"context"
	"crypto/rand"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// remembers gives leases a State. lie answers a call of a lease by itself, or returns nil. old says that the lease's State is not the
// present one, and not empty.
func remembers(lie func(c *call, old bool) *driver.Answer) spoil {
	return each(func(c *call) driver.Answer {
		key := "state of " + c.lease().ID.Reveal()
		if present, ok := c.noted(key).(driver.LeaseState); ok {
			state := c.lease().State
			if a := lie(c, !state.IsZero() && state.Content() != present.Content()); a != nil {
				return *a
			}
		}
		a := c.send()
		if a.Err == nil && (c.Method == driver.MethodTryAcquire || renewing(c)) {
			a.Lease.State = driver.NewLeaseState(rand.Text())
			c.note(key, a.Lease.State)
		}
		return a
	})
}

func renewing(c *call) bool {
	return c.Method == driver.MethodRenew || c.Method == driver.MethodRenewBatch
}

func stateFaults() []fault {
	// believes answers calls of leases whose State is old, or the present one.
	believes := func(method driver.Method, wantsOld bool, answer func(c *call) driver.Answer) spoil {
		return remembers(func(c *call, old bool) *driver.Answer {
			if c.Method != method || old != wantsOld || c.lease().State.IsZero() {
				return nil
			}
			a := answer(c)
			return &a
		})
	}
	// loses has a renewal be a loss.
	loses := func(when func(c *call, old bool) bool) spoil {
		return remembers(func(c *call, old bool) *driver.Answer {
			if !renewing(c) || !when(c, old) {
				return nil
			}
			a := c.fail(driver.ErrLost)
			return &a
		})
	}
	renewals := func(change func(*driver.Lease)) spoil {
		return each(func(c *call) driver.Answer {
			a := c.send()
			if renewing(c) {
				change(&a.Lease)
			}
			return a
		})
	}
	return []fault{
		{name: "an old State is a loss", says: "Renew by the holder", red: "state/old, state/empty, state/of another lease, state/in a batch",
			do: loses(func(_ *call, old bool) bool { return old })},
		{name: "an empty State is a loss", says: "Renew by the holder", red: "state/empty, state/in a batch",
			do: loses(func(c *call, _ bool) bool { return c.lease().State.IsZero() })},
		{name: "renewals believe their State", says: "Renew by the predecessor", red: "state/lost, renew/stale",
			do: believes(driver.MethodRenew, false, (*call).pretend)},
		{name: "releases believe their State", says: "which should be granted", red: "state/old, state/of another lease",
			do: believes(driver.MethodRelease, true, (*call).pretend)},
		{name: "writes believe their State", says: "WriteData by the holder", red: "state/old",
			do: believes(driver.MethodWriteData, true, func(c *call) driver.Answer { return c.fail(driver.ErrConflict) })},
		{name: "a renewal returns another token", says: "returned another lease", red: "state/kept, renew/any Locker, state/in a batch",
			do: renewals(func(l *driver.Lease) { l.Token++ })},
		{name: "a renewal returns no ID", says: "returned another lease", red: "state/kept, state/in a batch",
			do: renewals(func(l *driver.Lease) { l.ID = driver.LeaseID{} })},
		{name: "a renewal returns nothing", says: "returned another lease", red: "state/kept, renew/any Locker",
			do: renewals(func(l *driver.Lease) { *l = driver.Lease{} })},
		{name: "a batch returns no leases", says: "returned 0 leases", red: "batch/mixed",
			do: answers(driver.MethodRenewBatch, func(_ *call, a *driver.Answer) { a.Leases = nil })},
	}
}

// batchFaults are of batches of renewals and of releases.
func batchFaults() []fault {
	// spreads has an error of one of the leases be one of all.
	spreads := func(err error, when func(c *call, a *driver.Answer) bool) spoil {
		return answers(driver.MethodRenewBatch, func(c *call, a *driver.Answer) {
			if when(c, a) {
				for i, l := range c.Leases {
					a.Errs[i] = opErr(l.Name, err)
				}
			}
		})
	}
	// again reports whether a name occurred before in a batch.
	again := func(c *call, i int) bool {
		return slices.ContainsFunc(c.Leases[:i], func(l driver.Lease) bool { return l.Name == c.Leases[i].Name })
	}
	return []fault{
		{name: "batches do nothing", red: "batch/extends, batch/mixed, batch/context ended", do: ignores(driver.MethodRenewBatch, always)},
		{name: "batches refuse expired leases", red: "batch/expired but untaken",
			do: each(refuses(driver.MethodRenewBatch, driver.ErrLost, isFree))},
		{name: "batches answer out of order", red: "batch/mixed, batch/many", do: reverses(driver.MethodRenewBatch)},
		{name: "one loss loses the batch", red: "batch/mixed, batch/many",
			do: spreads(driver.ErrLost, func(_ *call, a *driver.Answer) bool { return errors.Join(a.Errs...) != nil })},
		{name: "a broken holder fails the batch", red: "batch/broken, shared/broken in a batch",
			do: spreads(errors.New("inconsistent answers"), func(c *call, _ *driver.Answer) bool {
				return slices.ContainsFunc(c.Leases, func(l driver.Lease) bool { return c.record(l.Name).Broken })
			})},
		{name: "a batch ends at 500", says: "returned 500 results", red: "batch/many", do: cuts(driver.MethodRenewBatch, 500)},
		{name: "batches evaluate names as expressions", red: "batch/odd names",
			do: each(refuses(driver.MethodRenewBatch, driver.ErrLost, func(c *call) bool { return strings.Contains(c.lock(), "$") }))},
		{name: "a batch renews one lease of each name", red: "shared/renewed in a batch",
			do: answers(driver.MethodRenewBatch, func(c *call, a *driver.Answer) {
				for i, l := range c.Leases {
					if again(c, i) {
						a.Errs[i] = opErr(l.Name, driver.ErrLost)
					}
				}
			})},
		{name: "a batch of releases frees others' locks",
			red: "release batch/mixed, release batch/many, release batch/late and doubled, release batch/race",
			do: each(answers(driver.MethodReleaseBatch, func(c *call, a *driver.Answer) {
				if a.Err == nil {
					c.free(c.lock())
				}
			}))},
		{name: "a batch of releases matches names and IDs apart", red: "release batch/mixed",
			do: sends(driver.MethodReleaseBatch, func(c *call) {
				for _, name := range c.Leases {
					for _, id := range c.Leases {
						if c.holds(driver.Lease{Name: name.Name, ID: id.ID}) {
							c.free(name.Name)
						}
					}
				}
			})},
		{name: "a batch of releases does nothing", red: "release batch/frees, release batch/context ended",
			do: ignores(driver.MethodReleaseBatch, always)},
		{name: "a batch of releases deletes the records", red: "release batch/frees",
			do: each(answers(driver.MethodReleaseBatch, func(c *call, _ *driver.Answer) { c.store.Remove(c.lock()) }))},
		{name: "a lost lease is an error of a batch of releases", red: "release batch/mixed, release batch/many",
			do: each(refuses(driver.MethodReleaseBatch, driver.ErrLost,
				func(c *call) bool { return c.lock() != "" && !c.holds(c.lease()) }))},
		{name: "a batch of releases answers out of order", red: "release batch/mixed", do: reverses(driver.MethodReleaseBatch)},
		{name: "a batch of releases ends at 500", says: "returned 500 results", red: "release batch/many",
			do: cuts(driver.MethodReleaseBatch, 500)},
		{name: "a batch releases one lease of each name", red: "shared/released in a batch",
			do: sends(driver.MethodReleaseBatch, func(c *call) {
				first := slices.Clone(c.Leases)
				for i := range c.Leases {
					if again(c, i) {
						first[i].ID = newID()
					}
				}
				c.Leases = first
			})},
		{name: "a batch of releases wakes nobody", says: "no call of wake", red: "release batch/wakes",
			do: chain(sends(driver.MethodReleaseBatch, func(c *call) {
				for _, l := range c.Leases {
					c.note("in a batch "+l.Name, true)
				}
			}), silences(func(c *call, _ driver.Wakeup) bool { return c.noted("in a batch "+c.lock()) != nil }))},
	}
}

func inspectBatchFaults() []fault {
	// shows answers names for which when holds as if the lock were in a state.
	shows := func(state driver.State, when func(names []string, i int) bool) spoil {
		return answers(driver.MethodInspectBatch, func(c *call, a *driver.Answer) {
			for i, name := range c.Names {
				if when(c.Names, i) {
					a.Records[i] = driver.Record{Name: name, State: state}
				}
			}
		})
	}
	return []fault{
		{name: "reads show a release after the wake-up", says: "still showed the lock as held", red: "watcher/reads",
			do: chain(on(driver.MethodRelease, func(c *call) driver.Answer { // it waits for a read, which gets the record of before
				old := c.record(c.lock())
				ctx, read := context.WithCancel(c.ctx)
				c.note("late "+c.lock(), func(r *driver.Record) { *r = old; read() })
				defer c.note("late "+c.lock(), nil)
				a := c.send()
				<-ctx.Done()
				return a
			}), inspectsEach(func(c *call, r *driver.Record) {
				if show, ok := c.noted("late " + r.Name).(func(*driver.Record)); ok {
					show(r)
				}
			}))},
		{name: "batch reads answer out of order", says: "the record's Name is", red: "inspectbatch/order, inspectbatch/many",
			do: reverses(driver.MethodInspectBatch)},
		{name: "batches answer once for a name that occurs twice", red: "inspectbatch/order",
			do: shows(driver.StateFree, func(names []string, i int) bool { return slices.Contains(names[:i], names[i]) })},
		{name: "a batch ends at 1,000", says: "returned 1000 records", red: "inspectbatch/many", do: cuts(driver.MethodInspectBatch, 1000)},
		{name: "names that are not on the first page count as free", red: "inspectbatch/many",
			do: shows(driver.StateFree, func(_ []string, i int) bool { return i > 100 })},
		{name: "batches treat names as patterns", red: "inspectbatch/odd names",
			do: shows(driver.StateHeld, func(names []string, i int) bool { return strings.HasSuffix(names[i], "*") })},
		{name: "a name without a record is an error", red: "inspectbatch/as Inspect, inspectbatch/order",
			do: each(answers(driver.MethodInspectBatch, func(c *call, a *driver.Answer) {
				if a.Err == nil && a.Record.Token == 0 {
					*a = c.fail(driver.ErrLost)
				}
			}))},
		{name: "batches do not report whether a lock is held", red: "inspectbatch/as Inspect, inspectbatch/order",
			do: inspectsEach(func(_ *call, r *driver.Record) { *r = driver.Record{Name: r.Name} })},
		{name: "batches do not report that a lock is broken", says: "Broken", red: "inspectbatch/as Inspect",
			do: inspectsEach(func(_ *call, r *driver.Record) { r.Broken = false })},
		{name: "batches report the token of the former holder", says: "token", red: "inspectbatch/as Inspect",
			do: inspectsEach(func(_ *call, r *driver.Record) { r.Token = max(r.Token, 1) - 1 })},
		{name: "batches report half the remaining time", says: "remain of", red: "inspectbatch/as Inspect",
			do: inspectsEach(func(_ *call, r *driver.Record) { r.Remaining /= 2 })},
		{name: "batches have the data", says: "want none", red: "inspectbatch/as Inspect",
			do: inspectsEach(func(c *call, r *driver.Record) { r.Data = c.record(r.Name).Data })},
		{name: "batches do not report that a lease has ended", red: "inspectbatch/expired",
			do: inspectsEach(func(_ *call, r *driver.Record) {
				if r.Token != 0 {
					r.State = driver.StateHeld
				}
			})},
	}
}

func listerFaults() []fault {
	// lists changes what List yields: found has the records with the prefix.
	lists := func(change func(c *call, found []driver.Record) []driver.Record) spoil {
		return on(driver.MethodList, func(c *call) driver.Answer {
			for _, r := range change(c, c.list(c.Name)) {
				if !c.Yield(r, nil) {
					break
				}
			}
			return driver.Answer{}
		})
	}
	return []fault{
		{name: "lists are unsorted", says: `after "lt-`, red: "lister/prefix and order",
			do: lists(func(_ *call, found []driver.Record) []driver.Record { slices.Reverse(found); return found })},
		{name: "lists are sorted as people sort", red: "lister/prefix and order",
			do: lists(func(_ *call, found []driver.Record) []driver.Record {
				slices.SortStableFunc(found, func(a, b driver.Record) int {
					return strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name))
				})
				return found
			})},
		{name: "prefixes are patterns", red: "lister/prefix and order",
			do: lists(func(c *call, _ []driver.Record) []driver.Record {
				pattern, err := regexp.Compile("^" + c.Name)
				return slices.DeleteFunc(c.list(""), func(r driver.Record) bool { return err != nil || !pattern.MatchString(r.Name) })
			})},
		{name: "free locks are not listed", red: "lister/records",
			do: lists(func(_ *call, found []driver.Record) []driver.Record {
				return slices.DeleteFunc(found, func(r driver.Record) bool { return r.State == driver.StateFree })
			})},
		{name: "lists ignore the context, and Close", red: "context/ended before, close/ErrClosed",
			do: lists(func(_ *call, found []driver.Record) []driver.Record { return found })},
		{name: "lists end early", red: "lister/early end, lister/records, name/distinct",
			do: lists(func(_ *call, found []driver.Record) []driver.Record { return found[:min(len(found), 1)] })},
	}
}

// targets changes which holder Break and BreakNow break.
func targets(change func(c *call)) spoil {
	return chain(sends(driver.MethodBreak, change), sends(driver.MethodBreakNow, change))
}

func breakerFaults() []fault {
	// as makes calls of one method calls of another.
	as := func(method, other driver.Method) spoil { return sends(method, func(c *call) { c.Method = other }) }
	broken := func(c *call) bool { return c.noted("broken "+c.lock()) != nil }
	notes := func(method driver.Method) spoil {
		return sends(method, func(c *call) { c.note("broken "+c.lock(), true) })
	}
	return []fault{
		{name: "Break does nothing", says: "want ErrLost", red: "breaker/Break, breaker/runs out, breaker/expired",
			do: ignores(driver.MethodBreak, always)},
		{name: "Break and BreakNow ignore the target", says: "want a *HeldError", red: "breaker/token, breaker/expired token",
			do: targets(func(c *call) { c.Target = driver.BreakAnybody() })},
		{name: "no target is anybody", says: "Break without a target", red: "breaker/no target",
			do: targets(func(c *call) {
				if c.Target == (driver.BreakTarget{}) {
					c.Target = driver.BreakAnybody()
				}
			})},
		{name: "an expired lease is anybody's target", red: "breaker/expired token",
			do: targets(func(c *call) {
				if isFree(c) {
					c.Target = driver.BreakAnybody()
				}
			})},
		{name: "Break frees at once", red: "breaker/Break, breaker/runs out", do: as(driver.MethodBreak, driver.MethodBreakNow)},
		{name: "BreakNow waits for the lease's end", red: "breaker/BreakNow, breaker/keeps the data",
			do: as(driver.MethodBreakNow, driver.MethodBreak)},
		{name: "BreakNow leaves renewals possible", red: "breaker/BreakNow untaken",
			do: chain(notes(driver.MethodBreakNow), ignores(driver.MethodRenew, broken))},
		{name: "an expired lease is not broken", red: "breaker/expired", do: ignores(driver.MethodBreak, isFree)},
		{name: "breaking a free lock is an error", red: "breaker/free",
			do: refuses(driver.MethodBreak, errors.New("no such lease"), isFree)},
		{name: "a broken lock stays broken", red: "breaker/Break, breaker/runs out",
			do: chain(notes(driver.MethodBreak), refuses(driver.MethodRenew, driver.ErrLost, broken))},
		{name: "breaking is not shown", red: "breaker/Break", do: inspects(func(_ *call, r *driver.Record) { r.Broken = false })},
		{name: "breaking loses the data", red: "breaker/keeps the data",
			do: ignores(driver.MethodBreakNow, func(c *call) bool { c.store.Remove(c.lock()); return true })},
	}
}

func checkerFaults() []fault {
	reports := func(found driver.Finding) spoil {
		return ignores(driver.MethodCheck, func(c *call) bool { c.Report(found); return true })
	}
	return []fault{
		{name: "Check reports nothing", says: "reported nothing", red: "checker/Check", do: ignores(driver.MethodCheck, always)},
		{name: "Check reports a finding without a detail", red: "checker/Check", do: reports(driver.Finding{Subject: "x"})},
		{name: "Check reports a fault without a remedy", says: "without a remedy", red: "checker/Check",
			do: reports(driver.Finding{Subject: "x", Detail: "y", Level: driver.LevelWrong})},
		{name: "Check removes free records", red: "checker/Check",
			do: sends(driver.MethodCheck, func(c *call) {
				for _, r := range c.list("") {
					if r.State == driver.StateFree {
						c.store.Remove(r.Name)
					}
				}
			})},
		{name: "RemoveProbe does nothing", says: "has left a record", red: "checker/RemoveProbe",
			do: ignores(driver.MethodRemoveProbe, always)},
		{name: "RemoveProbe removes every record", red: "checker/keeps, checker/RemoveProbe",
			do: forgets(ignores(driver.MethodRemoveProbe, func(c *call) bool { c.forget(c.lock()); return true }))},
	}
}

func dataStoreFaults() []fault {
	reads := func(change func(c *call, a *driver.Answer)) spoil { return answers(driver.MethodReadData, change) }
	writes := func(do spoil) spoil { return on(driver.MethodWriteData, do) }
	overwrite := func(c *call) driver.Answer { return driver.Answer{Err: c.write(c.Lease, c.Data)} }
	return []fault{
		{name: "only the data of held locks are read", red: "datastore/read", do: ignores(driver.MethodReadData, isFree)},
		{name: "no data are an empty slice", says: "want nil", red: "datastore/read",
			do: reads(func(_ *call, a *driver.Answer) { a.Data = append([]byte{}, a.Data...) })},
		{name: "writes are lost", red: "datastore/write", do: ignores(driver.MethodWriteData, always)},
		{name: "anybody may write", says: "want ErrLost", red: "datastore/stale write",
			do: writes(func(c *call) driver.Answer {
				a := c.send()
				if errors.Is(a.Err, driver.ErrLost) {
					c.free(c.lock())
					_, a.Err = c.plain.TryAcquire(context.Background(),
						driver.Request{Name: c.lock(), ID: newID(), TTL: time.Hour, Data: c.Data})
				}
				return a
			})},
		{name: "readers write the data", says: "WriteData by a reader", red: "shared/keeps the data",
			do: ignores(driver.MethodWriteData, func(c *call) bool { return c.Lease.Mode == driver.Shared })},
		{name: "writes do not compare revisions", says: "want ErrConflict", red: "datastore/late write, datastore/one of many",
			do: writes(overwrite)},
		{name: "writes compare the number of writes, not the holder", red: "datastore/late write",
			do: sends(driver.MethodWriteData, func(c *call) {
				if c.At.Token != 0 {
					c.At.Token = c.Lease.Token
				}
			})},
		{name: "comparing and writing are two steps", says: "want one", red: "datastore/one of many",
			do: writes(func(c *call) driver.Answer {
				if _, now, err := c.plain.ReadData(c.ctx, c.lock()); err != nil || now != c.At {
					return c.send() // which says why not
				}
				time.Sleep(20 * time.Millisecond)
				return overwrite(c)
			})},
		{name: "a new holder's data have the last one's revision", red: "datastore/revision",
			do: reads(func(c *call, a *driver.Answer) {
				if a.At.Token != 0 {
					a.At.Token = first(c, "first revision of "+c.lock(), a.At.Token)
				}
			})},
	}
}
