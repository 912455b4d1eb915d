package leases

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/event"
)

// rest plans what comes after an attempt that was refused: the next one, and looks
// before that, where the backend reads in batches.
func (m *LeaseManager) rest(c *claim, q *quest) {
	if q.asker.Failures > 0 { // it is left alone for the whole pause
		m.asks.Set(&q.Entry, m.client.Now()+q.asker.Backoff(), true)
		return
	}
	q.blind = 0 // the backend has answered
	if q.woken {
		m.rouse(c, q)
	} else {
		m.schedule(c, q)
	}
}

func (m *LeaseManager) schedule(c *claim, q *quest) {
	askAt, lookAt := q.seat().Schedule()
	m.asks.Set(&q.Entry, askAt, false)
	if lookAt < askAt && q.seat().Readable() {
		m.look(c, q, lookAt)
	}
}

// look has the lookout look at a name's record.
func (m *LeaseManager) look(c *claim, q *quest, at time.Duration) {
	q.lookAway()
	n := q.looks
	q.seat().StopRead = m.client.Reader().Read(c.name, at, func(r driver.Record, err error) { m.saw(c, q, n, r, err) })
}

// lookAway ends the present look.
func (q *quest) lookAway() {
	q.looks++
	q.urgent = false
	q.seat().CancelRead()
}

// saw is the lookout's call: what look number n has shown.
func (m *LeaseManager) saw(c *claim, q *quest, n int, r driver.Record, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.quest != q || c.phase != idle || q.looks != n || m.client.Closing().Err() != nil {
		return
	}
	now, again := m.client.Now(), q.urgent && q.woken
	q.urgent, q.woken = false, false
	switch {
	case err != nil: // attempts for each of very many names would fare no better
		q.asker.Emit(event.Event{Type: event.Error, Name: c.name, Op: "inspect", Err: err, Time: time.Now()})
		m.look(c, q, now+m.settings.Backoff(q.blind))
		q.blind++
		return
	case q.seat().SawRecord(r, nil):
		m.asks.Set(&q.Entry, now, false)
	case again:
		m.rouse(c, q)
	default:
		m.schedule(c, q)
	}
	q.blind = 0
}

// wake is the Watcher's call.
func (m *LeaseManager) wake(c *claim, q *quest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case c.quest != q:
	case c.phase == asking || q.urgent: // what is under way may show what was before
		q.woken = true
	case q.asker.Failures > 0 || q.blind > 0: // a backend that fails is left alone for the whole pause
	default:
		m.rouse(c, q)
	}
}

// rouse sees to a name that the Watcher has called for. The first call says only that
// the watch is in effect, and when very many are called for at once, attempts wait for
// each other: then a look tells which of them are worth one.
func (m *LeaseManager) rouse(c *claim, q *quest) {
	s, now := q.seat(), m.client.Now()
	first := !s.Watching
	s.Watching = true
	if s.Readable() && (first || !m.asks.Idle()) {
		m.schedule(c, q)
		m.look(c, q, now)
		q.urgent, q.woken = true, false
		return
	}
	q.lookAway() // it may be about to tell what was before
	m.asks.Set(&q.Entry, now, false)
}
