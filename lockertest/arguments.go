package lockertest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// method is a method of a Locker or a capability that takes a name and returns an error.
type method struct {
	name string
	call func(context.Context) error
}

func (c *check) methods(l driver.Locker, name string) []method {
	req := c.request(name)
	lease := driver.Lease{Name: name, ID: req.ID, Owner: req.Owner, Token: 1, TTL: req.TTL}
	return c.methodsOf(l, req, lease)
}

// methodsOf has the methods that take a context, for a request and a lease.
func (c *check) methodsOf(l driver.Locker, req driver.Request, lease driver.Lease) []method {
	name := req.Name
	all := []method{
		{"TryAcquire", func(ctx context.Context) error { _, err := l.TryAcquire(ctx, req); return err }},
		{"Renew", func(ctx context.Context) error { return errOf(l.Renew(ctx, lease)) }},
		{"Release", func(ctx context.Context) error { return l.Release(ctx, lease) }},
		{"Inspect", func(ctx context.Context) error { _, err := l.Inspect(ctx, name); return err }},
	}
	a := l.Capabilities()
	if a.BatchRenewer != nil {
		all = append(all, method{"RenewBatch", func(ctx context.Context) error {
			return errOf(a.BatchRenewer.RenewBatch(ctx, []driver.Lease{lease}))[0]
		}})
	}
	if a.BatchReleaser != nil {
		all = append(all, method{"ReleaseBatch", func(ctx context.Context) error {
			return a.BatchReleaser.ReleaseBatch(ctx, []driver.Lease{lease})[0]
		}})
	}
	if a.BatchInspector != nil {
		all = append(all, method{"InspectBatch", func(ctx context.Context) error {
			_, errs := a.BatchInspector.InspectBatch(ctx, "", []string{name})
			return errs[0]
		}})
	}
	if a.Queue != nil {
		all = append(all, method{"Leave", func(ctx context.Context) error {
			return a.Queue.Leave(ctx, "a waiter", []string{name})
		}})
	}
	if a.Breaker != nil {
		all = append(all,
			method{"Break", func(ctx context.Context) error { return a.Breaker.Break(ctx, name, driver.BreakAnybody()) }},
			method{"BreakNow", func(ctx context.Context) error { return a.Breaker.BreakNow(ctx, name, driver.BreakAnybody()) }})
	}
	if a.DataStore != nil {
		all = append(all,
			method{"ReadData", func(ctx context.Context) error { _, _, err := a.DataStore.ReadData(ctx, name); return err }},
			method{"WriteData", func(ctx context.Context) error {
				return a.DataStore.WriteData(ctx, lease, []byte("x"), driver.DataRevision{Token: 1})
			}})
	}
	return all
}

// listing has List of a prefix, if the Locker has it. The error is the last one.
func listing(l driver.Locker, prefix string) []method {
	lister := l.Capabilities().Lister
	if lister == nil {
		return nil
	}
	return []method{{"List", func(ctx context.Context) (last error) {
		for _, last = range lister.List(ctx, prefix) {
		}
		return last
	}}}
}

// invalid expects an *InvalidError about the field.
func (c *check) invalid(what, field string, err error) {
	var invalid *driver.InvalidError
	if !errors.As(err, &invalid) {
		c.wrongf("%s: got error %v, want an *InvalidError about %s", what, err, field)
	} else if invalid.Field != field {
		c.errorf("%s: the InvalidError is about %q, want %q: %v", what, invalid.Field, field, err)
	}
}

var argumentClauses = []clause{
	{
		name: "argument/TTL",
		says: "MinTTL and MaxTTL bound a TTL, which must be a whole multiple of TTLStep. Any other TTL is ErrInvalid; none is rounded.",
		run:  invalidTTLs,
	},
	{
		name: "argument/ID",
		says: "The ID is valid UTF-8 of 1 to 64 bytes.",
		run: func(c *check) {
			for what, id := range map[string]string{"no ID": "", "an ID of 65 bytes": strings.Repeat("x", 65),
				"an ID that is no UTF-8": "\xff-and-so-on"} {
				req := c.request(c.name())
				req.ID = driver.NewLeaseID(id)
				_, err := c.a.TryAcquire(c.ctx, req)
				c.invalid("TryAcquire with "+what, "ID", err)
			}
		},
	},
	{
		name: "argument/owner",
		says: "MaxOwner is in bytes; an owner is valid UTF-8.",
		run: func(c *check) {
			bad := map[string]string{"an owner that is no UTF-8": "me\xff"}
			if most := c.info.Limits.MaxOwner; most > 0 {
				bad["an owner that is too long"] = strings.Repeat("x", most+1)
				req := c.request(c.name())
				req.Owner = strings.Repeat("x", most)
				lease := c.acquire(c.a, req)
				c.checkHeldRecord(c.inspect(c.b, req.Name), lease)
			}
			for what, owner := range bad {
				req := c.request(c.name())
				req.Owner = owner
				_, err := c.a.TryAcquire(c.ctx, req)
				c.invalid("TryAcquire with "+what, "Owner", err)
			}
			none := c.request(c.name())
			none.Owner = ""
			c.acquire(c.a, none)
		},
	},
	{
		name: "argument/mode",
		says: "Mode is Exclusive or another of Info.Modes. Any other is ErrInvalid, and changes nothing.",
		run: func(c *check) {
			for _, mode := range []driver.Mode{driver.Shared, driver.Shared + 1, 255} {
				if c.info.Modes.Has(mode) {
					continue
				}
				req := c.request(c.name())
				req.Mode = mode
				_, err := c.a.TryAcquire(c.ctx, req)
				c.invalid("TryAcquire in the mode "+mode.String(), "Mode", err)
				if r := c.inspect(c.b, req.Name); r.State != driver.StateFree || r.Token != 0 {
					c.errorf("the refused request left a record: %v, token %d", r.State, r.Token)
				}
			}
		},
	},
	{
		name: "argument/data", needs: limitsData,
		says: "MaxData is in bytes. More data is ErrInvalid, and changes nothing.",
		run: func(c *check) {
			req := c.request(c.name())
			req.Data = bytes.Repeat([]byte("x"), c.info.Limits.MaxData+1)
			_, err := c.a.TryAcquire(c.ctx, req)
			c.invalid("TryAcquire with too much data", "Data", err)
			if r := c.inspect(c.b, req.Name); r.State != driver.StateFree || r.Token != 0 {
				c.errorf("the refused request left a record: %v, token %d", r.State, r.Token)
			}
		},
	},
}

