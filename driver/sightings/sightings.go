// Package sightings remembers what was seen last of each name, and since when it has been the same. So a caller that reads a
// record now and then detects a holder that no longer renews, whatever a clock says.
package sightings

import (
	"cmp"
	"sync"
	"time"
)

// Memory has the latest sighting of each name. A mark stands for what was seen: it changes with each renewal. Callers share one
// Memory, so that those which each see a name only now and then can detect it together. The zero value is empty; all methods
// are safe for concurrent use.
//
// It forgets a name that nobody has seen for an hour and the longest time that See was given. When there are very many names, it
// forgets those that were seen longest ago. A caller that keeps its sighting loses nothing.
type Memory[M comparable] struct {
	mu              sync.Mutex
	recent, earlier map[string]*Sighting[M] // by name: seen in this period, and in the one before
	began           time.Duration           // when the period began
	longest         time.Duration           // for which a name must be remembered
}

// Sighting is what was seen last of one name. Its Memory guards it.
type Sighting[M comparable] struct {
	mark  M
	since time.Duration // when the mark was first seen: after the reply, so the renewal was earlier
}

// A period lasts for this long and the longest time for which a name must be remembered, or until it has so many names.
const (
	period   = time.Hour
	maxNames = 1 << 16
)

// Always is a time for which a name is remembered as long as there are not too many.
const Always = time.Duration(1 << 62)

// See notes the mark of a name that was read just now, and returns its sighting and since when it is the same. own is the
// caller's earlier sighting of the name, or nil: it counts if the Memory has forgotten the name. The name is remembered for as
// long as keep says.
func (m *Memory[M]) See(name string, mark M, now, keep time.Duration, own *Sighting[M]) (s *Sighting[M], since time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s = cmp.Or(m.lookUp(name), own); s == nil {
		s = &Sighting[M]{mark, now}
	}
	if mark != s.mark {
		s.mark, s.since = mark, now
	}
	m.longest = max(m.longest, keep)
	m.keep(name, s, now)
	return s, s.since
}

// Still is See for a mark that was not read just now. It is ok only if that is what was seen last of the name; otherwise nothing
// is noted.
func (m *Memory[M]) Still(name string, mark M, now time.Duration) (since time.Duration, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.lookUp(name)
	if s == nil || s.mark != mark {
		return 0, false
	}
	m.keep(name, s, now)
	return s.since, true
}

func (m *Memory[M]) keep(name string, s *Sighting[M], now time.Duration) {
	if m.recent == nil || len(m.recent) >= maxNames || now-m.began > period+m.longest {
		m.earlier, m.recent, m.began = m.recent, map[string]*Sighting[M]{}, now
	}
	m.recent[name] = s
}

// Find returns the sighting of a name, or nil.
func (m *Memory[M]) Find(name string) *Sighting[M] {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lookUp(name)
}

func (m *Memory[M]) lookUp(name string) *Sighting[M] {
	if s := m.recent[name]; s != nil {
		return s
	}
	return m.earlier[name]
}

// Last returns what was seen last, and since when. s may be nil: then the mark is zero.
func (m *Memory[M]) Last(s *Sighting[M]) (mark M, since time.Duration) {
	m.mu.Lock() // once for both: another caller may see a later mark in between
	defer m.mu.Unlock()
	if s == nil {
		return mark, 0
	}
	return s.mark, s.since
}
