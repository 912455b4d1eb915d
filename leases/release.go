package leases

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/dispatch"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// pendingRelease is the release of a hold, with as many attempts as it takes.
type pendingRelease struct {
	dispatch.Plan
	do          func() // an attempt
	busy        bool   // an attempt is under way
	begun, kept bool   // the results of BeginRelease
	tries       int
	cause       error // that ends the hold's context, or nil if it was lost
}

// removal is what Remove waits for.
type removal struct {
	name string
	hold *engine.Hold // or nil
	done chan struct{}
	err  error // readable once done is closed
}

// deferredCalls are calls to make once mu is no longer held.
type deferredCalls []func()

func (d *deferredCalls) add(fn func()) {
	if fn != nil {
		*d = append(*d, fn)
	}
}

func (d deferredCalls) run() {
	for _, fn := range d {
		fn()
	}
}

// holdEnded is called when a hold is lost, and when it has been released.
func (m *LeaseManager) holdEnded(h *engine.Hold, released bool) {
	var calls deferredCalls
	working := false
	m.mu.Lock()
	if n := m.names[h.Name()]; n != nil && n.hold == h {
		working = n.working
		switch {
		case released && !working: // else workEnded follows
			m.released(n, &calls)
		case !released && n.phase == held:
			m.releaseLost(n)
		}
	}
	m.mu.Unlock()
	if !released && !working {
		h.StopRenewal() // the manager does not know whether work goes on, so it reports no overrun
	}
	calls.run()
}

// releaseLost plans the release of a lost lease for when the work under it had its time to stop. It has to be
// released then, because a renewal that landed late would keep others waiting.
func (m *LeaseManager) releaseLost(n *managedName) {
	n.phase, n.release = lost, &pendingRelease{}
	// Promise 7: until the lease expires its work may still be stopping. After a refused renewal that may be long; a grace is enough.
	m.planRelease(n, m.client.Now()+min(m.settings.Grace, n.hold.ExpiresIn()))
}

// releaseNow ends the context of a hold at once, with the cause. The lease is renewed until an
// attempt to release it is due.
func (m *LeaseManager) releaseNow(n *managedName, cause error, calls *deferredCalls) {
	if n.phase == held {
		n.release = &pendingRelease{}
	}
	n.phase, n.release.cause = releasing, cause
	m.planRelease(n, m.client.Now())
	h := n.hold
	calls.add(func() { h.Cancel(cause) })
}

func (m *LeaseManager) planRelease(n *managedName, at time.Duration) {
	if n.working {
		return // Promise 7: workEnded plans it, after the function has returned.
	}
	h, r := n.hold, n.release
	r.do = func() { m.tryRelease(n, h, r) }
	m.releases.Set(r, at, false)
}

// tryRelease makes one attempt to release.
func (m *LeaseManager) tryRelease(n *managedName, h *engine.Hold, r *pendingRelease) {
	m.mu.Lock()
	due, cause := n.release == r && !r.busy, r.cause
	if due {
		n.phase, r.busy = releasing, true
	}
	m.mu.Unlock()
	if !due {
		return
	}
	if !r.begun {
		if cause != nil {
			h.Cancel(cause) // releaseNow's own call may come later
		}
		if r.kept, r.begun = h.BeginRelease(); !r.begun {
			return // the program releases it itself; holdEnded follows
		}
	}
	backoff, err := h.TryRelease(m.client.Base(), r.tries)
	if backoff > 0 {
		m.mu.Lock()
		defer m.mu.Unlock()
		r.busy = false
		r.tries++
		m.releases.Set(r, m.client.Now()+backoff, true)
		if m.client.Base().Err() != nil {
			m.releases.RunAllNow() // Shutdown may have called it before
		}
		return
	}
	h.EndRelease(r.kept, err)
}

// released campaigns again after a release, or drops the name.
func (m *LeaseManager) released(n *managedName, calls *deferredCalls) {
	at := m.client.Now()
	if n.release == nil { // the program released it: others go first
		at += timing.Jitter(m.settings.Poll, 0.2)
	} else {
		m.releases.Cancel(n.release)
	}
	err := n.hold.ReleaseErr()
	m.endRemoval(n, err)
	if n.wanted && !m.closed {
		m.startCampaign(n, at)
	} else {
		if err != nil && m.closed {
			m.failed.Add(n.name, err)
		}
		n.phase, n.hold, n.release = waiting, nil, nil
		m.drop(n, calls)
	}
}

// remove begins to remove a name. The result's done is closed when that is finished; nil if it is.
func (m *LeaseManager) remove(n *managedName, cause error, calls *deferredCalls) *removal {
	n.wanted = false
	switch n.phase {
	case waiting:
		m.drop(n, calls)
		return nil
	case held, lost:
		m.releaseNow(n, cause, calls)
	}
	if m.removals[n] == nil {
		m.removals[n] = &removal{name: n.name, hold: n.hold, done: make(chan struct{})}
	}
	return m.removals[n]
}

// errRemoved is the outcome of a campaign for a name that is no longer wanted.
var errRemoved = driver.Errorf("the name was removed: %w", context.Canceled)

// drop forgets a name that has no hold.
func (m *LeaseManager) drop(n *managedName, calls *deferredCalls) {
	if c := n.campaign; c != nil {
		m.attempts.Cancel(c)
		calls.add(c.stopWatch)
		calls.add(func() { c.measured.End(errRemoved) })
		c.acquisition.Abandon()
		n.campaign = nil
	}
	delete(m.names, n.name)
	m.client.AddNames(-1)
	m.endRemoval(n, nil)
	m.checkDrained()
}

// endRemoval lets Remove return: the name is released, or wanted again.
func (m *LeaseManager) endRemoval(n *managedName, err error) {
	if r := m.removals[n]; r != nil {
		r.err = err
		close(r.done)
		delete(m.removals, n)
	}
}

// removeAll begins to remove these names, and returns the removals that are not finished yet.
func (m *LeaseManager) removeAll(names []string, cause error) (removals []*removal) {
	var calls deferredCalls
	m.mu.Lock()
	for _, name := range names {
		if n := m.names[name]; n != nil {
			if r := m.remove(n, cause, &calls); r != nil {
				removals = append(removals, r)
			}
		}
	}
	m.mu.Unlock()
	calls.run()
	return removals
}
