package leases

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/dispatch"
	"github.com/holdfast-go/holdfast/internal/engine"
)

// managedName is one name in one of its phases. The manager's mu guards all of it.
type managedName struct {
	name     string
	wanted   bool // false after Remove or Close
	phase    phase
	working  bool            // the function has not returned; held, lost, releasing
	campaign *campaign       // waiting, attempting
	hold     *engine.Hold    // held, lost, releasing
	release  *pendingRelease // lost, releasing
}

type phase uint8

const (
	waiting    phase = iota // for the next attempt
	attempting              // a request is under way
	held
	lost      // its work may still be stopping; its release is planned
	releasing // being released
)

// live reports whether the name is held at this moment.
func (n *managedName) live() bool { return n.phase == held && n.hold.Err() == nil }

// campaign is the acquisition of one name, from its first attempt until it is held or removed.
type campaign struct {
	dispatch.Plan
	do          func() // an attempt
	acquisition *engine.Acquisition
	began       time.Duration
	measured    *engine.Measured // from the first attempt on; nil without a hook
	watched     bool
	stopWatch   func()
}

// startCampaign begins to campaign for a name that is new or was released.
func (m *LeaseManager) startCampaign(n *managedName, at time.Duration) {
	c := &campaign{began: m.client.Now()}
	driven := engine.Managed{Changed: func() { m.replan(n, c) }, Crowded: func() bool { return !m.attempts.Idle() }}
	c.acquisition = m.client.NewManagedAcquisition(m.policy, n.name, m.settings, driven, at)
	c.do = func() { m.attempt(n, c) }
	n.phase, n.hold, n.release, n.campaign = waiting, nil, nil, c
	m.plan(c)
}

// plan plans the next attempt of a campaign.
func (m *LeaseManager) plan(c *campaign) {
	at, retry := c.acquisition.Next()
	m.attempts.Set(c, at, retry)
}

// replan plans the next attempt again, after a wake-up or a read.
func (m *LeaseManager) replan(n *managedName, c *campaign) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n.campaign == c && n.phase == waiting {
		m.plan(c)
	}
}

// attempt makes one attempt.
func (m *LeaseManager) attempt(n *managedName, c *campaign) {
	m.mu.Lock()
	due := n.campaign == c && n.phase == waiting && m.client.Work().Start() // the work ends with the hold
	if due {
		n.phase = attempting
	}
	m.mu.Unlock()
	if !due {
		return
	}
	if c.measured == nil { // without mu, as all calls of a hook
		_, c.measured = m.client.MeasureAcquire(context.Background(), n.name, telemetry.Managed, 1)
		c.measured.Since(c.began)
	}
	a := c.acquisition
	grant, err := a.Try(m.client.Closing())
	if err != nil {
		m.attemptFailed(n, c)
		m.client.Work().Done()
		return
	}
	h := m.client.NewHold(context.Background(), a, grant, true)
	m.mu.Lock()
	var calls deferredCalls
	calls.add(c.stopWatch)
	n.phase, n.campaign, n.hold = held, nil, h
	h.Begin(grant) // with mu held, so that an observer of EventAcquired finds the hold
	calls.add(func() { c.measured.End(nil) })
	if !n.wanted {
		m.releaseNow(n, cause.ErrReleased, &calls)
	} else {
		m.endRemoval(n, nil) // removed and added again during the attempt
		m.startWork(n, h)
	}
	m.mu.Unlock()
	calls.run()
}

// attemptFailed plans the next attempt, or drops a name that was removed meanwhile.
func (m *LeaseManager) attemptFailed(n *managedName, c *campaign) {
	a := c.acquisition
	a.Identify(m.client.Closing())
	if !c.watched {
		c.watched = true
		stop := a.Watch()
		m.mu.Lock()
		c.stopWatch = stop
		m.mu.Unlock()
	}
	var calls deferredCalls
	m.mu.Lock()
	if n.wanted && !m.closed {
		n.phase = waiting
		m.endRemoval(n, nil)
		m.plan(c)
	} else {
		m.drop(n, &calls)
	}
	m.mu.Unlock()
	calls.run()
}
