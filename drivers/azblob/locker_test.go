package azblob

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Close cuts off what is under way, and says so; nothing works after it.
func TestClose(t *testing.T) {
	t.Parallel()
	room := newRoom(t)
	l, w := room.wired()
	lease := acquire(t, l, request("n"))
	w.all(reqRenew, hang)
	w.take()
	done := make(chan error, 1)
	go func() { done <- l.Renew(bounded(t), lease) }()
	for deadline := time.Now().Add(10 * time.Second); w.count(reqRenew) == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	closeLocker(t, l)
	select {
	case err := <-done:
		if err == nil || outcomeKnown(err) || errors.Is(err, driver.ErrClosed) {
			t.Errorf("a renewal under way: %v, want an error that says nothing of the outcome", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("Close leaves a hanging request under way")
	}
	if err := l.Renew(bounded(t), lease); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A holder whose lease is breaking may not take it again; the lock is held, and
// the error says that it is broken.
func TestAcquireWhileBreaking(t *testing.T) {
	t.Parallel()
	room := newRoom(t)
	l := room.locker()
	req := request("n")
	lease := acquire(t, l, req)
	if err := l.Break(bounded(t), "n"); err != nil {
		t.Fatal(err)
	}
	var held *driver.HeldError
	if _, err := l.TryAcquire(bounded(t), req); !errors.As(err, &held) || !held.Record.Broken {
		t.Errorf("the holder's repeat: %v, want a HeldError that says broken", err)
	}
	wantHeld(t, l, "n")
	if r := inspect(t, l, "n"); r.State != driver.StateHeld || !r.Broken || r.Owner != lease.Owner || r.TTL != lease.TTL {
		t.Errorf("%+v", r)
	}
}
