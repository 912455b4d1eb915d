package holdfast

import (
	"time"
)

// rest plans what comes after an attempt that was refused: the next one, and looks
// before that, where the backend reads in batches.
func (m *LeaseManager) rest(c *claim, q *quest) {
	if q.asker.failures > 0 { // it is left alone for the whole pause
		m.asks.Set(&q.Entry, m.client.now()+q.asker.pause(), true)
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
	askAt, lookAt := q.seat().schedule()
	m.asks.Set(&q.Entry, askAt, false)
	if lookAt < askAt && q.seat().lookable() {
		m.look(c, q, lookAt)
	}
}

// look has the lookout look at a name's record.
func (m *LeaseManager) look(c *claim, q *quest, at time.Duration) {
	q.lookAway()
	n := q.looks
	q.seat().unlook = m.client.lookout.look(c.name, at, func(r Record, err error) { m.saw(c, q, n, r, err) })
}

// lookAway ends the present look.
func (q *quest) lookAway() {
	q.looks++
	q.urgent = false
	q.seat().forget()
}

// saw is the lookout's call: what look number n has shown.
func (m *LeaseManager) saw(c *claim, q *quest, n int, r Record, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.quest != q || c.phase != idle || q.looks != n || m.client.closing.Err() != nil {
		return
	}
	now, again := m.client.now(), q.urgent && q.woken
	q.urgent, q.woken = false, false
	switch {
	case err != nil: // attempts for each of very many names would fare no better
		q.asker.emit(Event{Type: EventError, Name: c.name, Op: "inspect", Err: err, Time: time.Now()})
		m.look(c, q, now+m.settings.retry(q.blind))
		q.blind++
		return
	case q.seat().looked(r, nil):
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
	case q.asker.failures > 0 || q.blind > 0: // a backend that fails is left alone for the whole pause
	default:
		m.rouse(c, q)
	}
}

// rouse sees to a name that the Watcher has called for. The first call says only that
// the watch is in effect, and when very many are called for at once, attempts wait for
// each other: then a look tells which of them are worth one.
func (m *LeaseManager) rouse(c *claim, q *quest) {
	s, now := q.seat(), m.client.now()
	first := !s.watching
	s.watching = true
	if s.lookable() && (first || !m.asks.Idle()) {
		m.schedule(c, q)
		m.look(c, q, now)
		q.urgent, q.woken = true, false
		return
	}
	q.lookAway() // it may be about to tell what was before
	m.asks.Set(&q.Entry, now, false)
}
