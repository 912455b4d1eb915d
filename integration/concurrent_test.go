package integration

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

// Holds are renewed, released several times over, and their clients shut down and lockers
// closed, all at once and over a slow way — what reports success has freed its lock, nobody
// hangs, and whoever gets a lock then keeps it.
func TestConcurrentRenewReleaseClose(t *testing.T) {
	onEach(t, func(t *testing.T, b target) {
		const clients, locks = 4, 4
		way, next := b.link(t), b.calm(t)
		way.slow(20*time.Millisecond, 20*time.Millisecond)
		var all, successors sync.WaitGroup
		for client := range clients {
			busy := b.actor(t, way, holdfast.WithRenewEvery(b.ttl/50))
			var holds []*holdfast.Hold
			for range locks {
				holds = append(holds, busy.lock(fresh()))
			}
			all.Go(func() {
				time.Sleep(b.ttl / 5) // renewals are under way
				var calls sync.WaitGroup
				for _, h := range holds {
					releaseAtOnce(t, &calls, busy, h)
				}
				if client%2 == 0 { // of the others the releases are on their own
					calls.Go(func() { shutdown(t, busy) })
					calls.Go(func() { shutdown(t, busy) })
				}
				calls.Wait()
				shutdown(t, busy)
				for _, h := range holds {
					successors.Go(func() {
						start := time.Now()
						successor := next.lock(h.Name())
						if took := time.Since(start); took >= b.ttl*3/4 {
							t.Errorf("free %v after all had been released", took)
						}
						if successor.Token() <= h.Token() {
							t.Errorf("token %d after %d", successor.Token(), h.Token())
						}
						keeps(t, b, successor)
						release(t, successor)
					})
				}
			})
		}
		all.Wait()
		successors.Wait()
	})
}

// releaseAtOnce ends a hold in every way there is, at the same time.
func releaseAtOnce(t *testing.T, calls *sync.WaitGroup, a *actor, h *holdfast.Hold) {
	pause := func() { time.Sleep(rand.N(20 * time.Millisecond)) }
	for range 3 {
		calls.Go(func() {
			pause()
			if err := h.Release(bounded(t)); err != nil {
				t.Errorf("release: %v", err)
			}
		})
	}
	calls.Go(func() { // the release goes on although its caller has gone
		pause()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = h.Release(ctx) // it may be too early to know
	})
	calls.Go(func() {
		pause()
		_ = a.Locker().Renew(bounded(t), h.Lease()) // refused, cut off by Close, or in time
	})
	calls.Go(func() {
		pause()
		_ = a.Locker().Release(bounded(t), h.Lease())
	})
}

func shutdown(t *testing.T, a *actor) {
	if err := a.Shutdown(bounded(t)); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	if err := a.Locker().Close(t.Context()); err != nil {
		t.Errorf("close: %v", err)
	}
}
