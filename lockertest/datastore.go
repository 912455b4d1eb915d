package lockertest

import (
	"bytes"

	"github.com/holdfast-go/holdfast"
)

func canStore(s *suite) bool { return s.abilities.DataStore != nil }

var dataStoreClauses = []clause{
	{
		name: "datastore/read", needs: canStore,
		says: "ReadData returns the data of any lock, held or not; nil if it has none.",
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
		},
	},
	{
		name: "datastore/write", needs: canStore,
		says: "WriteData replaces the data if l still holds the lock.",
		run: func(c *check) {
			req := c.request(c.name())
			req.Data = []byte("first")
			lease := c.acquire(c.a, req)
			big := bytes.Repeat([]byte{0, 0xff}, min(c.limits.MaxData, 1<<20)/2)
			for _, data := range [][]byte{[]byte("second"), {}, []byte("third\x00"), nil, big} {
				if err := c.b.Abilities().DataStore.WriteData(c.ctx, lease, data); err != nil {
					c.fatalf("WriteData by the holder: %v", err)
				}
				c.readIs("held, after WriteData", req.Name, data)
				c.dataIs("held, after WriteData", req.Name, data)
			}
			c.stillHeldBy("after it wrote its data", lease)
			if most := c.limits.MaxData; most > 0 {
				c.invalid("WriteData of too much", "Data", c.a.Abilities().DataStore.WriteData(c.ctx, lease, make([]byte, most+1)))
			}
			c.release(c.a, lease)
			c.acquire(c.b, c.request(req.Name))
			c.readIs("held by the next", req.Name, big)
		},
	},
	{
		name: "datastore/stale write", needs: canStore,
		says: "WriteData returns ErrLost if l does not hold the lock (any more), and writes nothing.",
		run: func(c *check) {
			req := c.request(c.name())
			req.Data = []byte("kept")
			write := func(what string, lease holdfast.Lease) {
				c.lost("WriteData "+what, c.a.Abilities().DataStore.WriteData(c.ctx, lease, []byte("stale")))
			}
			write("without a record", holdfast.Lease{Name: req.Name, ID: req.ID, Token: 1, TTL: req.TTL})
			lease := c.acquire(c.a, req)
			another := lease
			another.ID = newID()
			write("with another ID", another)
			c.release(c.a, lease)
			write("after Release", lease)
			c.acquire(c.b, c.request(req.Name))
			write("by the predecessor", lease)
			c.readIs("held by the next", req.Name, req.Data)
		},
	},
}

func (c *check) readIs(when, name string, want []byte) {
	got, err := c.b.Abilities().DataStore.ReadData(c.ctx, name)
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
