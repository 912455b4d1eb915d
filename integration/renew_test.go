package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

// Renewals arrive, but their replies come after the local deadline — the hold ends at the
// deadline, and a late reply does not revive it.
func TestLateRenewReply(t *testing.T) {
	onEachBackend(t, func(t *testing.T, b backend) {
		network, name, exclusion := b.network(t), uniqueName(), exclusionChecker{tb: t}
		first, second := b.client(t, network), b.longTTLClient(t)
		h := exclusion.check(first.lock(name))
		network.lateReplies(2 * b.ttl)
		next := make(chan *holdfast.Hold, 1)
		go func() { next <- exclusion.check(second.lock(name)) }()
		wantLossInTime(t, h)
		successor := <-next
		network.restore() // delayed replies arrive now
		time.Sleep(time.Second)
		if h.Err() == nil || successor.Err() != nil {
			t.Errorf("after the late replies: the old hold has %v, the new one %v", h.Err(), successor.Err())
		}
		if n := first.count(holdfast.EventLost, ""); n != 1 {
			t.Errorf("the loss was reported %d times, want once", n)
		}
		release(t, h)
		release(t, successor)
	})
}

// Connections are refused, reset or left without a reply, each for a part of the TTL, again and
// again — the errors are reported, and the lock is never lost.
func TestTransientRenewErrors(t *testing.T) {
	onEachBackend(t, func(t *testing.T, b backend) {
		network, name := b.network(t), uniqueName()
		// There is plenty of time between a renewal and the deadline, since the machine may be
		// slow, too.
		holder, witness := b.client(t, network, holdfast.WithTTL(3*b.ttl), holdfast.WithGrace(b.ttl/2), holdfast.WithRenewEvery(b.ttl/6),
			holdfast.WithRequestTimeout(b.ttl/4)), b.client(t, nil)
		h := holder.lock(name)
		for _, fault := range []func(){network.cut, network.reset, network.loseReplies, network.hang, network.cut} {
			failed := holder.count(holdfast.EventError, "renew")
			fault()
			eventually(t, "a renewal fails", func() bool { return holder.count(holdfast.EventError, "renew") > failed })
			network.restore()
			renewed := h.LostIn()
			eventually(t, "a renewal succeeds", func() bool { left := h.LostIn(); was := left > renewed; renewed = left; return was })
			if h.Err() != nil {
				t.Fatalf("lost: %v", h.Err())
			}
		}
		if _, err := witness.TryLock(testContext(t), name); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("TryLock by another client: %v, want held", err)
		}
		release(t, h)
	})
}

// A held lock is freed by force (BreakNow) and granted to another client, while the network works
// — the next renewal of the first holder reports the loss, long before the deadline and only
// once.
func TestDefiniteRejection(t *testing.T) {
	onEachBackend(t, func(t *testing.T, b backend) {
		const ttl = 40 * time.Second // with a renewal every 2 s
		name := uniqueName()
		holder, other := b.client(t, nil, holdfast.WithTTL(ttl), holdfast.WithRenewEvery(2*time.Second)), b.longTTLClient(t)
		h := holder.lock(name)
		if err := other.BreakNow(testContext(t), name, holdfast.BreakAnybody()); err != nil {
			t.Fatal(err)
		}
		successor := other.lock(name)
		wantRefused(t, awaitEnd(t, h))
		if successor.Token() <= h.Token() {
			t.Errorf("token %d was granted after token %d", successor.Token(), h.Token())
		}
		expectHeld(t, b, successor)
		if n := holder.count(holdfast.EventLost, ""); n != 1 {
			t.Errorf("the loss was reported %d times, want once", n)
		}
		release(t, h)
		if r := other.record(name); !held(r) || r.Token != successor.Token() {
			t.Errorf("the record is %v with token %d, want held with %d", r.State, r.Token, successor.Token())
		}
		release(t, successor)
	})
}

// wantLossInTime waits for the loss of a hold, which is to come before its lease has ended.
func wantLossInTime(t *testing.T, h *holdfast.Hold) {
	t.Helper()
	if cause := awaitEnd(t, h); !errors.Is(cause, holdfast.ErrLost) {
		t.Errorf("the hold ended with %v, want lost", cause)
	}
	if left := h.ExpiresIn(); left <= 0 {
		t.Errorf("the hold ended %v after its lease had ended", -left)
	}
}

// The backend accepts renewals and answers nothing, while connections stay open — the hold ends
// at its deadline, before another client is granted the lock, and no call hangs.
func TestHungRenew(t *testing.T) {
	onEachBackend(t, func(t *testing.T, b backend) {
		network, name, exclusion := b.network(t), uniqueName(), exclusionChecker{tb: t}
		first, second := b.client(t, network), b.longTTLClient(t)
		h := exclusion.check(first.lock(name))
		network.hang()
		next := make(chan *holdfast.Hold, 1)
		go func() { next <- exclusion.check(second.lock(name)) }()
		wantLossInTime(t, h)
		successor := <-next
		// The network is still down: releasing the lost lock gives up soon.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := h.Release(ctx); err == nil {
			t.Error("a release without an answer reports success")
		}
		if took := time.Since(start); took > b.ttl {
			t.Errorf("the release took %v", took)
		}
		network.restore()
		expectHeld(t, b, successor)
		release(t, successor)
	})
}

// Clients with three different TTLs, the longest twice the shortest, take turns on one name, and
// each dies once while it holds the lock — each is replaced when its own TTL has ended, not
// earlier, whatever the TTL of the waiter.
func TestMixedTTLs(t *testing.T) {
	onEachBackend(t, func(t *testing.T, b backend) {
		name, exclusion := uniqueName(), exclusionChecker{tb: t}
		ttls := []time.Duration{b.ttl, b.ttl * 4 / 3, 2 * b.ttl}
		for i, ttl := range ttls {
			network := b.network(t)
			dying := b.client(t, network, holdfast.WithTTL(ttl))
			successor := b.client(t, nil, holdfast.WithTTL(ttls[(i+1)%len(ttls)]))
			h := exclusion.check(dying.lock(name))
			network.hang() // the same as a dead process, but its hold can still be inspected
			next := exclusion.check(successor.lock(name))
			if early := h.ExpiresIn(); early > 0 {
				t.Errorf("a lease of %v was replaced %v before its end", ttl, early)
			}
			if late := -h.ExpiresIn(); late > ttl+10*time.Second {
				t.Errorf("a lease of %v was replaced %v after its end", ttl, late)
			}
			network.restore()
			release(t, next)
			_ = h.Release(testContext(t)) // the lock is lost already
		}
	})
}
