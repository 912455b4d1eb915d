package integration

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

// An operator deletes the record of a held lock (on Azure its container, since a leased blob
// cannot be deleted) — the next renewal reports the loss, and the next token is higher.
func TestOperatorDeletesRecord(t *testing.T) {
	onEachBackend(t, func(t *testing.T, b backend) {
		name := uniqueName()
		holder, waiter := b.client(t, nil, holdfast.WithRenewEvery(b.ttl/10)), b.longTTLClient(t)
		h, granted := holder.lock(name), time.Now()
		next := make(chan *holdfast.Hold, 1)
		go func() { next <- waiter.lock(name) }()
		eventually(t, "the waiter waits", func() bool { return waiter.count(holdfast.EventHolderSeen, "") > 0 })
		// Azure's clock has a resolution of one second, and the next token comes from that clock
		// alone: no record of the first token is left.
		eventually(t, "the backend's clock advances", func() bool { return time.Since(granted) > 1100*time.Millisecond })
		b.deleteRecord(t, name)
		wantRefused(t, awaitEnd(t, h))
		successor := <-next
		if successor == nil {
			return
		}
		if successor.Token() <= h.Token() {
			t.Errorf("token %d was granted after token %d", successor.Token(), h.Token())
		}
		release(t, h)
		expectHeld(t, b, successor)
		release(t, successor)
	})
}

// An operator breaks a holder's lease — the holder's next renewal is refused and reports the
// loss, and another client gets the lock when the lease has ended, not before.
func TestOperatorBreaksLease(t *testing.T) {
	onEachBackend(t, func(t *testing.T, b backend) {
		name, exclusion := uniqueName(), exclusionChecker{tb: t}
		holder, waiter := b.client(t, nil, holdfast.WithRenewEvery(b.ttl/10)), b.longTTLClient(t)
		h := exclusion.check(holder.lock(name))
		next := make(chan *holdfast.Hold, 1)
		go func() { next <- exclusion.check(waiter.lock(name)) }()
		time.Sleep(b.ttl / 4) // for several renewals
		if err := waiter.Locker().Capabilities().Breaker.Break(testContext(t), name, holdfast.BreakAnybody()); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, awaitEnd(t, h))
		successor := <-next
		if successor == nil {
			return
		}
		if early := h.ExpiresIn(); early > 0 {
			t.Errorf("the lock was granted to another %v before the broken lease ended", early)
		}
		release(t, h)
		expectHeld(t, b, successor)
		release(t, successor)
	})
}
