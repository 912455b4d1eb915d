package lockertest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// everyTenure changes each past holder.
func everyTenure(change func(c *call, t *driver.Tenure)) spoil {
	return inspects(func(c *call, r *driver.Record) {
		for i := range r.History {
			change(c, &r.History[i])
		}
	})
}

func recordFaults() []fault {
	held := func(_ *call, r *driver.Record) {
		if r.Token != 0 {
			r.State = driver.StateHeld
		}
	}
	return []fault{
		{name: "ReadAt is missing", says: "but no ReadAt", red: "inspect/ReadAt",
			do: inspects(func(_ *call, r *driver.Record) { r.ReadAt = time.Time{} })},
		{name: "ReadAt stands still", says: "was read at", red: "inspect/ReadAt",
			do: inspects(func(_ *call, r *driver.Record) { r.ReadAt = time.Unix(1, 0) })},
		{name: "a name without a record has an unknown state", red: "inspect/no record",
			do: inspects(func(_ *call, r *driver.Record) {
				if r.Token == 0 {
					r.State = driver.StateUnknown
				}
			})},
		{name: "a name without a record has a past", says: "has a past", red: "inspect/no record",
			do: inspects(func(c *call, r *driver.Record) { r.AcquiredAt = c.now() })},
		{name: "an unknown time left is shown as zero", says: "granted just now", red: "inspect/held, acquire/held",
			do: inspects(func(_ *call, r *driver.Record) { r.Remaining = 0 })},
		{name: "an unknown time left has a value", says: "RemainingKnown false", red: "inspect/held",
			do: inspects(func(_ *call, r *driver.Record) { r.RemainingKnown = false })},
		{name: "a negative time left", says: "not negative", red: "inspect/held",
			do: inspects(func(_ *call, r *driver.Record) { r.Remaining -= 24 * time.Hour })},
		{name: "more is left than the TTL", says: "left of a TTL", red: "inspect/held",
			do: inspects(func(_ *call, r *driver.Record) { r.Remaining *= 2 })},
		{name: "a released lock is shown as held", red: "inspect/released, release/keeps token and data, expiry/inspect", do: inspects(held)},
		{name: "a held lock is shown as free", red: "inspect/held, name/distinct",
			do: inspects(func(_ *call, r *driver.Record) { r.State, r.Remaining, r.RemainingKnown = driver.StateFree, 0, false })},
		{name: "the predecessor is shown as owner", red: "inspect/successor",
			do: inspects(func(c *call, r *driver.Record) {
				if len(r.History) > 0 {
					r.Owner = r.History[0].Owner
				}
			})},
		{name: "a wrong token is shown", red: "inspect/held, inspect/released, inspect/successor, acquire/held",
			do: inspects(func(_ *call, r *driver.Record) { r.Token++ })},
		{name: "the revision never changes", red: "inspect/revision, acquire/replace",
			do: inspects(func(_ *call, r *driver.Record) { r.Revision = driver.NewRevision("r") })},
		{name: "the revision counts grants and renewals", red: "inspect/revision after a removal",
			do: func(c *call) driver.Answer {
				changes := fmt.Sprint("changes of ", c.lock(), c.noted("removed "+c.lock()))
				a := c.send()
				switch c.Method {
				case driver.MethodTryAcquire, driver.MethodRenew:
					c.count(changes)
				case driver.MethodInspect:
					a.Record.Revision = driver.NewRevision(fmt.Sprint(c.noted(changes)))
				}
				return a
			}},
		{name: "the revision changes with each Inspect", red: "acquire/replace",
			do: inspects(func(c *call, r *driver.Record) { r.Revision = driver.NewRevision(fmt.Sprint(c.count("inspects"))) })},
		{name: "Inspect leaves out the data", red: "inspect/held, data/kept or replaced",
			do: inspects(func(_ *call, r *driver.Record) { r.Data = nil })},
		{name: "records share their data", red: "data/own copy",
			do: inspects(func(c *call, r *driver.Record) { r.Data = first(c, "data of "+r.Name, r.Data) })},
		{name: "a record without a name", says: "the record's Name", red: "inspect/held, acquire/held",
			do: inspects(func(_ *call, r *driver.Record) { r.Name = "" })},
		{name: "renewed before acquired", says: "before it was acquired", red: "inspect/held",
			do: inspects(func(_ *call, r *driver.Record) { r.RenewedAt = r.AcquiredAt.Add(-time.Second) })},
	}
}

