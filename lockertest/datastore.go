package lockertest

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver"
)

var dataStoreClauses = []clause{
	{
		name: "datastore/read", needs: canStore | keepsData,
		says: "ReadData returns the data of any lock, held or not. The data are nil if there are none.",
		run: func(c *check) {
			name := c.name()
			c.readIs("without a record", name, nil)
			lease := c.acquire(c.a, c.request(name))
			c.readIs("held without data", name, nil)
			c.release(c.a, lease)
			req := c.request(name)
			req.Data = []byte("data")
			lease = c.acquire(c.a, req)
			c.readIs("held", name, req.Data)
			c.release(c.a, lease)
			c.readIs("released", name, req.Data)
			none := c.request(name)
			none.Data = []byte{}
			c.acquire(c.a, none)
			c.readIs("held by a request that removed the data", name, nil)
		},
	},
	{
		name: "datastore/write", needs: canStore,
		says: "WriteData replaces the data if l still holds the lock.",
		run: func(c *check) {
			req := c.request(c.name())
			req.Data = []byte("first")
			lease := c.acquire(c.a, req)
			big := bytes.Repeat([]byte{0, 0xff}, min(c.info.Limits.MaxData, 1<<20)/2)
			at := c.granted(lease)
			for _, data := range [][]byte{[]byte("second"), {}, []byte("third\x00"), nil, big} {
				if err := c.b.Capabilities().DataStore.WriteData(c.ctx, lease, data, at); err != nil {
					c.fatalf("WriteData by the holder: %v", err)
				}
				at = at.Next()
				c.readIs("held, after WriteData", req.Name, data)
				c.dataIs("held, after WriteData", req.Name, data)
			}
			c.stillHeldBy("after it wrote its data", lease)
			if most := c.info.Limits.MaxData; most > 0 {
				c.invalid("WriteData of too much", "Data", c.a.Capabilities().DataStore.WriteData(c.ctx, lease, make([]byte, most+1), at))
			}
			c.release(c.a, lease)
			c.acquire(c.b, c.request(req.Name))
			if c.can(keepsData) {
				c.readIs("held by the next", req.Name, big)
			}
		},
	},
	{
		name: "datastore/stale write", needs: canStore,
		says: "WriteData writes nothing, and returns ErrLost, if l does not hold the lock (any more).",
		run: func(c *check) {
			req := c.request(c.name())
			req.Data = []byte("kept")
			write := func(what string, lease driver.Lease) {
				_, now, err := c.b.Capabilities().DataStore.ReadData(c.ctx, req.Name)
				if err != nil {
					c.fatalf("ReadData: %v", err)
				}
				for _, at := range []driver.DataRevision{now, {}, c.granted(lease)} {
					c.lost("WriteData "+what, c.a.Capabilities().DataStore.WriteData(c.ctx, lease, []byte("stale"), at))
				}
			}
			write("without a record", driver.Lease{Name: req.Name, ID: req.ID, Token: 1, TTL: req.TTL})
			lease := c.acquire(c.a, req)
			another := lease
			another.ID = newID()
			write("with another ID", another)
			c.release(c.a, lease)
			write("after Release", lease)
			c.acquire(c.b, c.request(req.Name))
			write("by the predecessor", lease)
			if c.can(keepsData) {
				c.readIs("held by the next", req.Name, req.Data)
			}
		},
	},
	{
		name: "datastore/revision", needs: canStore | keepsData,
		says: "The data of a new holder have the revision {Token: its token}. Each write changes it to the next one, and nothing else does.",
		run: func(c *check) {
			name := c.name()
			c.revisionIs("without a record", name, driver.DataRevision{})
			for range 2 { // the second holder finds the data of the first one
				req := c.request(name)
				lease := c.acquire(c.a, req)
				at := c.granted(lease)
				c.revisionIs("held", name, at)
				for _, data := range []string{"one", "one", ""} {
					if err := c.a.Capabilities().DataStore.WriteData(c.ctx, lease, []byte(data), at); err != nil {
						c.fatalf("WriteData with the present revision: %v", err)
					}
					at = at.Next()
					c.revisionIs("held, after WriteData", name, at)
				}
				c.renew(c.b, lease)
				c.acquire(c.b, req)
				c.revisionIs("held, after a renewal and a repeat", name, at)
				c.release(c.a, lease)
				c.revisionIs("released", name, at)
			}
		},
	},
	{
		name: "datastore/late write", needs: canStore,
		says: "WriteData writes nothing, and returns ErrConflict, if the data have another revision. A write that arrives late changes nothing.",
		run: func(c *check) {
			before := c.acquire(c.a, c.request(c.name()))
			c.release(c.a, before)
			lease := c.acquire(c.a, c.request(before.Name))
			first := c.granted(lease)
			late := func(what string, at driver.DataRevision) {
				err := c.b.Capabilities().DataStore.WriteData(c.ctx, lease, []byte("late"), at)
				if !errors.Is(err, driver.ErrConflict) {
					c.errorf("WriteData of %s: got error %v, want ErrConflict", what, err)
				}
			}
			late("a future revision, before the first write", first.Next())
			late("the last holder's revision, before the first write", c.granted(before))
			for at := first; at.Writes < 3; at = at.Next() {
				if err := c.a.Capabilities().DataStore.WriteData(c.ctx, lease, []byte("kept"), at); err != nil {
					c.fatalf("WriteData with the present revision: %v", err)
				}
				late("the revision before the last write", at)
				late("the first revision", first)
				late("a future revision", at.Next().Next())
				late("the last holder's revision", driver.DataRevision{Token: before.Token, Writes: at.Writes + 1})
				late("no revision", driver.DataRevision{})
			}
			c.readIs("held, after late writes", lease.Name, []byte("kept"))
			c.stillHeldBy("after late writes", lease)
		},
	},
	{
		name: "datastore/one of many", needs: canStore,
		says: "The backend compares and writes in one step: of several writes with the same revision one is done.",
		run: func(c *check) {
			lease := c.acquire(c.a, c.request(c.name()))
			var done, unknown atomic.Int64
			c.each(16, func(i int) {
				store := []driver.Locker{c.a, c.b}[i%2].Capabilities().DataStore
				err := store.WriteData(c.ctx, lease, fmt.Append(nil, i), c.granted(lease))
				switch {
				case err == nil:
					done.Add(1)
				case !errors.Is(err, driver.ErrConflict):
					unknown.Add(1)
				}
			})
			if n := done.Load(); n > 1 || n == 0 && unknown.Load() == 0 {
				c.errorf("of 16 writes with the same revision %d were done; want one", n)
			}
			if done.Load() > 0 {
				c.revisionIs("held, after 16 writes of which one could be done", lease.Name, c.granted(lease).Next())
			}
		},
	},
}

// granted returns the revision of the data at the grant of the lease.
func (c *check) granted(lease driver.Lease) driver.DataRevision {
	return driver.DataRevision{Token: lease.Token}
}

// revisionIs expects the revision of the data.
func (c *check) revisionIs(when, name string, want driver.DataRevision) {
	_, at, err := c.b.Capabilities().DataStore.ReadData(c.ctx, name)
	if err != nil {
		c.fatalf("ReadData: %v", err)
	}
	if at != want {
		c.errorf("while %s the data have revision %+v, want %+v", when, at, want)
	}
}

// readIs expects the data from ReadData.
func (c *check) readIs(when, name string, want []byte) {
	got, _, err := c.b.Capabilities().DataStore.ReadData(c.ctx, name)
	if err != nil {
		c.fatalf("ReadData: %v", err)
	}
	if !bytes.Equal(got, want) {
		c.errorf("while %s ReadData returns %s, want %s", when, quoteOrNil(got), quoteOrNil(want))
	}
	if got != nil && len(got) == 0 {
		c.errorf("while %s ReadData returns an empty slice; want nil if there are no data", when)
	}
}
