package sightings

import (
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
