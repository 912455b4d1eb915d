package integration

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

// Holds are renewed and released several times, and their clients shut down and lockers closed,
// all at the same time and over a slow network — each call that reports success has freed its
// lock, no call hangs, and the next holder keeps its lock.
func TestConcurrentRenewReleaseClose(t *testing.T) {
	onEachBackend(t, func(t *testing.T, b backend) {
		const clients, locks = 4, 4
		network, next := b.network(t), b.longTTLClient(t)
		network.slow(20*time.Millisecond, 20*time.Millisecond)
		var all, successors sync.WaitGroup
		for client := range clients {
			first := b.client(t, network, holdfast.WithTTL(4*b.ttl), holdfast.WithRenewEvery(b.ttl/50))
			var holds []*holdfast.Hold
			for range locks {
				holds = append(holds, first.lock(uniqueName()))
			}
			all.Go(func() {
				time.Sleep(b.ttl / 5) // renewals are under way
				var calls sync.WaitGroup
				for _, h := range holds {
					releaseConcurrently(t, &calls, first, h)
				}
				if client%2 == 0 { // the other clients only release
					calls.Go(func() { shutdown(t, first) })
					calls.Go(func() { shutdown(t, first) })
				}
				calls.Wait()
				shutdown(t, first)
				for _, h := range holds {
					successors.Go(func() {
						start := time.Now()
						successor := next.lock(h.Name())
						if took := time.Since(start); took >= 2*b.ttl {
							t.Errorf("the lock became free %v after all releases had returned", took)
						}
						if successor.Token() <= h.Token() {
							t.Errorf("token %d was granted after token %d", successor.Token(), h.Token())
						}
						expectHeld(t, b, successor)
						release(t, successor)
					})
				}
			})
		}
		all.Wait()
		successors.Wait()
	})
}

// releaseConcurrently ends a hold by all possible calls at the same time.
func releaseConcurrently(t *testing.T, calls *sync.WaitGroup, a *testClient, h *holdfast.Hold) {
	wait := func() { time.Sleep(rand.N(20 * time.Millisecond)) }
	for range 3 {
		calls.Go(func() {
			wait()
			if err := h.Release(testContext(t)); err != nil {
				t.Errorf("release: %v", err)
			}
		})
	}
	calls.Go(func() { // the release continues although its caller has given up
		wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = h.Release(ctx) // the outcome may not be known yet
	})
	calls.Go(func() {
		wait()
		_, _ = a.Locker().Renew(testContext(t), h.Lease()) // may be refused, ended by Close, or succeed
	})
	calls.Go(func() {
		wait()
		_ = a.Locker().Release(testContext(t), h.Lease())
	})
}

func shutdown(t *testing.T, a *testClient) {
	if err := a.Shutdown(testContext(t)); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	if err := a.Locker().Close(t.Context()); err != nil {
		t.Errorf("close: %v", err)
	}
}
