package sightings

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func newMemory() (*Memory, *time.Duration) {
	now := new(time.Duration)
	return New(func() time.Duration { return *now }), now
}

func record(revision string, ttl time.Duration) driver.Record {
	return driver.Record{State: driver.StateHeld, TTL: ttl, Revision: driver.NewRevision(revision)}
}

// A holder is stuck once one revision was seen for its whole TTL and the drift allowance,
// whichever callers saw it, and however seldom.
func TestHolderIsStuckAfterItsTTL(t *testing.T) {
	m, now := newMemory()
	const ttl = 100 * time.Second
	if m.Find("n") != nil || !m.Stuck(m.Find("n")).IsZero() {
		t.Error("a name that nobody has seen has a sighting")
	}
	m.See("n", record("a", ttl), nil)
	*now = 99 * time.Second
	m.See("n", record("b", ttl), nil) // renewed
	*now = 199*time.Second + 99*time.Millisecond
	if s := m.See("n", record("b", ttl), nil); !m.Stuck(s).IsZero() {
		t.Error("stuck too early")
	}
	*now += time.Millisecond
	if s := m.Find("n"); m.Stuck(s) != driver.NewRevision("b") || m.StuckAt(s) != *now {
		t.Errorf("stuck is %v, at %v", m.Stuck(s), m.StuckAt(s))
	}
	// Another caller's late reply, of an earlier renewal, begins the count anew.
	if s := m.See("n", record("a", ttl), nil); !m.Stuck(s).IsZero() {
		t.Error("stuck although the revision has changed")
	}
	*now += ttl
	if s := m.See("n", record("b", ttl), nil); !m.Stuck(s).IsZero() {
		t.Error("stuck although the revision has changed back")
	}
	*now += 2 * ttl
	if s := m.See("n", driver.Record{State: driver.StateHeld, TTL: ttl}, nil); !m.Stuck(s).IsZero() {
		t.Error("stuck although the backend returns no revision")
	}
	if m.See("none", driver.Record{State: driver.StateHeld, TTL: ttl}, nil) != nil || m.Find("none") != nil {
		t.Error("a holder without a revision is remembered")
	}
}

// A name that nobody sees any more is forgotten, and the new names of a period are bounded. A
// waiter that keeps its own sighting loses nothing.
func TestMemoryForgets(t *testing.T) {
	m, now := newMemory()
	const ttl = time.Second
	size := func() int { return len(m.recent) + len(m.earlier) }
	waiting := m.See("waiting", record("r", ttl), nil)
	m.See("seldom", record("r", ttl), nil)
	most := 0
	for i := range 5 * maxNames {
		m.See(fmt.Sprint(i), record("r", ttl), nil)
		most = max(most, size())
	}
	if most > 2*maxNames {
		t.Errorf("%d names are remembered at once", most)
	}
	*now = 2 * ttl
	if m.Find("waiting") != nil || m.Stuck(waiting) != driver.NewRevision("r") {
		t.Error("a waiter's own sighting is lost, or nothing was forgotten")
	}
	for range 4 {
		*now += 30 * time.Minute // within the period
		m.See("seldom", record("r", ttl), nil)
		m.See("other", record("r", ttl), nil)
	}
	if m.Find("seldom") == nil || m.Find("0") != nil {
		t.Error("a name that is seen now and then is forgotten, or one that nobody sees is remembered")
	}
	for range 2 {
		*now += period + 5*ttl
		m.See("other", record("r", ttl), nil)
	}
	if n := size(); n > 2 || m.Find("seldom") != nil {
		t.Errorf("%d names are remembered after hours", n)
	}
	// A holder with a long TTL is remembered until it can be stuck.
	m.See("long", record("r", 24*time.Hour), nil)
	since := *now
	for *now < since+25*time.Hour {
		*now += time.Hour
		m.See("other", record("r", ttl), nil)
	}
	if m.Stuck(m.Find("long")).IsZero() {
		t.Error("a lease of a day is forgotten within it")
	}
}

// A waiter that reads its name repeatedly keeps its sighting although very many names are read.
func TestWaiterKeepsItsSighting(t *testing.T) {
	m, now := newMemory()
	const ttl = 30 * time.Second
	s := m.See("waiting", record("r", ttl), nil)
	for range 5 { // polls, with a LeaseManager of very many names in between
		for i := range 3 * maxNames {
			m.See(strconv.Itoa(i), record("x", ttl), nil)
		}
		*now += 10 * time.Second
		s = m.See("waiting", record("r", ttl), s)
	}
	if m.Stuck(s).IsZero() {
		t.Errorf("the holder has not renewed for %v, and does not count as stuck", *now)
	}
}
