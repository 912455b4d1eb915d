package azblob

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// Close interrupts running requests and reports it. Every later call fails.
func TestClose(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l, w := store.lockerWithFaults()
	lease := acquire(t, l, request("n"))
	w.all(reqRenew, hang)
	w.take()
	done := make(chan error, 1)
	go func() { done <- errOf(l.Renew(bounded(t), lease)) }()
	for deadline := time.Now().Add(10 * time.Second); w.count(reqRenew) == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	closeLocker(t, l)
	select {
	case err := <-done:
		if err == nil || driver.OutcomeKnown(err) || errors.Is(err, driver.ErrClosed) {
			t.Errorf("a running renewal: %v, want an error that leaves the outcome open", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("Close does not interrupt a hanging request")
	}
	if _, err := l.Renew(bounded(t), lease); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A holder whose lease is breaking cannot take it again. The lock is held, and the error says
// that it is broken.
func TestAcquireWhileBreaking(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l := store.locker()
	req := request("n")
	lease := acquire(t, l, req)
	if err := l.Break(bounded(t), "n", driver.BreakAnybody()); err != nil {
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

// The making of a container is logged once, with its name: another container is another set of locks.
func TestContainerThatIsMadeIsLogged(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	store.name = store.service.Fresh(t)
	logger, log := locktest.NewLog()
	for _, name := range []string{"first", "second"} {
		acquire(t, store.locker(WithLogger(logger)), request(name))
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "it was made") ||
		!strings.Contains(text, "container="+store.name) {
		t.Errorf("logged %q", text)
	}
}

func TestInvalidOptions(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	for _, opt := range []Option{
		WithPrefix("/"), WithPrefix("a/"), WithPrefix("/a"), WithPrefix("a//b"), WithPrefix("a/./b"), WithPrefix(".."), WithPrefix("a."),
		WithPrefix("ä"),
		WithPrefix(strings.Repeat("x", maxPrefix)), WithRequestTimeout(0), WithRequestTimeout(time.Millisecond), WithLogger(nil), nil,
	} {
		if _, err := New(store.client, opt); !errors.Is(err, driver.ErrInvalid) ||
			!strings.HasPrefix(err.Error(), "holdfast: connect to azblob: ") {
			t.Errorf("%v, want ErrInvalid", err)
		}
	}
	if _, err := New(nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("no client: %v", err)
	}
	l := store.locker(WithPrefix(strings.Repeat("x", maxPrefix-1)))
	acquire(t, l, request(strings.Repeat("/", limits.MaxName)))
	if _, err := l.TryAcquire(bounded(t), driver.Request{Name: "n", ID: driver.NewLeaseID(newID()), TTL: 2 * time.Second}); err == nil ||
		!strings.Contains(err.Error(), "TTL 2s is invalid: must be from 15s to 1m in steps of 1s on this backend") {
		t.Errorf("a TTL of 2 s: %v", err)
	}
}
