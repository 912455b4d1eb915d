package integration

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

// An operator deletes the record of a held lock (with Azure, which protects a leased blob,
// its container) — the holder is told by its next renewal, and the next token is higher.
func TestOperatorDeletesRecord(t *testing.T) {
	onEach(t, func(t *testing.T, b target) {
		name := fresh()
		holder, waiter := b.actor(t, nil, holdfast.WithRenewEvery(b.ttl/10)), b.calm(t)
		h, granted := holder.lock(name), time.Now()
		next := make(chan *holdfast.Hold, 1)
		go func() { next <- waiter.lock(name) }()
		eventually(t, "the waiter waits", func() bool { return waiter.count(holdfast.EventHolderSeen, "") > 0 })
		// Azure tells its clock in seconds, and nothing else is left of the first token.
		eventually(t, "the backend's clock goes on", func() bool { return time.Since(granted) > 1100*time.Millisecond })
		b.erase(t, name)
		if cause := ended(t, h); !errors.Is(cause, holdfast.ErrLost) {
			t.Errorf("the hold ended with %v, want lost", cause)
		}
		if h.LostIn() <= 0 {
			t.Error("the hold ended by its deadline, not by the answer")
		}
		successor := <-next
		if successor == nil {
			return
		}
		if successor.Token() <= h.Token() {
			t.Errorf("token %d after %d", successor.Token(), h.Token())
		}
		release(t, h)
		keeps(t, b, successor)
		release(t, successor)
	})
}

// An operator breaks the lease of a holder — its next renewal is refused and tells it, and
// another gets the lock when the lease has run out, not before.
func TestOperatorBreaksLease(t *testing.T) {
	onEach(t, func(t *testing.T, b target) {
		name, sequence := fresh(), order{tb: t}
		holder, waiter := b.actor(t, nil, holdfast.WithRenewEvery(b.ttl/10)), b.calm(t)
		h := sequence.enter(holder.lock(name))
		next := make(chan *holdfast.Hold, 1)
		go func() { next <- sequence.enter(waiter.lock(name)) }()
		time.Sleep(b.ttl / 4) // some renewals
		if err := waiter.Locker().Capabilities().Breaker.Break(bounded(t), name); err != nil {
			t.Fatal(err)
		}
		if cause := ended(t, h); !errors.Is(cause, holdfast.ErrLost) {
			t.Errorf("the hold ended with %v, want lost", cause)
		}
		if h.LostIn() <= 0 {
			t.Error("the hold ended by its deadline, not by the answer")
		}
		successor := <-next
		if successor == nil {
			return
		}
		if early := h.ExpiresIn(); early > 0 {
			t.Errorf("another was granted the lock %v before the broken lease ran out", early)
		}
		release(t, h)
		keeps(t, b, successor)
		release(t, successor)
	})
}