func invalidTTLs(c *check) {
	l := c.info.Limits
	bad := []time.Duration{0, -1, -time.Second, -time.Hour, l.MinTTL - max(l.TTLStep, 1), l.MinTTL - 1}
	if l.MaxTTL > 0 {
		bad = append(bad, l.MaxTTL+max(l.TTLStep, 1), l.MaxTTL+1, 1<<63-1)
	}
	if l.TTLStep > 1 {
		bad = append(bad, l.MinTTL+1, l.MinTTL+l.TTLStep-1, l.MinTTL+l.TTLStep/2)
	}
	req := c.request(c.name())
	lease := c.acquire(c.a, c.request(c.name()))
	for _, ttl := range bad {
		req.TTL, lease.TTL = ttl, ttl
		_, err := c.a.TryAcquire(c.ctx, req)
		c.invalid("TryAcquire with TTL "+ttl.String(), "TTL", err)
		c.invalid("Renew with TTL "+ttl.String(), "TTL", errOf(c.a.Renew(c.ctx, lease)))
	}
	if r := c.inspect(c.b, req.Name); r.State != driver.StateFree || r.Token != 0 {
		c.errorf("the refused requests left a record: %v, token %d", r.State, r.Token)
	}
	for _, ttl := range []time.Duration{l.MinTTL, l.MaxTTL} {
		if ttl > 0 {
			req := c.request(c.name())
			req.TTL = ttl
			c.acquire(c.b, req)
		}
	}
}

var textClauses = []clause{
	{
		name: "text/taken literally",
		says: "A name, an owner, an ID and data are stored as they are, whatever they mean in the backend's own language.",
		run:  literalText,
	},
}

// literalText uses values that a backend could mistake for its own language.
func literalText(c *check) {
	for _, text := range []string{
		"$kid", "$$NOW", "$$ROOT", "$owner", "$", "$.a", `{"$set":{"kid":1}}`, `{"$literal":"x"}`, "a.b", "\x00", "a\x00b", "\n\r\t", `"quoted"`,
		`\`, "%s%d%!", "\u00e9", "e\u0301", "\U0001f512",
		" leading and trailing ", "\u2028", "a,b;c=d", "<a href='x'>&amp;", "null", "0", "true", "=?utf-8?b?eA==?=",
	} {
		req := c.request(c.name() + text)
		req.Owner, req.Data = text, []byte(text)
		lease := c.acquire(c.a, req)
		r := c.inspect(c.b, req.Name)
		c.checkHeldRecord(r, lease)
		if string(r.Data) != text {
			c.errorf("the data are %q, want %q", r.Data, text)
		}
		c.held(c.b, c.request(req.Name))
		c.renew(c.b, lease)
		c.release(c.b, lease)
		c.anyID(text)
	}
}

// anyID checks an ID that looks like part of a query. A backend that accepts only UUIDs refuses
// it with ErrInvalid.
func (c *check) anyID(text string) {
	req := c.request(c.name())
	req.ID = driver.NewLeaseID(text)
	lease, err := c.a.TryAcquire(c.ctx, req)
	if errors.Is(err, driver.ErrInvalid) {
		return
	}
	if err != nil {
		c.fatalf("TryAcquire with an ID like %q: %v", text, err)
	}
	other := lease
	other.ID = newID()
	c.lost("Renew with another ID than one like "+text, errOf(c.a.Renew(c.ctx, other)))
	c.stillHeldBy("with an ID like "+text, lease)
	c.release(c.a, lease)
	c.acquire(c.b, c.request(req.Name))
}
