package leases

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/scheduler"
)

// managedName is one name in one of its phases. The manager's mu guards all of it, except for the
// campaign's acquisition, which belongs to the attempt while there is one.
type managedName struct {
	name     string
	wanted   bool // false after Remove or Close
	phase    phase
	campaign *campaign       // waiting, attempting
	hold     *engine.Hold    // held, lost, releasing
	release  *pendingRelease // lost, releasing
}

type phase uint8

const (
	waiting    phase = iota // for the next attempt
	attempting              // a request is under way
	held
	lost      // until another may be granted the lease; then it is released
	releasing // being released
)

// live reports whether the name is held at this moment.
func (n *managedName) live() bool { return n.phase == held && n.hold.Err() == nil }

// campaign is the acquisition of one name, from its first attempt until it is held or removed.
type campaign struct {
	scheduler.Entry
	acquisition *engine.Acquisition
	measured    *engine.Measured // or nil
	watched     bool
	stopWatch   func()
	woken       bool // by the Watcher or the Queue, during an attempt or an urgent read
	hinted      bool // it is the turn of this waiter
	reads       int  // numbers the reads of the record; only the latest counts
	failedReads int  // in a row
	urgent      bool // the Watcher has asked for the planned read
}

// request is the acquisition's attempt at the only slot.
func (c *campaign) request() *engine.Attempt { return c.acquisition.Attempts[0] }

// cancelRead drops the planned read.
func (c *campaign) cancelRead() {
	c.reads++
	c.urgent = false
	c.request().CancelRead()
}

// startCampaign begins to campaign for a name that is new or was released.
func (m *LeaseManager) startCampaign(n *managedName, at time.Duration) {
	c := &campaign{acquisition: m.client.NewSharedAcquisition(m.policy, n.name, m.settings)}
	_, c.measured = m.client.MeasureAcquire(context.Background(), n.name, telemetry.Managed)
	c.acquisition.JoinQueue()
	c.Do = func() { m.attempt(n, c) }
	n.phase, n.hold, n.release, n.campaign = waiting, nil, nil, c
	m.attempts.Set(&c.Entry, at, false)
}

// attempt makes one attempt.
func (m *LeaseManager) attempt(n *managedName, c *campaign) {
	m.mu.Lock()
	due := n.campaign == c && n.phase == waiting && m.client.Work().Start() // the work ends with the hold
	if due {
		n.phase, c.woken, c.hinted = attempting, false, false
		c.cancelRead()
	}
	m.mu.Unlock()
	if !due {
		return
	}
	a := c.acquisition
	grant, err := a.Try(m.client.Closing(), a.Attempts)
	if err != nil {
		m.attemptFailed(n, c, err)
		m.client.Work().Done()
		return
	}
	m.mu.Lock()
	var calls deferredCalls
	calls.add(c.stopWatch)
	a.LeaveQueue()
	// With mu held, so that an observer of EventAcquired finds the hold.
	n.phase, n.campaign, n.hold = held, nil, m.client.NewHold(context.Background(), a, grant, true)
	c.measured.End(nil)
	if !n.wanted {
		m.releaseNow(n, cause.ErrReleased, &calls)
	} else {
		m.endRemoval(n, nil) // removed and added again during the attempt
	}
	m.mu.Unlock()
	calls.run()
}

// attemptFailed plans the next attempt, or drops a name that was removed meanwhile.
func (m *LeaseManager) attemptFailed(n *managedName, c *campaign, err error) {
	a := c.acquisition
	if errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrClosed) {
		a.Failures++ // retried with a backoff: somebody may repair the record
		a.Emit(event.Event{Type: event.Error, Name: n.name, Op: "acquire", Err: err, Time: time.Now()})
	}
	a.Identify(m.client.Closing())
	if !c.watched {
		c.watched = true
		stop := a.Watch(func(_ *engine.Attempt, turn time.Duration) { m.wake(n, c, turn) })
		m.mu.Lock()
		c.stopWatch = stop
		m.mu.Unlock()
	}
	var calls deferredCalls
	m.mu.Lock()
	if n.wanted && !m.closed {
		n.phase = waiting
		m.endRemoval(n, nil)
		m.planNext(n, c)
	} else {
		m.drop(n, &calls)
	}
	m.mu.Unlock()
	calls.run()
}

