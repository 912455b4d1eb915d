package engine

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A queue is there while somebody waits for the lock or holds it: names that come and go
// leave nothing behind.
func TestEmptyQueuesAreDropped(t *testing.T) {
	var s queues
	h := &Hold{}
	h.entry.Lease.Name = "job"
	first := s.join("job", 1, time.Second)
	second := s.join("job", 1, time.Second)
	s.note("job", driver.ErrHeld)
	s.took(h, 0)
	s.leave(first)
	if len(s.byName) != 1 || second.hasTurn {
		t.Errorf("%d queues; the second has its turn: %v", len(s.byName), second.hasTurn)
	}
	s.freed(h, time.Second)
	if len(s.byName) != 1 || !second.hasTurn {
		t.Errorf("%d queues; the second has its turn: %v", len(s.byName), second.hasTurn)
	}
	s.leave(second)
	s.took(h, 0) // by a caller that does not wait
	s.freed(h, time.Second)
	s.freed(h, time.Second) // lost, then released
	if len(s.byName) != 0 {
		t.Errorf("%d queues are left", len(s.byName))
	}
}