func historyFaults() []fault {
	const free = "history/expired, history/broken, history/freed, history/taken over" // all ends but a release
	const all = free + ", history/released, history/own copy"
	return []fault{
		{name: "no history", says: "no history", red: all + ", history/bounded, history/no tenure",
			do: inspects(func(_ *call, r *driver.Record) { r.History = nil })},
		{name: "no end is known", says: `"unknown"`, red: all,
			do: everyTenure(func(_ *call, t *driver.Tenure) { t.End = driver.EndUnknown })},
		{name: "every holder has released the lock", red: free,
			do: everyTenure(func(_ *call, t *driver.Tenure) { t.End = driver.EndReleased })},
		{name: "every lease has expired", red: "history/released, history/broken, history/freed",
			do: everyTenure(func(_ *call, t *driver.Tenure) { t.End = driver.EndExpired })},
		{name: "the history is in the order of the grants", says: "before token", red: "history/released, history/bounded",
			do: inspects(func(_ *call, r *driver.Record) { slices.Reverse(r.History) })},
		{name: "the history has only the last holder", red: "history/released, history/bounded",
			do: inspects(func(_ *call, r *driver.Record) { r.History = r.History[:min(len(r.History), 1)] })},
		{name: "the history is longer than the driver says", says: "want at most 4", red: "history/bounded",
			info: func(_ *fixture, i *driver.Info) { i.History = 4 }},
		{name: "the history has the present holder", says: "before token", red: "history/no tenure, history/released",
			do: inspects(func(_ *call, r *driver.Record) {
				if r.State == driver.StateHeld {
					r.History = append([]driver.Tenure{{Owner: r.Owner, Token: r.Token, From: r.AcquiredAt}}, r.History...)
				}
			})},
		{name: "the history lacks the last holder of a free lock", red: "history/released, history/expired, history/freed",
			do: inspects(func(_ *call, r *driver.Record) {
				if r.State == driver.StateFree && len(r.History) > 0 {
					r.History = r.History[1:]
				}
			})},
		{name: "another's owner is in the history", says: "the history has owner", red: all,
			do: everyTenure(func(_ *call, t *driver.Tenure) { t.Owner = "another" })},
		{name: "a tenure begins when it is read", says: "was held from", red: "history/released",
			do: everyTenure(func(c *call, t *driver.Tenure) { t.From = c.now() })},
		{name: "a lease that expired was held until it is read", says: "lasted", red: "history/expired",
			do: everyTenure(func(c *call, t *driver.Tenure) { t.Until = c.now() })},
		{name: "a tenure has no end", says: "until when", red: all,
			do: everyTenure(func(_ *call, t *driver.Tenure) { t.Until = time.Time{} })},
		{name: "records share their history", red: "history/own copy",
			do: inspects(func(c *call, r *driver.Record) {
				r.History = first(c, fmt.Sprint("history of ", r.Name, len(r.History)), r.History)
			})},
	}
}

// renamed changes names on their way in and restores them on their way out, like an escape that is not one to one.
func renamed(to func(string) string) spoil {
	valid := func(name string) string { return cmp.Or(to(name), "empty") }
	return func(c *call) driver.Answer {
		name := c.lock()
		c.Name, c.Request.Name, c.Lease.Name = valid(c.Name), valid(c.Request.Name), valid(c.Lease.Name)
		a := c.send()
		if a.Err != nil {
			return driver.Answer{Err: opErr(name, a.Err)}
		}
		a.Lease.Name, a.Record.Name = name, name
		return a
	}
}