// planNext plans what follows a failed attempt: the next attempt and, where the backend reads in
// batches, reads of the record before it.
func (m *LeaseManager) planNext(n *managedName, c *campaign) {
	if c.acquisition.Failures > 0 { // nothing is sent during the backoff
		m.attempts.Set(&c.Entry, m.client.Now()+c.acquisition.Backoff(), true)
		return
	}
	c.failedReads = 0 // the backend has answered
	if c.woken {
		m.followWakeUp(n, c)
	} else {
		m.schedule(n, c)
	}
}

func (m *LeaseManager) schedule(n *managedName, c *campaign) {
	attemptAt, readAt := c.request().Schedule()
	m.attempts.Set(&c.Entry, attemptAt, false)
	if readAt < attemptAt && c.request().Readable() {
		m.planRead(n, c, readAt)
	}
}

// planRead has the name's record read, together with those of other names.
func (m *LeaseManager) planRead(n *managedName, c *campaign, at time.Duration) {
	c.cancelRead()
	number := c.reads
	c.request().StopRead = m.client.Reader().Read(n.name, at, func(r driver.Record, err error) { m.recordRead(n, c, number, r, err) })
}

// recordRead handles the result of a read.
func (m *LeaseManager) recordRead(n *managedName, c *campaign, number int, r driver.Record, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n.campaign != c || n.phase != waiting || c.reads != number || m.client.Closing().Err() != nil {
		return
	}
	now, wokenAgain := m.client.Now(), c.urgent && c.woken
	c.urgent, c.woken = false, false
	switch {
	case err != nil: // attempts for each of thousands of names would fail too
		c.acquisition.Emit(event.Event{Type: event.Error, Name: n.name, Op: "inspect", Err: err, Time: time.Now()})
		m.planRead(n, c, now+m.settings.Backoff(c.failedReads))
		c.failedReads++
		return
	case c.request().SawRecord(r, nil):
		m.attempts.Set(&c.Entry, now, false)
	case wokenAgain:
		m.followWakeUp(n, c)
	default:
		m.schedule(n, c)
	}
	c.failedReads = 0
}

// wake is called by the Watcher or the Queue.
func (m *LeaseManager) wake(n *managedName, c *campaign, turn time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case n.campaign != c:
	case turn == driver.NothingMissed:
		c.request().Watching = true
	case n.phase == attempting || c.urgent && turn == driver.MaybeMissed: // what is under way may return the state before the wake-up
		c.woken, c.hinted = true, c.hinted || turn >= 0
	case c.acquisition.Failures > 0 || c.failedReads > 0: // nothing is sent during the backoff
	case turn > 0: // another waiter comes first
		c.cancelRead() // its result would plan another time
		// A hint that is repeated does not postpone the turn that the first one began.
		m.attempts.Hasten(&c.Entry, m.client.Now()+turn)
	default:
		c.hinted = turn == 0
		m.followWakeUp(n, c)
	}
}

// followWakeUp sends an attempt or a read after a wake-up. The read comes first in two cases: at
// the Watcher's first call, which says only that the watch is in effect, and while attempts wait
// for the concurrency limit, because the read shows which names are worth an attempt. A waiter whose
// turn it is sends an attempt: a read may still show the record of before the release.
func (m *LeaseManager) followWakeUp(n *managedName, c *campaign) {
	a, now := c.request(), m.client.Now()
	first := !a.Watching
	a.Watching = true
	if a.Readable() && !c.hinted && (first || !m.attempts.Idle()) {
		m.schedule(n, c)
		m.planRead(n, c, now)
		c.urgent, c.woken = true, false
		return
	}
	c.cancelRead() // it may return the state before the wake-up
	m.attempts.Set(&c.Entry, now, false)
}
