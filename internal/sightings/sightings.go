// Package sightings remembers which holders a Client has seen, and since when each has not
// renewed. So a Client detects a holder that is stuck: one that is dead although, after the
// server's clock stepped back, its expiry still lies far ahead.
package sightings

import (
	"cmp"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// Memory has the latest sighting of each name. Waiters, tries, runners, LeaseManagers and
// Partitions of a Client share one, so that even callers that see a holder only now and then
// detect that it is stuck together.
//
// It forgets a name that nobody has seen for an hour and four of the longest TTLs, and when
// there are very many names, those that were seen longest ago. A waiter keeps its own sighting
// beyond that.
type Memory struct {
	// Promise 8: elapsed time, never a wall clock, measures how long a holder has not renewed.
	now func() time.Duration

	mu              sync.Mutex
	recent, earlier map[string]*Sighting // by name: seen in this period, and in the one before
	began           time.Duration        // when the period began
	longestTTL      time.Duration
}

// New returns an empty Memory. now is the elapsed-time clock.
func New(now func() time.Duration) *Memory { return &Memory{now: now} }

// A period lasts for this long and four of the longest TTLs, or until it has so many new names.
const (
	period   = time.Hour
	maxNames = 1 << 16
)

// Sighting is the latest revision seen of one name. The mu of its Memory guards it.
type Sighting struct {
	revision driver.Revision
	ttl      time.Duration
	since    time.Duration // when the revision was first seen: after the reply, so the renewal was earlier
}

// See notes the record of a holder that was read just now, and returns its sighting. own is the
// caller's earlier sighting of the name, or nil: it counts if the Memory has forgotten the name.
// The result is nil if the backend has no revisions.
func (m *Memory) See(name string, r driver.Record, own *Sighting) *Sighting {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := cmp.Or(m.lookUp(name), own)
	if s == nil {
		if r.Revision.IsZero() {
			return nil
		}
		s = &Sighting{}
	}
	now := m.now()
	if r.Revision.IsZero() || r.Revision != s.revision {
		s.since = now
	}
	s.revision, s.ttl = r.Revision, min(r.TTL, driver.MaxTTL)
	m.longestTTL = max(m.longestTTL, s.ttl)
	if m.recent == nil || len(m.recent) >= maxNames || now-m.began > period+4*m.longestTTL {
		m.earlier, m.recent, m.began = m.recent, map[string]*Sighting{}, now
	}
	m.recent[name] = s
	return s
}

// Find returns the sighting of a name, or nil.
func (m *Memory) Find(name string) *Sighting {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lookUp(name)
}

func (m *Memory) lookUp(name string) *Sighting {
	if s := m.recent[name]; s != nil {
		return s
	}
	return m.earlier[name]
}

// Stuck returns the revision of a holder that is stuck, and zero if the holder is not. s may be
// nil. The backend replaces exactly that revision, or refuses.
func (m *Memory) Stuck(s *Sighting) driver.Revision {
	m.mu.Lock() // once for both: another caller may see a later revision in between
	defer m.mu.Unlock()
	if m.now() < m.stuckAt(s) {
		return driver.Revision{}
	}
	return s.revision
}

// Unchanged returns for how long the revision has been the same, at least. s may be nil.
func (m *Memory) Unchanged(s *Sighting) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s == nil || s.revision.IsZero() {
		return 0
	}
	return m.now() - s.since
}

// StuckAt is when the holder will be stuck unless it renews. s may be nil: then that is never.
func (m *Memory) StuckAt(s *Sighting) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stuckAt(s)
}

func (m *Memory) stuckAt(s *Sighting) time.Duration {
	if s == nil || s.revision.IsZero() || s.ttl <= 0 {
		return driver.MaxTTL + m.now()
	}
	// Promise 10: a holder that has not renewed for its whole TTL, and an allowance for clock
	// drift, is over whatever its expiry says.
	return s.since + s.ttl + s.ttl/timing.DriftPart
}
