package leases

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/cause"
	"github.com/holdfast-go/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/scheduler"
)

// claim is one managed name, in one of its phases. All is guarded by the manager's mu,
// but the asker, which belongs to the attempt while there is one.
type claim struct {
	name   string
	wanted bool // false: Unmanage or Close was called
	phase  claimPhase
	quest  *quest       // idle, asking
	hold   *engine.Hold // held, lost, giving
	back   *comeback    // lost, giving
	going  *going       // what Unmanage waits for, or nil
}

type claimPhase uint8

const (
	idle   claimPhase = iota // waits for its next attempt
	asking                   // an attempt is under way
	held
	lost   // until its lease can be another's; then it is released, and campaigned for again
	giving // being released
)

// quest is a campaign for a name.
type quest struct {
	scheduler.Entry
	asker     *engine.Acquisition
	woken     bool // during an attempt, or an urgent look
	watched   bool
	stopWatch func()
	looks     int  // numbers the looks; only the latest counts
	blind     int  // looks in a row that failed
	urgent    bool // the Watcher has called for the present look
}

// seat is the one seat of the asker.
func (q *quest) seat() *engine.Attempt { return q.asker.Attempts[0] }

// comeback is a hold on its way back.
type comeback struct {
	scheduler.Entry
	busy        bool // an attempt is under way
	begun, kept bool
	tries       int
	cause       error // of the end of a hold that is given back
}

// going is closed when an unmanaged name has gone.
type going struct {
	name string
	done chan struct{}
	err  error // readable once done is closed
}

func (c *claim) live() bool { return c.phase == held && c.hold.Err() == nil }

// aftermath is what is to be done without the lock.
type aftermath []func()

func (r *aftermath) add(fn func()) {
	if fn != nil {
		*r = append(*r, fn)
	}
}

func (r aftermath) settle() {
	for _, fn := range r {
		fn()
	}
}

// seek begins to campaign for a claim that is idle or has come back.
func (m *LeaseManager) seek(c *claim, at time.Duration) {
	q := &quest{asker: m.client.NewSharedAcquisition(m.policy, c.name, m.settings)}
	q.Do = func() { m.ask(c, q) }
	c.phase, c.hold, c.back, c.quest = idle, nil, nil, q
	m.asks.Set(&q.Entry, at, false)
}

// ask makes one attempt.
func (m *LeaseManager) ask(c *claim, q *quest) {
	m.mu.Lock()
	due := c.quest == q && c.phase == idle && m.client.Work().Start() // for the hold to be
	if due {
		c.phase, q.woken = asking, false
		q.lookAway()
	}
	m.mu.Unlock()
	if !due {
		return
	}
	a := q.asker
	g, err := a.Try(m.client.Closing(), a.Attempts)
	if err != nil {
		m.refused(c, q, err)
		m.client.Work().Done()
		return
	}
	m.mu.Lock()
	var rest aftermath
	rest.add(q.stopWatch)
	// Under the lock, so that an observer who is told of it finds the hold.
	c.phase, c.quest, c.hold = held, nil, m.client.NewHold(context.Background(), a, g, true)
	if !c.wanted {
		m.giveBack(c, cause.ErrReleased, &rest)
	} else {
		c.resolve(nil) // unmanaged and managed again meanwhile
	}
	m.mu.Unlock()
	rest.settle()
}

// refused plans the next attempt.
func (m *LeaseManager) refused(c *claim, q *quest, err error) {
	a, cl := q.asker, m.client
	if errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrClosed) {
		a.Failures++ // it may pass: somebody mends the record
		a.Emit(event.Event{Type: event.Error, Name: c.name, Op: "acquire", Err: err, Time: time.Now()})
	}
	a.Identify(cl.Closing())
	if w := cl.Capabilities().Watcher; w != nil && !q.watched {
		q.watched = true
		stop := w.Watch(c.name, func() { m.wake(c, q) })
		m.mu.Lock()
		q.stopWatch = stop
		m.mu.Unlock()
	}
	var rest aftermath
	m.mu.Lock()
	if c.wanted && !m.closed {
		c.phase = idle
		c.resolve(nil)
		m.rest(c, q)
	} else {
		m.forget(c, &rest)
	}
	m.mu.Unlock()
	rest.settle()
}

