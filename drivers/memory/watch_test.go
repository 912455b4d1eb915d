package memory

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// The end of waking leaves positions alone, and Leave ends those of one waiter.
func TestLeave(t *testing.T) {
	store := NewStore()
	ask := func(l *Locker, waiter driver.WaiterID) {
		req := driver.Request{Name: "job", ID: driver.NewLeaseID(string(waiter)), TTL: time.Minute, Waiter: waiter, QueueFor: time.Minute}
		if _, err := l.TryAcquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
			t.Fatal(err)
		}
		l.Wake("job", waiter, func(driver.Wakeup) {})()
	}
	holder, first, second := store.Locker(), store.Locker(), store.Locker()
	if _, err := holder.TryAcquire(t.Context(), driver.Request{Name: "job", ID: driver.NewLeaseID("holder"), TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	ask(first, "a")
	ask(first, "b")
	ask(second, "c")
	for i, waiter := range []driver.WaiterID{"a", "c", "b", "b"} {
		if err := first.Leave(t.Context(), waiter, []string{"other", "job", "job"}); err != nil {
			t.Fatal(err)
		}
		if r, err := holder.Inspect(t.Context(), "job"); err != nil || r.Waiters != max(2-i, 0) {
			t.Errorf("%d waiters after %d have left; %v", r.Waiters, i+1, err)
		}
	}
}
