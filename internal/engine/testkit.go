package engine

// The functions of this file are for package holdfasttest.

// HoldOf returns the hold of a lock, or of a slot's record, that the Client has now; nil if there is
// none.
func (c *Client) HoldOf(name string) *Hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	for h := range c.holds {
		if h.Name() == name && h.Err() == nil {
			return h
		}
	}
	return nil
}

// ClockMoved makes the Client notice at once that its clock has moved by more than the time that
// its timers measured, as after a suspend. Otherwise it notices within a second.
func (c *Client) ClockMoved() { c.renewer.ClockMoved() }

// RenewNow renews the lease at once.
func (h *Hold) RenewNow() { h.client.renewer.RenewNow(&h.entry) }
