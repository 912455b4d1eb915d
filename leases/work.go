package leases

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/engine"
)

// startWork calls the function for a hold that has begun; mu is held.
func (m *LeaseManager) startWork(n *managedName, h *engine.Hold) {
	n.working = m.fn != nil && m.workers.Go(func() { m.work(n, h) })
}

// work calls the function under a hold, on a goroutine of its own.
func (m *LeaseManager) work(n *managedName, h *engine.Hold) {
	returned := false
	defer func() {
		if !returned { // it panicked, so the program is about to end
			h.Finish(h.Context())
		}
		m.workEnded(n, h)
	}()
	h.CallUntilDone(func(ctx context.Context) error { return m.fn(ctx, n.name) }, m.restart)
	returned = true
}

// workEnded plans what waited for the function: the release of its hold, or the next campaign.
func (m *LeaseManager) workEnded(n *managedName, h *engine.Hold) {
	var calls deferredCalls
	m.mu.Lock()
	n.working = false
	switch {
	case h.Released(): // by the program, or after a panic
		m.released(n, &calls)
	case n.phase != held:
		m.planRelease(n, m.client.Now())
	}
	m.mu.Unlock()
	calls.run()
}
