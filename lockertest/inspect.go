package lockertest

import (
	"errors"
	"reflect"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var infoClauses = []clause{
	{
		name: "info/sane",
		says: "Info and Capabilities are constant for a Locker. MinTTL and MaxTTL bound a TTL, which must be a whole multiple of TTLStep. Poll " +
			"is the default interval at which a waiter asks the backend.",
		run: func(c *check) {
			l := c.info.Limits
			if l.MinTTL <= 0 || l.MaxTTL != 0 && l.MaxTTL < l.MinTTL {
				c.errorf("TTLs from %v to %v; want a range of positive durations", l.MinTTL, l.MaxTTL)
			}
			if l.TTLStep < 0 || l.TTLStep > 0 && (l.MinTTL%l.TTLStep != 0 || l.MaxTTL%l.TTLStep != 0) {
				c.errorf("MinTTL %v and MaxTTL %v are not both multiples of TTLStep %v", l.MinTTL, l.MaxTTL, l.TTLStep)
			}
			if l.Poll <= 0 || l.Poll > time.Hour {
				c.errorf("Poll is %v; want more than 0 and at most 1h", l.Poll)
			}
			if l.MaxName < 0 || l.MaxOwner < 0 || l.MaxData < 0 {
				c.errorf("a negative limit: %+v", l)
			}
			if l.MaxName > 0 && l.MaxName < 64 {
				c.errorf("MaxName is %d; users need names of at least 64 bytes", l.MaxName)
			}
			for _, locker := range []driver.Locker{c.a, c.b} {
				if locker.Info() != c.info {
					c.errorf("Info changed from %+v to %+v", c.info, locker.Info())
				}
			}
			if c.capabilities.Queue != nil && c.info.Turn == 0 {
				c.errorf("Info.Turn is 0, although there is a Queue")
			}
			if c.capabilities.Queue != nil && c.capabilities.Waker == nil {
				c.errorf("there is a Queue, and no Waker that wakes its waiters")
			}
			if changed(c.one.Capabilities(), c.one.Capabilities()) {
				c.errorf("Capabilities changed from one call to the next")
			}
		},
	},
	{
		name: "info/backend",
		says: "Info.Backend is what the Locker's errors call the backend. Metrics and events have it.",
		run: func(c *check) {
			_, err := c.a.Inspect(c.ctx, "") // without I/O
			var op *driver.OpError
			if !errors.As(err, &op) {
				c.fatalf("Inspect without a name: got error %v, want an *OpError", err)
			}
			if got := c.info.Backend; got != op.Backend {
				c.errorf("Info.Backend is %q, but an error says %q: %v", got, op.Backend, err)
			}
		},
	},
}

// changed reports whether a Locker has other capabilities than before. One may be of a type that cannot be compared.
func changed(before, now driver.Capabilities) bool {
	x, y := reflect.ValueOf(before), reflect.ValueOf(now)
	for i := range x.NumField() {
		v, w := x.Field(i).Elem(), y.Field(i).Elem()
		if v.IsValid() != w.IsValid() || v.IsValid() && v.Comparable() && w.Comparable() && !v.Equal(w) {
			return true
		}
	}
	return false
}

var inspectClauses = []clause{
	{
		name: "inspect/no record",
		says: "A name without a record is Free.",
		run: func(c *check) {
			name := c.name()
			r := c.inspect(c.a, name)
			if r.State != driver.StateFree {
				c.errorf("the state is %v, want free", r.State)
			}
			if r.Owner != "" || r.Token != 0 || r.TTL != 0 || len(r.Data) != 0 || !r.AcquiredAt.IsZero() || !r.RenewedAt.IsZero() {
				c.errorf("a name that was never used has a past: %+v", r)
			}
		},
	},
	{
		name: "inspect/held",
		says: "Inspect returns what the backend knows of a name. What the backend does not report stays unknown.",
		run: func(c *check) {
			req := c.request(c.name())
			req.Data = []byte("data")
			lease := c.acquire(c.a, req)
			for _, l := range []driver.Locker{c.a, c.b} {
				r := c.inspect(l, req.Name)
				c.checkHeldRecord(r, lease)
				if r.State != driver.StateHeld {
					c.errorf("the state is %v, want held", r.State)
				}
				if string(r.Data) != "data" {
					c.errorf("the data are %q, want %q", r.Data, "data")
				}
			}
			c.stillHeldBy("after Inspect", lease)
		},
	},
	{
		name: "inspect/released",
		says: "For a free lock Owner is the last owner, if known. Token is that of the last grant. A free lock has no time left.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			c.release(c.a, lease)
			r := c.inspect(c.b, lease.Name)
			if r.State != driver.StateFree {
				c.errorf("the state is %v, want free", r.State)
			}
			if r.Owner != "" && r.Owner != lease.Owner || r.Token != 0 && r.Token != lease.Token {
				c.errorf("owner %q and token %d, want those of the last grant, %q and %d, or none", r.Owner, r.Token, lease.Owner, lease.Token)
			}
		},
	},
	{
		name: "inspect/ReadAt",
		says: "AcquiredAt and RenewedAt are readings of the backend's clock. ReadAt is its reading when it answered.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			c.renew(c.b, lease)
			c.readAt("held", c.inspect(c.b, lease.Name))
			c.release(c.a, lease)
			c.readAt("free", c.inspect(c.b, lease.Name))
		},
	},
	{
		name: "inspect/successor",
		says: "Owner is that of the present holder.",
		run: func(c *check) {
			first := c.acquire(c.a, c.request(c.name()))
			c.release(c.a, first)
			second := c.acquire(c.b, c.request(first.Name))
			c.checkHeldRecord(c.inspect(c.a, first.Name), second)
			c.checkHeldRecord(c.held(c.a, c.request(first.Name)), second)
		},
	},
	{
		name: "inspect/revision",
		says: "Revision changes with every grant and renewal. It is zero if the backend cannot compare it.",
		run: func(c *check) {
			seen := map[driver.Revision]string{}
			note := func(when, name string) {
				r := c.inspect(c.b, name).Revision
				c.pass(c.ctx, 2*time.Millisecond) // a revision may be a time
				if before := seen[r]; before != "" && !r.IsZero() {
					c.errorf("the Revision %s is the same as %s", when, before)
				}
				seen[r] = when
			}
			name := c.name()
			lease := c.acquire(c.a, c.request(name))
			note("after the first grant", name)
			c.renew(c.a, lease)
			note("after a renewal", name)
			c.renew(c.b, lease)
			note("after another renewal", name)
			c.release(c.a, lease)
			c.acquire(c.a, c.request(name))
			note("after the second grant", name)
		},
	},
	{
		name: "inspect/revision after a removal", needs: canForget, waits: true,
		says: "No holder has the Revision of one before it. A waiter replaces a holder whose Revision has not changed for a TTL.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			seen := map[driver.Revision]bool{c.inspect(c.b, lease.Name).Revision: true}
			c.pass(c.ctx, 2*time.Millisecond) // a revision may be a time
			c.renew(c.a, lease)
			seen[c.inspect(c.b, lease.Name).Revision] = true
			c.forget(lease.Name)
			c.pass(c.ctx, c.clockStep())
			next := c.acquire(c.b, c.request(lease.Name))
			for range 3 {
				if r := c.inspect(c.a, next.Name).Revision; seen[r] && !r.IsZero() {
					c.errorf("a holder after the removal of the record has a Revision of the one before")
				}
				c.pass(c.ctx, 2*time.Millisecond)
				c.renew(c.b, next)
			}
		},
	},
}

// readAt expects that a record with times has the time at which it was read. Clocks may tick in seconds.
func (c *check) readAt(state string, r driver.Record) {
	last := r.RenewedAt
	if last.Before(r.AcquiredAt) {
		last = r.AcquiredAt
	}
	switch {
	case last.IsZero():
	case r.ReadAt.IsZero():
		c.errorf("the record of a %s lock has the time %v, but no ReadAt: nobody can tell how long ago that was", state, last)
	case r.ReadAt.Before(last.Add(-time.Second)):
		c.errorf("the record of a %s lock was read at %v, before %v", state, r.ReadAt, last)
	}
}
