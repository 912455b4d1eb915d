package memory

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A Locker leaves the queue of a name with its last waiter, whoever else waits for it.
func TestLastWaiterLeavesTheQueue(t *testing.T) {
	store := NewStore()
	ask := func(l *Locker, id string) error {
		_, err := l.TryAcquire(t.Context(), driver.Request{Name: "job", ID: driver.NewLeaseID(id), TTL: time.Minute, QueueFor: time.Minute})
		return err
	}
	holder, first, second := store.Locker(), store.Locker(), store.Locker()
	if err := ask(holder, "holder"); err != nil {
		t.Fatal(err)
	}
	wait := func(l *Locker) (stop func()) {
		if err := ask(l, "waiter of "+l.id); !errors.Is(err, driver.ErrHeld) {
			t.Fatal(err)
		}
		return l.Capabilities().Queue.Wait("job", func(time.Duration) {})
	}
	stops := []func(){wait(first), wait(first), wait(second)}
	for i, want := range []int{2, 1, 0} {
		stops[i]()
		if r, err := holder.Inspect(t.Context(), "job"); err != nil || r.Waiters != want {
			t.Errorf("after %d waiters have stopped %d Lockers wait, want %d; %v", i+1, r.Waiters, want, err)
		}
	}
}
