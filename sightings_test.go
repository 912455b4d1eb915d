package holdfast

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func newSightings() (*sightings, *time.Duration) {
	now := new(time.Duration)
	return &sightings{now: func() time.Duration { return *now }}, now
}

func record(revision string, ttl time.Duration) Record {
	return Record{State: StateHeld, TTL: ttl, Revision: driver.NewRevision(revision)}
}

// A holder is stuck once one revision was seen for its whole TTL and the drift allowance, by
// whoever, and however seldom.
func TestSightingsTellWhoIsStuck(t *testing.T) {
	m, now := newSightings()
	const ttl = 100 * time.Second
	if m.find("n") != nil || !m.stuck(m.find("n")).IsZero() {
		t.Error("something is known of a name that nobody has seen")
	}
	m.see("n", record("a", ttl), nil)
	*now = 99 * time.Second
	m.see("n", record("b", ttl), nil) // renewed
	*now = 199*time.Second + 99*time.Millisecond
	if g := m.see("n", record("b", ttl), nil); !m.stuck(g).IsZero() {
		t.Error("stuck too early")
	}
	*now += time.Millisecond
	if g := m.find("n"); m.stuck(g) != driver.NewRevision("b") || m.stuckAt(g) != *now {
		t.Errorf("stuck is %v, at %v", m.stuck(g), m.stuckAt(g))
	}
	// Another caller's late reply of an earlier renewal counts from now on.
	if g := m.see("n", record("a", ttl), nil); !m.stuck(g).IsZero() {
		t.Error("stuck although the revision has changed")
	}
	*now += ttl
	if g := m.see("n", record("b", ttl), nil); !m.stuck(g).IsZero() {
		t.Error("stuck although the revision has changed back")
	}
	*now += 2 * ttl
	if g := m.see("n", Record{State: StateHeld, TTL: ttl}, nil); !m.stuck(g).IsZero() {
		t.Error("stuck although the backend tells no revision")
	}
	if m.see("none", Record{State: StateHeld, TTL: ttl}, nil) != nil || m.find("none") != nil {
		t.Error("a holder without a revision is remembered")
	}
}

// What nobody sees any more is forgotten, and there is a bound for what is new in a period.
// Who waits loses nothing.
func TestSightingsForget(t *testing.T) {
	m, now := newSightings()
	const ttl = time.Second
	size := func() int { return len(m.recent) + len(m.earlier) }
	waiting := m.see("waiting", record("r", ttl), nil)
	m.see("seldom", record("r", ttl), nil)
	most := 0
	for i := range 5 * sightingsKept {
		m.see(fmt.Sprint(i), record("r", ttl), nil)
		most = max(most, size())
	}
	if most > 2*sightingsKept {
		t.Errorf("%d names are remembered at once", most)
	}
	*now = 2 * ttl
	if m.find("waiting") != nil || m.stuck(waiting) != driver.NewRevision("r") {
		t.Error("a waiter's own sighting is lost, or nothing was forgotten")
	}
	for range 4 {
		*now += 30 * time.Minute // within the period
		m.see("seldom", record("r", ttl), nil)
		m.see("other", record("r", ttl), nil)
	}
	if m.find("seldom") == nil || m.find("0") != nil {
		t.Error("a name that is seen now and then is forgotten, or one that is not is not")
	}
	for range 2 {
		*now += sightingsPeriod + 5*ttl
		m.see("other", record("r", ttl), nil)
	}
	if n := size(); n > 2 || m.find("seldom") != nil {
		t.Errorf("%d names are remembered after hours", n)
	}
	// A long TTL is remembered for longer than it lasts.
	m.see("long", record("r", 24*time.Hour), nil)
	since := *now
	for *now < since+25*time.Hour {
		*now += time.Hour
		m.see("other", record("r", ttl), nil)
	}
	if m.stuck(m.find("long")).IsZero() {
		t.Error("a lease of a day is forgotten within it")
	}
}

// A waiter that reads its name again and again keeps its sighting among very many names.
func TestSightingOfAWaiterIsKept(t *testing.T) {
	m, now := newSightings()
	const ttl = 30 * time.Second
	g := m.see("waiting", record("r", ttl), nil)
	for range 5 { // polls, with a LeaseManager of very many names in between
		for i := range 3 * sightingsKept {
			m.see(strconv.Itoa(i), record("x", ttl), nil)
		}
		*now += 10 * time.Second
		g = m.see("waiting", record("r", ttl), g)
	}
	if m.stuck(g).IsZero() {
		t.Errorf("the holder has not renewed for %v, and does not count as stuck", *now)
	}
}
