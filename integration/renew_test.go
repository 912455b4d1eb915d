package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

// Renewals arrive and their replies come too late, after the local deadline — the hold
// ends at the deadline all the same, and no late reply brings it back to life.
func TestLateRenewReply(t *testing.T) {
	onEach(t, func(t *testing.T, b target) {
		way, name, sequence := b.link(t), fresh(), order{tb: t}
		first, second := b.actor(t, way), b.calm(t)
		h := sequence.enter(first.lock(name))
		way.lateReplies(2 * b.ttl)
		next := make(chan *holdfast.Hold, 1)
		go func() { next <- sequence.enter(second.lock(name)) }()
		if cause := ended(t, h); !errors.Is(cause, holdfast.ErrLost) {
			t.Errorf("the hold ended with %v, want lost", cause)
		}
		if left := h.ExpiresIn(); left <= 0 {
			t.Errorf("the hold ended %v after its lease", -left)
		}
		successor := <-next
		way.heal() // what was on the way arrives now
		time.Sleep(time.Second)
		if h.Err() == nil || successor.Err() != nil {
			t.Errorf("after the late replies: the old hold %v, the new one %v", h.Err(), successor.Err())
		}
		if n := first.count(holdfast.EventLost, ""); n != 1 {
			t.Errorf("told %d times of the loss", n)
		}
		release(t, h)
		release(t, successor)
	})
}

// Connections are refused, reset and left without a reply, each for a part of the TTL,
// again and again — the errors are told, and the lock is never lost.
func TestTransientRenewErrors(t *testing.T) {
	onEach(t, func(t *testing.T, b target) {
		way, name := b.link(t), fresh()
		// Much room between a renewal and the deadline: the machine is slow, too.
		holder, witness := b.actor(t, way, holdfast.WithTTL(3*b.ttl), holdfast.WithGrace(b.ttl/2), holdfast.WithRenewEvery(b.ttl/6),
			holdfast.WithRequestTimeout(b.ttl/4)), b.actor(t, nil)
		h := holder.lock(name)
		for _, fault := range []func(){way.cut, way.reset, way.loseReplies, way.hang, way.cut} {
			told := holder.count(holdfast.EventError, "renew")
			fault()
			eventually(t, "a renewal fails", func() bool { return holder.count(holdfast.EventError, "renew") > told })
			way.heal()
			renewed := h.LostIn()
			eventually(t, "a renewal succeeds", func() bool { left := h.LostIn(); was := left > renewed; renewed = left; return was })
			if h.Err() != nil {
				t.Fatalf("lost: %v", h.Err())
			}
		}
		if _, err := witness.TryLock(bounded(t), name); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("another's try: %v, want held", err)
		}
		release(t, h)
	})
}

// The lock is taken from its holder on the backend and granted to another, while the way
// there is good — the next renewal tells the holder, long before its deadline, and once.
func TestDefiniteRejection(t *testing.T) {
	onEach(t, func(t *testing.T, b target) {
		const ttl = 40 * time.Second // its renewals are 2 s apart
		name := fresh()
		holder, other := b.actor(t, nil, holdfast.WithTTL(ttl), holdfast.WithRenewEvery(2*time.Second)), b.calm(t)
		h := holder.lock(name)
		if err := other.Locker().Capabilities().Breaker.BreakNow(bounded(t), name); err != nil {
			t.Fatal(err)
		}
		successor := other.lock(name)
		if cause := ended(t, h); !errors.Is(cause, holdfast.ErrLost) {
			t.Errorf("the hold ended with %v, want lost", cause)
		}
		if left := h.LostIn(); left <= ttl/4 {
			t.Errorf("told %v before the deadline: that is not by the rejection", left)
		}
		if successor.Token() <= h.Token() {
			t.Errorf("token %d after %d", successor.Token(), h.Token())
		}
		keeps(t, b, successor)
		if n := holder.count(holdfast.EventLost, ""); n != 1 {
			t.Errorf("told %d times of the loss", n)
		}
		release(t, h)
		if r := other.record(name); !held(r) || r.Token != successor.Token() {
			t.Errorf("the record is %v with token %d, want held with %d", r.State, r.Token, successor.Token())
		}
		release(t, successor)
	})
}

// The backend takes renewals and answers nothing, connections stay open — the hold ends at
// its deadline and not later, before another is granted the lock, and no call hangs.
func TestHungRenew(t *testing.T) {
	onEach(t, func(t *testing.T, b target) {
		way, name, sequence := b.link(t), fresh(), order{tb: t}
		first, second := b.actor(t, way), b.calm(t)
		h := sequence.enter(first.lock(name))
		way.hang()
		next := make(chan *holdfast.Hold, 1)
		go func() { next <- sequence.enter(second.lock(name)) }()
		if cause := ended(t, h); !errors.Is(cause, holdfast.ErrLost) {
			t.Errorf("the hold ended with %v, want lost", cause)
		}
		if left := h.ExpiresIn(); left <= 0 {
			t.Errorf("the hold ended %v after its lease", -left)
		}
		successor := <-next
		// Still hung: the release of what is lost gives up soon.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := h.Release(ctx); err == nil {
			t.Error("a release without an answer reports success")
		}
		if took := time.Since(start); took > b.ttl {
			t.Errorf("the release took %v", took)
		}
		way.heal()
		keeps(t, b, successor)
		release(t, successor)
	})
}

// Clients with three TTLs, one twice as long as another, take turns on one
// name, and each dies once while it holds — each is replaced when its own TTL is over,
// not before, and not by the TTL of who waits.
func TestMixedTTLs(t *testing.T) {
	onEach(t, func(t *testing.T, b target) {
		name, sequence := fresh(), order{tb: t}
		parts := []time.Duration{b.ttl, b.ttl * 4 / 3, 2 * b.ttl}
		for i, ttl := range parts {
			way := b.link(t)
			mortal := b.actor(t, way, holdfast.WithTTL(ttl))
			heir := b.actor(t, nil, holdfast.WithTTL(parts[(i+1)%len(parts)]))
			h := sequence.enter(mortal.lock(name))
			way.hang() // as good as dead, and its clock can still be asked
			next := sequence.enter(heir.lock(name))
			if early := h.ExpiresIn(); early > 0 {
				t.Errorf("a lease of %v was replaced %v before its end", ttl, early)
			}
			if late := -h.ExpiresIn(); late > ttl+10*time.Second {
				t.Errorf("a lease of %v was replaced %v after its end", ttl, late)
			}
			way.heal()
			release(t, next)
			_ = h.Release(bounded(t)) // of what is lost
		}
	})
}
