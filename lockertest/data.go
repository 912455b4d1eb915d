package lockertest

import (
	"bytes"
	"crypto/rand"
)

var dataClauses = []clause{
	{
		name: "data/kept or replaced", needs: keepsData,
		says: "Data replaces the data stored with the lock. nil keeps the stored data.",
		run: func(c *check) {
			name := c.name()
			for _, step := range []struct{ bring, want []byte }{
				{nil, nil},
				{[]byte("one"), []byte("one")},
				{nil, []byte("one")},
				{[]byte("two"), []byte("two")},
				{[]byte{}, nil},
				{nil, nil},
				{[]byte("three"), []byte("three")},
			} {
				req := c.request(name)
				req.Data = step.bring
				lease := c.acquire(c.a, req)
				c.dataIs("held by a request with data "+quoteOrNil(step.bring), name, step.want)
				c.release(c.b, lease)
				c.dataIs("released after a request with data "+quoteOrNil(step.bring), name, step.want)
			}
		},
	},
	{
		name: "data/refused request",
		says: "A request that is refused changes nothing.",
		run: func(c *check) {
			req := c.request(c.name())
			req.Data = []byte("holder's")
			lease := c.acquire(c.a, req)
			other := c.request(req.Name)
			other.Data = []byte("other's")
			c.held(c.b, other)
			c.dataIs("held, after another's request", req.Name, req.Data)
			c.release(c.a, lease)
			c.keptDataIs("released, after another's request", req.Name, req.Data)
		},
	},
	{
		name: "data/any bytes",
		says: "The data are bytes, up to Limits.MaxData of them.",
		run: func(c *check) {
			all := make([]byte, 256)
			for i := range all {
				all[i] = byte(i)
			}
			big := make([]byte, min(max(c.info.Limits.MaxData, 0), 1<<20))
			_, _ = rand.Read(big) // never fails, as documented
			for _, data := range [][]byte{all, {0}, {0xff, 0xfe}, []byte("\r\n"), big} {
				if c.info.Limits.MaxData > 0 && len(data) > c.info.Limits.MaxData {
					continue
				}
				req := c.request(c.name())
				req.Data = bytes.Clone(data)
				lease := c.acquire(c.a, req)
				if len(req.Data) > 0 {
					req.Data[0]++ // the driver has its own copy
				}
				c.dataIs("held", req.Name, data)
				c.renew(c.a, lease)
				c.release(c.a, lease)
				c.acquire(c.b, c.request(req.Name))
				c.keptDataIs("held by the next", req.Name, data)
			}
		},
	},
	{
		name: "data/own copy",
		says: "A Record is a value. Changing it changes nothing that is stored.",
		run: func(c *check) {
			req := c.request(c.name())
			req.Data = []byte("kept")
			c.acquire(c.a, req)
			copy(c.inspect(c.a, req.Name).Data, "lost")
			c.dataIs("held, after a caller changed a Record", req.Name, []byte("kept"))
		},
	},
}

// keptDataIs is dataIs after the lock was free. It expects nothing if a free record need not keep the data.
func (c *check) keptDataIs(when, name string, want []byte) {
	if c.can(keepsData) {
		c.dataIs(when, name, want)
	}
}

// dataIs expects that both Lockers show the data.
func (c *check) dataIs(when, name string, want []byte) {
	if got := c.inspect(c.a, name).Data; !bytes.Equal(got, want) {
		c.errorf("while %s the data are %s, want %s", when, quoteOrNil(got), quoteOrNil(want))
	}
	if got := c.inspect(c.b, name).Data; !bytes.Equal(got, want) {
		c.errorf("while %s the data seen through another Locker are %s, want %s", when, quoteOrNil(got), quoteOrNil(want))
	}
}
