package integration

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

// The backend grants a lock and its reply is lost — asking again gets that very grant:
// one token, and a release frees it.
func TestAcquireReplyLost(t *testing.T) {
	onEach(t, func(t *testing.T, b target) {
		const ttl = time.Minute
		way, name := b.link(t), fresh()
		unlucky, witness := b.actor(t, way, holdfast.WithTTL(ttl)), b.actor(t, nil)
		before := witness.lock(name) // so that there is a record
		release(t, before)

		way.loseReplies()
		start := time.Now()
		granted := make(chan *holdfast.Hold, 1)
		go func() { granted <- unlucky.lock(name) }()
		taken := witness.await("the lock is taken", name, held)
		eventually(t, "the first try is over", func() bool { return unlucky.count(holdfast.EventError, "acquire") > 0 })
		way.heal()
		h := <-granted
		if h == nil {
			return
		}
		if r := witness.record(name); !held(r) || r.Token != h.Token() || h.Token() <= before.Token() {
			t.Errorf("granted token %d after %d; the record has %d, %v", h.Token(), before.Token(), r.Token, r.State)
		}
		if took := time.Since(start); took >= ttl {
			t.Errorf("granted after %v: by the expiry of the first grant", took)
		}
		// Azure's lease is taken before the record is written.
		if taken.Token > before.Token() && h.Token() != taken.Token {
			t.Errorf("granted twice: token %d, and then %d", taken.Token, h.Token())
		}
		release(t, h)
		if next, err := witness.TryLock(bounded(t), name); err != nil || next.Token() <= h.Token() {
			t.Errorf("after the release: %v, %v", next, err)
		}
	})
}

// A lock is released while another of the same process waits, and the reply is lost, of a
// release or of a hand-over — the waiter gets it, no hold is live beside another, and it is
// free after the last release.
func TestHandOverReplyLost(t *testing.T) {
	onEach(t, func(t *testing.T, b target) {
		const ttl = time.Minute
		way, name := b.link(t), fresh()
		unlucky, witness := b.actor(t, way, holdfast.WithTTL(ttl)), b.actor(t, nil)
		start, first := time.Now(), unlucky.lock(name)
		granted := make(chan *holdfast.Hold, 1)
		go func() { granted <- unlucky.lock(name) }()
		way.loseReplies()
		released := make(chan error, 1)
		go func() { released <- first.Release(bounded(t)) }()
		witness.await("the hold has given it up", name, func(r holdfast.Record) bool { return !held(r) || r.Token != first.Token() })
		eventually(t, "the first try is over", func() bool { return unlucky.count(holdfast.EventError, "") > 0 })
		way.heal()
		if err := <-released; err != nil {
			t.Error(err)
		}
		h := <-granted
		if h == nil {
			return
		}
		if first.Err() == nil || h.Token() <= first.Token() {
			t.Errorf("the second hold has token %d after %d; the first one: %v", h.Token(), first.Token(), first.Err())
		}
		if r := witness.record(name); !held(r) || r.Token != h.Token() {
			t.Errorf("granted token %d; the record has %d, %v", h.Token(), r.Token, r.State)
		}
		release(t, h)
		if last, err := witness.TryLock(bounded(t), name); err != nil || last.Token() <= h.Token() {
			t.Errorf("after the release: %v, %v", last, err)
		}
		if took := time.Since(start); took >= ttl {
			t.Errorf("done after %v: by an expiry", took)
		}
	})
}

// Acquires are cancelled while their requests or replies are on the way, some of which
// land after the clean-up has begun — each lock is free again well before its TTL is over.
func TestAcquireCancelledInFlight(t *testing.T) {
	onEach(t, func(t *testing.T, b target) {
		const ttl, locks = time.Minute, 20
		way, names := b.link(t), make([]string, locks)
		fickle, witness := b.actor(t, way, holdfast.WithTTL(ttl), holdfast.WithGrace(ttl/3), holdfast.WithRequestTimeout(9*time.Second)), b.actor(t, nil)
		for i := range names { // connections and records are there
			names[i] = fresh()
			release(t, fickle.lock(names[i]))
		}
		way.slow(400*time.Millisecond, 400*time.Millisecond) // connections do not keep the order among them
		start := time.Now()
		var tries sync.WaitGroup
		for i, name := range names {
			tries.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*40*time.Millisecond)
				defer cancel()
				h, err := fickle.Lock(ctx, name)
				if err == nil {
					release(t, h)
				} else if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("lock: %v", err)
				}
			})
		}
		tries.Wait()
		time.Sleep(time.Second) // the last requests land
		way.heal()
		for _, name := range names {
			h := witness.lock(name)
			if took := time.Since(start); took >= ttl {
				t.Errorf("free after %v: by its expiry", took)
			}
			release(t, h)
		}
		t.Logf("all free after %v", time.Since(start))
	})
}

// The reply to a release is lost, another takes the lock, and the release is sent again
// — it reports success, and the successor keeps its lock.
func TestReleaseReplyLost(t *testing.T) {
	onEach(t, func(t *testing.T, b target) {
		way, name, sequence := b.link(t), fresh(), order{tb: t}
		first, second := b.actor(t, way, holdfast.WithTTL(30*time.Second)), b.calm(t)
		h := sequence.enter(first.lock(name))

		way.loseReplies()
		released := make(chan error, 1)
		go func() { released <- h.Release(bounded(t)) }()
		second.await("the release has arrived", name, free)
		successor := sequence.enter(second.lock(name))
		eventually(t, "the first release is over", func() bool { return first.count(holdfast.EventError, "release") > 0 })
		way.heal()
		if err := <-released; err != nil {
			t.Errorf("release: %v", err)
		}
		keeps(t, b, successor)
		release(t, successor)
	})
}

// keeps fails unless a hold outlives the shortest TTL, and with it some renewals.
func keeps(t *testing.T, b target, h *holdfast.Hold) {
	t.Helper()
	select {
	case <-h.Context().Done():
		t.Errorf("the hold has ended: %v", context.Cause(h.Context()))
	case <-time.After(b.ttl + b.ttl/4):
	}
}

// A holder cut off from the backend is replaced after its expiry, and releases when the
// way is free again, several times — no release is an error, and the successor keeps its lock.
func TestReleaseAfterRegrant(t *testing.T) {
	onEach(t, func(t *testing.T, b target) {
		way, name, sequence := b.link(t), fresh(), order{tb: t}
		first, second := b.actor(t, way), b.calm(t)
		old := sequence.enter(first.lock(name))
		way.hang()
		successor := sequence.enter(second.lock(name))
		way.heal()
		if err := old.Err(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("the old hold: %v, want lost", err)
		}
		release(t, old)
		release(t, old)
		for range 3 { // also by the plain value, as another process may
			if err := first.Locker().Release(bounded(t), old.Lease()); err != nil {
				// The first requests may meet connections that the fault has broken.
				t.Logf("release: %v", err)
			}
		}
		keeps(t, b, successor)
		release(t, successor)
	})
}
