package leases

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/engine"
)

// startWork calls the function for a hold that has begun; mu is held. The calls have a goroutine of their own.
func (m *LeaseManager) startWork(n *managedName, h *engine.Hold) {
	if m.fn == nil {
		return
	}
	work := &engine.Work{
		Hold: h, Func: func(ctx context.Context) error { return m.fn(ctx, n.name) }, Restart: m.restart,
		Ended: func() { m.workEnded(n, h) }, Go: func(do func()) { m.workers.Go(do) },
	}
	n.working = m.workers.Go(work.Do)
}

// workEnded plans what waited for the function: the release of its hold, or the next campaign.
func (m *LeaseManager) workEnded(n *managedName, h *engine.Hold) {
	var calls deferredCalls
	m.mu.Lock()
	n.working = false
	switch {
	case h.Released(): // after a panic
		m.released(n, &calls)
	case n.phase != held:
		if h.LeaseErr() != nil { // no overrun, also if the release has to wait
			calls.add(h.StopRenewal)
		}
		m.planRelease(n, m.client.Now())
	}
	m.mu.Unlock()
	calls.run()
}
