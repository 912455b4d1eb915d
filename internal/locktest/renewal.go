package locktest

import (
	"context"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
)

// Counted counts the renewals and releases under way.
type Counted struct {
	*Faulty
	busy, Worst atomic.Int64
}

func (c *Counted) count(call func() error) error {
	n := c.busy.Add(1)
	defer c.busy.Add(-1)
	for most := c.Worst.Load(); n > most && !c.Worst.CompareAndSwap(most, n); most = c.Worst.Load() {
	}
	return call()
}

func (c *Counted) Renew(ctx context.Context, l holdfast.Lease) error {
	return c.count(func() error { return c.Faulty.Renew(ctx, l) })
}

func (c *Counted) Release(ctx context.Context, l holdfast.Lease) error {
	return c.count(func() error { return c.Faulty.Release(ctx, l) })
}
