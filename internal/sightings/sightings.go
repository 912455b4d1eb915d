package sightings

import (
	"cmp"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// sightings is what a Client remembers of the holders that it was refused for, or has read:
// since when each has not been renewed. Waiters, tries, runners, LeaseManagers and Partitions
// share it, so that even a caller that asks only now and then detects a stuck holder.
//
// It forgets a name that nobody has seen for an hour and four of the longest TTLs, and
// the names seen longest ago when there are very many. A waiter keeps its own sighting.
type Memory struct {
	now func() time.Duration

	mu              sync.Mutex
	recent, earlier map[string]*Sighting // by name: seen in this period, and in the one before
	began           time.Duration        // when the period began
	longestTTL      time.Duration
}

func New(now func() time.Duration) *Memory { return &Memory{now: now} }

// The longest period, but for long TTLs, and the most names that are new in it.
const (
	period   = time.Hour
	maxNames = 1 << 16
)

// sighting is the latest revision that was seen of one name. It is guarded by the mu of its
// sightings.
type Sighting struct {
	revision driver.Revision
	ttl      time.Duration
	since    time.Duration // when it was seen first, after the reply: it was made before
}

// see takes in the record of a holder that was read just now. kept is the sighting of the
// name that the caller has kept, or nil: it counts if the name is forgotten here. The result
// is nil if the backend has no revisions.
func (m *Memory) See(name string, r driver.Record, kept *Sighting) *Sighting {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := cmp.Or(m.lookUp(name), kept)
	if g == nil {
		if r.Revision.IsZero() {
			return nil
		}
		g = &Sighting{}
	}
	now := m.now()
	if r.Revision.IsZero() || r.Revision != g.revision {
		g.since = now
	}
	g.revision, g.ttl = r.Revision, min(r.TTL, driver.MaxTTL)
	m.longestTTL = max(m.longestTTL, g.ttl)
	if m.recent == nil || len(m.recent) >= maxNames || now-m.began > period+4*m.longestTTL {
		m.earlier, m.recent, m.began = m.recent, map[string]*Sighting{}, now
	}
	m.recent[name] = g
	return g
}

// find returns what is remembered of a name, or nil.
func (m *Memory) Find(name string) *Sighting {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lookUp(name)
}

func (m *Memory) lookUp(name string) *Sighting {
	if g := m.recent[name]; g != nil {
		return g
	}
	return m.earlier[name]
}

// stuck returns the holder's revision if it has not been renewed for one whole TTL
// of our own elapsed time: it is over then, whatever a clock that stepped back
// makes of its expiry. The backend replaces exactly that revision, or refuses.
func (m *Memory) Stuck(g *Sighting) driver.Revision {
	m.mu.Lock() // once: another may see a later revision at any time
	defer m.mu.Unlock()
	if m.now() < m.over(g) {
		return driver.Revision{}
	}
	return g.revision
}

// unchanged returns for how long the revision has been the same, at least.
func (m *Memory) Unchanged(g *Sighting) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if g == nil || g.revision.IsZero() {
		return 0
	}
	return m.now() - g.since
}

// stuckAt is when the holder seen must have expired by our clock.
func (m *Memory) StuckAt(g *Sighting) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.over(g)
}

func (m *Memory) over(g *Sighting) time.Duration {
	if g == nil || g.revision.IsZero() || g.ttl <= 0 {
		return driver.MaxTTL + m.now()
	}
	return g.since + g.ttl + g.ttl/timing.DriftPart // for drift
}
