package integration

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// The backend grants a lock and its reply is lost — the retry gets the same grant, with the same
// token, and a release frees it.
func TestAcquireReplyLost(t *testing.T) {
	onEachBackend(t, func(t *testing.T, b backend) {
		const ttl = time.Minute
		network, name := b.network(t), uniqueName()
		client, witness := b.client(t, network, holdfast.WithTTL(ttl)), b.client(t, nil)
		before := witness.lock(name) // so that a record exists
		release(t, before)

		network.loseReplies()
		start := time.Now()
		granted := make(chan *holdfast.Hold, 1)
		go func() { granted <- client.lock(name) }()
		taken := witness.awaitRecord("the lock is taken", name, held)
		eventually(t, "the first attempt has failed", func() bool { return client.count(holdfast.EventError, "acquire") > 0 })
		network.restore()
		h := <-granted
		if h == nil {
			return
		}
		if r := witness.record(name); !held(r) || r.Token != h.Token() || h.Token() <= before.Token() {
			t.Errorf("granted token %d after %d; the record has %d, %v", h.Token(), before.Token(), r.Token, r.State)
		}
		if took := time.Since(start); took >= ttl {
			t.Errorf("granted after %v: only after the first grant had expired", took)
		}
		// Azure grants the lease before the record is written, so the record may still show the
		// old token.
		if taken.Token > before.Token() && h.Token() != taken.Token {
			t.Errorf("granted twice: token %d, then token %d", taken.Token, h.Token())
		}
		release(t, h)
		if next, err := witness.TryLock(testContext(t), name); err != nil || next.Token() <= h.Token() {
			t.Errorf("after the release: %v, %v", next, err)
		}
	})
}

// A lock is released while another caller of the same process waits, and the reply to the release
// is lost — the waiter gets the lock, no two holds are live at the same time, and the
// lock is free after the last release.
func TestReleaseToAWaiterReplyLost(t *testing.T) {
	onEachBackend(t, func(t *testing.T, b backend) {
		const ttl = time.Minute
		network, name := b.network(t), uniqueName()
		client, witness := b.client(t, network, holdfast.WithTTL(ttl)), b.client(t, nil)
		start, first := time.Now(), client.lock(name)
		granted := make(chan *holdfast.Hold, 1)
		go func() { granted <- client.lock(name) }()
		network.loseReplies()
		released := make(chan error, 1)
		go func() { released <- first.Release(testContext(t)) }()
		witness.awaitRecord("the first hold is released", name, func(r holdfast.Record) bool { return !held(r) || r.Token != first.Token() })
		eventually(t, "the first attempt has failed", func() bool { return client.count(holdfast.EventError, "") > 0 })
		network.restore()
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
		if last, err := witness.TryLock(testContext(t), name); err != nil || last.Token() <= h.Token() {
			t.Errorf("after the release: %v, %v", last, err)
		}
		if took := time.Since(start); took >= ttl {
			t.Errorf("free after %v: only after an expiry", took)
		}
	})
}

// Acquires are cancelled while their requests or replies are in flight, and some requests arrive
// after the cleanup has begun — each lock is free again well before its TTL ends.
func TestAcquireCancelledInFlight(t *testing.T) {
	onEachBackend(t, func(t *testing.T, b backend) {
		const ttl, locks = time.Minute, 20
		network, names := b.network(t), make([]string, locks)
		client, witness := b.client(t, network, holdfast.WithTTL(ttl), holdfast.WithGrace(ttl/3), holdfast.WithRequestTimeout(9*time.Second)),
			b.client(t, nil)
		for i := range names { // opens connections and creates records
			names[i] = uniqueName()
			release(t, client.lock(names[i]))
		}
		network.slow(400*time.Millisecond, 400*time.Millisecond) // requests on different connections overtake each other
		start := time.Now()
		var acquires sync.WaitGroup
		for i, name := range names {
			acquires.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*40*time.Millisecond)
				defer cancel()
				h, err := client.Lock(ctx, name)
				if err == nil {
					release(t, h)
				} else if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("lock: %v", err)
				}
			})
		}
		acquires.Wait()
		time.Sleep(time.Second) // the last requests arrive
		network.restore()
		for _, name := range names {
			h := witness.lock(name)
			if took := time.Since(start); took >= ttl {
				t.Errorf("free after %v: only after an expiry", took)
			}
			release(t, h)
		}
		t.Logf("all free after %v", time.Since(start))
	})
}

// The reply to a release is lost, another client takes the lock, and the release is sent again —
// the release reports success, and the next holder keeps its lock.
func TestReleaseReplyLost(t *testing.T) {
	onEachBackend(t, func(t *testing.T, b backend) {
		network, name, exclusion := b.network(t), uniqueName(), exclusionChecker{tb: t}
		first, second := b.client(t, network, holdfast.WithTTL(30*time.Second)), b.longTTLClient(t)
		h := exclusion.check(first.lock(name))

		network.loseReplies()
		released := make(chan error, 1)
		go func() { released <- h.Release(testContext(t)) }()
		second.awaitRecord("the release has arrived", name, free)
		successor := exclusion.check(second.lock(name))
		eventually(t, "the first release request has failed", func() bool { return first.count(holdfast.EventError, "release") > 0 })
		network.restore()
		if err := <-released; err != nil {
			t.Errorf("release: %v", err)
		}
		expectHeld(t, b, successor)
		release(t, successor)
	})
}

// expectHeld fails unless a hold outlives the shortest TTL, which takes several renewals.
func expectHeld(t *testing.T, b backend, h *holdfast.Hold) {
	t.Helper()
	select {
	case <-h.Context().Done():
		t.Errorf("the hold has ended: %v", context.Cause(h.Context()))
	case <-time.After(b.ttl + b.ttl/4):
	}
}

// A holder is cut off from the backend and replaced after its lease has ended, and releases
// several times once the network works again — no release returns an error, and the next holder
// keeps its lock.
func TestReleaseAfterRegrant(t *testing.T) {
	onEachBackend(t, func(t *testing.T, b backend) {
		network, name, exclusion := b.network(t), uniqueName(), exclusionChecker{tb: t}
		first, second := b.client(t, network), b.longTTLClient(t)
		old := exclusion.check(first.lock(name))
		network.hang()
		successor := exclusion.check(second.lock(name))
		network.restore()
		if err := old.Err(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("the old hold: %v, want lost", err)
		}
		for range 2 {
			// A release after the expiry is sent once, perhaps on a connection that the fault has closed.
			if err := old.Release(testContext(t)); err != nil && driver.OutcomeKnown(err) {
				t.Errorf("release of the lost hold: %v, want no error or an unknown outcome", err)
			}
		}
		for range 3 { // also by the lease alone, as another process could
			if err := first.Locker().Release(testContext(t), old.Lease()); err != nil {
				// The first requests may use connections that the fault has closed.
				t.Logf("release: %v", err)
			}
		}
		expectHeld(t, b, successor)
		release(t, successor)
	})
}
