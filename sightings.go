package holdfast

import (
	"cmp"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// sightings is what a Client remembers of the holders that it was refused for, or has read:
// since when each has not been renewed. Waiters, tries, runners, LeaseManagers and Partitions
// share it, so that even a caller that asks only now and then detects a stuck holder.
//
// It forgets a name that nobody has seen for an hour and four of the longest TTLs, and
// the names seen longest ago when there are very many. A waiter keeps its own sighting.
type sightings struct {
	now func() time.Duration

	mu              sync.Mutex
	recent, earlier map[string]*sighting // by name: seen in this period, and in the one before
	turned          time.Duration        // when the period began
	longestTTL      time.Duration
}

// The longest period, but for long TTLs, and the most names that are new in it.
const (
	sightingsPeriod = time.Hour
	sightingsKept   = 1 << 16
)

// sighting is the latest revision that was seen of one name. It is guarded by the mu of its
// sightings.
type sighting struct {
	revision driver.Revision
	ttl      time.Duration
	since    time.Duration // when it was seen first, after the reply: it was made before
}

// see takes in the record of a holder that was read just now. kept is the sighting of the
// name that the caller has kept, or nil: it counts if the name is forgotten here. The result
// is nil if the backend has no revisions.
func (m *sightings) see(name string, r Record, kept *sighting) *sighting {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := cmp.Or(m.of(name), kept)
	if g == nil {
		if r.Revision.IsZero() {
			return nil
		}
		g = &sighting{}
	}
	now := m.now()
	if r.Revision.IsZero() || r.Revision != g.revision {
		g.since = now
	}
	g.revision, g.ttl = r.Revision, min(r.TTL, driver.MaxTTL)
	m.longestTTL = max(m.longestTTL, g.ttl)
	if m.recent == nil || len(m.recent) >= sightingsKept || now-m.turned > sightingsPeriod+4*m.longestTTL {
		m.earlier, m.recent, m.turned = m.recent, map[string]*sighting{}, now
	}
	m.recent[name] = g
	return g
}

// find returns what is remembered of a name, or nil.
func (m *sightings) find(name string) *sighting {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of(name)
}

func (m *sightings) of(name string) *sighting {
	if g := m.recent[name]; g != nil {
		return g
	}
	return m.earlier[name]
}

// stuck returns the holder's revision if it has not been renewed for one whole TTL
// of our own elapsed time: it is over then, whatever a clock that stepped back
// makes of its expiry. The backend replaces exactly that revision, or refuses.
func (m *sightings) stuck(g *sighting) driver.Revision {
	m.mu.Lock() // once: another may see a later revision at any time
	defer m.mu.Unlock()
	if m.now() < m.over(g) {
		return driver.Revision{}
	}
	return g.revision
}

// unchanged returns for how long the revision has been the same, at least.
func (m *sightings) unchanged(g *sighting) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if g == nil || g.revision.IsZero() {
		return 0
	}
	return m.now() - g.since
}

// stuckAt is when the holder seen must have expired by our clock.
func (m *sightings) stuckAt(g *sighting) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.over(g)
}

func (m *sightings) over(g *sighting) time.Duration {
	if g == nil || g.revision.IsZero() || g.ttl <= 0 {
		return driver.MaxTTL + m.now()
	}
	return g.since + g.ttl + g.ttl/driftPart // for drift
}