// over is a hold's call when it is lost, and when it has been released.
func (m *LeaseManager) over(h *engine.Hold, released bool) {
	var rest aftermath
	m.mu.Lock()
	if c := m.claims[h.Name()]; c != nil && c.hold == h {
		if released {
			m.returned(c, &rest)
		} else if c.phase == held {
			m.mourn(c)
		}
	}
	m.mu.Unlock()
	if !released {
		h.StopRenewal() // whether there is work that overruns, nobody knows
	}
	rest.settle()
}

// mourn has a lost lease released when it can be another's: earlier, its work may still
// be stopping; and later, a renewal that landed late would keep others waiting.
func (m *LeaseManager) mourn(c *claim) {
	c.phase, c.back = lost, &comeback{}
	at := m.client.Now()
	if c.hold.LostIn() <= 0 {
		at += c.hold.ExpiresIn()
	} // else the backend has said that it is not ours any more
	m.plan(c, at)
}

// giveBack has a hold released now. Its context ends at once, with the cause, but the
// lease is kept until its turn has come.
func (m *LeaseManager) giveBack(c *claim, cause error, rest *aftermath) {
	if c.phase == held {
		c.back = &comeback{}
	}
	c.phase, c.back.cause = giving, cause
	m.plan(c, m.client.Now())
	h := c.hold
	rest.add(func() { h.Cancel(cause) })
}

func (m *LeaseManager) plan(c *claim, at time.Duration) {
	h, b := c.hold, c.back
	b.Do = func() { m.release(c, h, b) }
	m.gives.Set(&b.Entry, at, false)
}

// release makes one attempt to release.
func (m *LeaseManager) release(c *claim, h *engine.Hold, b *comeback) {
	m.mu.Lock()
	due, cause := c.back == b && !b.busy, b.cause
	if due {
		c.phase, b.busy = giving, true
	}
	m.mu.Unlock()
	if !due {
		return
	}
	if !b.begun {
		if cause != nil {
			h.Cancel(cause) // giveBack's own call may be yet to come
		}
		if b.kept, b.begun = h.BeginRelease(); !b.begun {
			return // somebody else releases it; over tells when that is done
		}
	}
	pause, err := h.TryRelease(m.client.Base(), b.tries)
	if pause > 0 {
		m.mu.Lock()
		defer m.mu.Unlock()
		b.busy = false
		b.tries++
		m.gives.Set(&b.Entry, m.client.Now()+pause, true)
		if m.client.Base().Err() != nil {
			m.gives.RunAllNow() // Shutdown may have done so before
		}
		return
	}
	h.EndRelease(b.kept, err)
}

// returned takes note of a hold that was released.
func (m *LeaseManager) returned(c *claim, rest *aftermath) {
	at := m.client.Now()
	if c.back == nil { // not by us
		at += clock.Jitter(m.settings.Poll, 0.2)
	} else {
		m.gives.Cancel(&c.back.Entry)
	}
	err := c.hold.ReleaseErr()
	c.resolve(err)
	if c.wanted && !m.closed {
		m.seek(c, at)
	} else {
		if err != nil && m.closed {
			m.failed.Add(c.name, err)
		}
		c.phase, c.hold, c.back = idle, nil, nil
		m.forget(c, rest)
	}
}

// abandon gives a claim up. What it returns is closed when that is done; nil: it is.
func (m *LeaseManager) abandon(c *claim, cause error, rest *aftermath) *going {
	c.wanted = false
	switch c.phase {
	case idle:
		m.forget(c, rest)
		return nil
	case held, lost:
		m.giveBack(c, cause, rest)
	}
	if c.going == nil {
		c.going = &going{name: c.name, done: make(chan struct{})}
	}
	return c.going
}

// forget drops a claim that has no hold.
func (m *LeaseManager) forget(c *claim, rest *aftermath) {
	if q := c.quest; q != nil {
		m.asks.Cancel(&q.Entry)
		q.lookAway()
		rest.add(q.stopWatch)
		q.asker.Abandon()
		c.quest = nil
	}
	delete(m.claims, c.name)
	m.client.AddNames(-1)
	c.resolve(nil)
	m.checkDrained()
}

// resolve tells Unmanage that the claim has gone, or is wanted again.
func (c *claim) resolve(err error) {
	if g := c.going; g != nil {
		g.err = err
		close(g.done)
		c.going = nil
	}
}
