package sightings

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func testSightings() (*Memory, *time.Duration) {
	now := new(time.Duration)
	return New(func() time.Duration { return *now }), now
}

func record(revision string, ttl time.Duration) driver.Record {
	return driver.Record{State: driver.StateHeld, TTL: ttl, Revision: driver.NewRevision(revision)}
}

// A holder is stuck once one revision was seen for its whole TTL and the drift allowance, by
// whoever, and however seldom.
func TestSightingsTellWhoIsStuck(t *testing.T) {
	m, now := testSightings()
	const ttl = 100 * time.Second
	if m.Find("n") != nil || !m.Stuck(m.Find("n")).IsZero() {
		t.Error("something is known of a name that nobody has seen")
	}
	m.See("n", record("a", ttl), nil)
	*now = 99 * time.Second
	m.See("n", record("b", ttl), nil) // renewed
	*now = 199*time.Second + 99*time.Millisecond
	if g := m.See("n", record("b", ttl), nil); !m.Stuck(g).IsZero() {
		t.Error("stuck too early")
	}
	*now += time.Millisecond
	if g := m.Find("n"); m.Stuck(g) != driver.NewRevision("b") || m.StuckAt(g) != *now {
		t.Errorf("stuck is %v, at %v", m.Stuck(g), m.StuckAt(g))
	}
	// Another caller's late reply of an earlier renewal counts from now on.
	if g := m.See("n", record("a", ttl), nil); !m.Stuck(g).IsZero() {
		t.Error("stuck although the revision has changed")
	}
	*now += ttl
	if g := m.See("n", record("b", ttl), nil); !m.Stuck(g).IsZero() {
		t.Error("stuck although the revision has changed back")
	}
	*now += 2 * ttl
	if g := m.See("n", driver.Record{State: driver.StateHeld, TTL: ttl}, nil); !m.Stuck(g).IsZero() {
		t.Error("stuck although the backend tells no revision")
	}
	if m.See("none", driver.Record{State: driver.StateHeld, TTL: ttl}, nil) != nil || m.Find("none") != nil {
		t.Error("a holder without a revision is remembered")
	}
}

// What nobody sees any more is forgotten, and there is a bound for what is new in a period.
// Who waits loses nothing.
func TestSightingsForget(t *testing.T) {
	m, now := testSightings()
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
		t.Error("a name that is seen now and then is forgotten, or one that is not is not")
	}
	for range 2 {
		*now += period + 5*ttl
		m.See("other", record("r", ttl), nil)
	}
	if n := size(); n > 2 || m.Find("seldom") != nil {
		t.Errorf("%d names are remembered after hours", n)
	}
	// A long TTL is remembered for longer than it lasts.
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

// A waiter that reads its name again and again keeps its sighting among very many names.
func TestSightingOfAWaiterIsKept(t *testing.T) {
	m, now := testSightings()
	const ttl = 30 * time.Second
	g := m.See("waiting", record("r", ttl), nil)
	for range 5 { // polls, with a LeaseManager of very many names in between
		for i := range 3 * maxNames {
			m.See(strconv.Itoa(i), record("x", ttl), nil)
		}
		*now += 10 * time.Second
		g = m.See("waiting", record("r", ttl), g)
	}
	if m.Stuck(g).IsZero() {
		t.Errorf("the holder has not renewed for %v, and does not count as stuck", *now)
	}
}
