package engine

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/settings"
)

// A queue exists while this process waits for the lock or holds it. A name that is used no more
// leaves nothing in memory.
func TestEmptyQueuesAreDropped(t *testing.T) {
	var qs queues
	h := &Hold{}
	h.entry.Lease.Name = "job"
	first := qs.join("job", settings.Settings{Slots: 1})
	second := qs.join("job", settings.Settings{Slots: 1})
	qs.note("job", driver.ErrHeld)
	qs.took(h, 0)
	qs.leave(first)
	if len(qs.byName) != 1 || second.isAdmitted {
		t.Errorf("%d queues; the second has its turn: %v", len(qs.byName), second.isAdmitted)
	}
	qs.freed(h, time.Second)
	if len(qs.byName) != 1 || !second.isAdmitted {
		t.Errorf("%d queues; the second has its turn: %v", len(qs.byName), second.isAdmitted)
	}
	qs.leave(second)
	qs.took(h, 0) // by a caller that does not wait
	qs.freed(h, time.Second)
	qs.freed(h, time.Second) // lost, then released
	if len(qs.byName) != 0 {
		t.Errorf("%d queues are left", len(qs.byName))
	}
}

// After the cleanup of a request that may have been granted, the first waiter of this process sends a request: the grant has ended the
// position that they share. Waiters for slots have no position.
func TestAsksAgain(t *testing.T) {
	qs := &queues{byName: map[string]*queue{}}
	first, second := qs.join("job", settings.Settings{Slots: 1}), qs.join("job", settings.Settings{Slots: 1})
	slots := qs.join("pool", settings.Settings{Slots: 2})
	asked := func(w *localWaiter) bool { return len(qs.takeFreed(w)) == 1 && len(w.slotFreed) == 1 }
	for _, name := range []string{"job", "pool", "nobody's"} {
		qs.asksAgain(name)
	}
	if !asked(first) || asked(second) || asked(slots) {
		t.Error("not the first waiter, or another")
	}
}
