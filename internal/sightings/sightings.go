// Package sightings says which holders are stuck: those that are dead although, after the server's clock stepped back, their
// expiry still lies far ahead. A holder is stuck that a Client has seen without a renewal for its whole TTL.
package sightings

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/sightings"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// Memory has the latest sighting of the holder of each name. Waiters, tries, runners, LeaseManagers and
// Partitions of a Client share one, so that callers which each see a holder only now and then
// can, together, detect that it is stuck. A waiter keeps its own sighting, which the Memory may forget.
type Memory struct {
	// Promise 8: elapsed time, never a wall clock, measures how long a holder has not renewed.
	now  func() time.Duration
	seen sightings.Memory[mark]
}

// mark is what was seen of a holder.
type mark struct {
	revision driver.Revision
	ttl      time.Duration
}

// Sighting is the latest one of a name.
type Sighting = sightings.Sighting[mark]

// New returns an empty Memory. now is the elapsed-time clock.
func New(now func() time.Duration) *Memory { return &Memory{now: now} }

// See notes the record of a holder that was read just now, and returns its sighting. own is the
// caller's earlier sighting of the name, or nil: it counts if the Memory has forgotten the name.
// The result is nil if the backend has no revisions.
func (m *Memory) See(name string, r driver.Record, own *Sighting) *Sighting {
	if r.Revision.IsZero() && own == nil && m.Find(name) == nil {
		return nil
	}
	ttl := min(r.TTL, driver.MaxTTL)
	s, _ := m.seen.See(name, mark{r.Revision, ttl}, m.now(), 4*ttl, own)
	return s
}

// Find returns the sighting of a name, or nil.
func (m *Memory) Find(name string) *Sighting { return m.seen.Find(name) }

// Stuck returns the revision of a holder that is stuck, and zero if the holder is not. s may be
// nil. The backend replaces exactly that revision, or refuses.
func (m *Memory) Stuck(s *Sighting) driver.Revision {
	now := m.now()
	seen, since := m.seen.Last(s)
	if now < seen.stuckAt(since, now) {
		return driver.Revision{}
	}
	return seen.revision
}

// Unchanged returns for how long the revision has been the same, at least. s may be nil.
func (m *Memory) Unchanged(s *Sighting) time.Duration {
	now := m.now()
	seen, since := m.seen.Last(s)
	if seen.revision.IsZero() {
		return 0
	}
	return max(now-since, 0)
}

// StuckAt is when the holder will be stuck unless it renews. s may be nil: then that is never.
func (m *Memory) StuckAt(s *Sighting) time.Duration {
	seen, since := m.seen.Last(s)
	return seen.stuckAt(since, m.now())
}

func (seen mark) stuckAt(since, now time.Duration) time.Duration {
	if seen.revision.IsZero() || seen.ttl <= 0 {
		return driver.MaxTTL + now
	}
	// Promise 10: a holder that has not renewed for its whole TTL, and an allowance for clock
	// drift, is over whatever its expiry says.
	return since + seen.ttl + seen.ttl/timing.DriftPart
}
