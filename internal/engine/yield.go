package engine

import "time"

// Where a Waker wakes the waiters but nothing orders them, the next waiter of this process yields after a release: it lets other
// processes send their requests first, since they learn of the release later. Without a Waker it need not: processes that poll would
// hardly ever find the lock free. With a Queue the backend has the order.
const (
	minYield = time.Millisecond
	maxYield = 100 * time.Millisecond
)

// yieldUntil is until when the next waiter of this process lets other processes send their
// requests: for as long as the release took, which is about when they learn of it.
func (h *Hold) yieldUntil() time.Duration {
	c, now := h.client, h.client.now()
	if c.capabilities.Waker == nil {
		return now
	}
	return now + min(max(now-h.release.Load().began, minYield), maxYield)
}