func inputFaults() []fault {
	onlyWaker := func(c *driver.Capabilities) { *c = driver.Capabilities{Waker: c.Waker} } // since what List yields is not renamed
	shares := func(name, says string, to func(string) string) fault {
		return fault{name: name, says: says, red: "name/distinct", do: renamed(to), has: onlyWaker}
	}
	replaces := func(old, by string) func(string) string { return strings.NewReplacer(old, by).Replace }
	data := func(change func([]byte) []byte) spoil {
		return asks(func(c *call) { c.Request.Data = change(c.Request.Data) })
	}
	cut := func(data []byte) []byte { return data[:min(len(data), 1<<19)] }
	isExpression := func(c *call) bool { return strings.HasPrefix(c.lease().ID.Reveal(), "$") }
	return []fault{
		shares("names ignore case", "is held", strings.ToLower),
		shares("names are paths", "", path.Clean),
		shares("names lose spaces at their ends", "", strings.TrimSpace),
		shares("names lose dots at their end", "", func(s string) string { return strings.TrimRight(s, ".") }),
		shares("names end at a zero byte", "", func(s string) string { s, _, _ = strings.Cut(s, "\x00"); return s }),
		shares("names are cut", "", func(s string) string { return s[:min(len(s), 250)] }),
		shares("names are composed", "", replaces("e\u0301", "\u00e9")),
		shares("backslashes are slashes", "", replaces(`\`, "/")),
		shares("percent signs are decoded", "", replaces("%2F", "/")),
		shares("letters that no file name may have are replaced", "",
			strings.NewReplacer("<", "_", ">", "_", ":", "_", `"`, "_", "|", "_", "?", "_", "*", "_").Replace),
		{name: "invalid names are repaired", says: "want an *InvalidError about Name", red: "name/invalid", has: onlyWaker,
			do: renamed(func(s string) string { s = strings.ToValidUTF8(s, "?"); return s[:min(len(s), 1024)] })},
		{name: "TTLs are rounded", says: "want an *InvalidError about TTL", red: "argument/TTL",
			do: chain(asks(func(c *call) { c.Request.TTL = max(c.Request.TTL, time.Millisecond) }),
				sends(driver.MethodRenew, func(c *call) { c.Lease.TTL = max(c.Lease.TTL, time.Millisecond) }))},
		{name: "any ID is accepted", red: "argument/ID",
			do: asks(func(c *call) {
				if id := c.Request.ID; id.IsZero() || len(id.Reveal()) > 64 {
					c.Request.ID = newID()
				}
			})},
		{name: "the mode is ignored", says: "TryAcquire in the mode mode 2", red: "argument/mode, shared/together, shared/many",
			do: asks(func(c *call) { c.Request.Mode = driver.Exclusive })},
		{name: "owners are cut", red: "argument/owner",
			do: asks(func(c *call) { c.Request.Owner = c.Request.Owner[:min(len(c.Request.Owner), 1000)] })},
		{name: "data are cut", red: "argument/data, data/any bytes, datastore/write",
			do: chain(data(cut), sends(driver.MethodWriteData, func(c *call) { c.Data = cut(c.Data) }))},
		{name: "data are text", red: "data/any bytes",
			do: data(func(data []byte) []byte {
				if data == nil {
					return nil
				}
				return bytes.ToValidUTF8(data, []byte("?"))
			})},
		{name: "the caller's data are not copied", red: "data/any bytes",
			do: func(c *call) driver.Answer {
				a := c.send()
				if c.Method == driver.MethodTryAcquire && a.Err == nil && c.Request.Data != nil {
					c.note("data of "+c.lock(), c.Request.Data)
				}
				a.Record.Data, _ = c.noted("data of " + c.lock()).([]byte)
				return a
			}},
		{name: "nil clears the data", red: "data/kept or replaced, expiry/takeover",
			do: data(func(data []byte) []byte { return append([]byte{}, data...) })},
		{name: "empty data keep the stored data", red: "data/kept or replaced",
			do: data(func(data []byte) []byte { return append([]byte(nil), data...) })},
		{name: "owners are expressions", says: "another's name, ID, owner or TTL", red: "text/taken literally",
			do: asks(func(c *call) { c.Request.Owner = strings.ReplaceAll(c.Request.Owner, "$$NOW", "12:00") })},
		{name: "IDs are expressions", red: "text/taken literally",
			do: chain(ignores(driver.MethodRenew, isExpression), chain(refuses(driver.MethodRelease, context.DeadlineExceeded, isExpression),
				frees(driver.MethodTryAcquire, isExpression)))},
	}
}
