package engine

import (
	"cmp"
	"slices"
)

// The functions of this file are for package holdfasttest.

// HoldsOf returns the holds of a lock, or of a slot's record, that the Client has now, in the order of their tokens: several if it
// reads.
func (c *Client) HoldsOf(name string) []*Hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*Hold
	for h := range c.holds {
		if h.Name() == name && h.Err() == nil {
			all = append(all, h)
		}
	}
	slices.SortFunc(all, func(a, b *Hold) int { return cmp.Compare(a.Token(), b.Token()) })
	return all
}

// ClockMoved makes the Client notice at once that its clock has moved by more than the time that
// its timers measured, as after a suspend. Otherwise it notices within a second.
func (c *Client) ClockMoved() { c.renewer.ClockMoved() }

// RenewNow renews the lease at once.
func (h *Hold) RenewNow() { h.client.renewer.RenewNow(&h.entry) }
