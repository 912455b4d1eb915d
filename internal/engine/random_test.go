package engine_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// Processes with different TTLs use one name while the server's clock steps back, clients' clocks
// jump ahead as after a suspend, leases are broken, and calls fail. Holds do not overlap, and the
// lock is granted again and again.
func TestRandomClocksAndFaults(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			var back atomic.Int64
			store := memory.NewStore(memory.WithClock(func() time.Time { return time.Now().Add(-time.Duration(back.Load())) }))
			check := locktest.NewExclusive(t)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
			defer cancel()
			var wg sync.WaitGroup
			var grants atomic.Int64
			begin := time.Now()
			const poll = time.Second
			breaker := store.Locker()
			paces := map[*locktest.Pace]*atomic.Int64{} // with the failures of each
			processes := 5
			if seed%4 == 3 {
				processes = 1 // no other process helps it past a stuck holder
			}
			for p := range processes {
				rng := rand.New(rand.NewPCG(seed, uint64(p)))
				var mu sync.Mutex
				failures := &atomic.Int64{}
				n := func(k int) int { mu.Lock(); defer mu.Unlock(); return rng.IntN(k) }
				ttl := []time.Duration{2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, 3 * time.Second}[p]
				f := locktest.NewFaulty(t, store.Locker(), func(op string, _ int, _ holdfast.Lease) locktest.Fault {
					d := time.Duration(n(3000)) * time.Millisecond
					kind := n(10)
					if kind <= 4 {
						failures.Add(1)
					}
					fault := locktest.FaultOf(kind, d)
					if fault.Lose != nil && op == locktest.OpAcquire && n(2) == 0 { // if granted, its lease is broken before the next request
						time.AfterFunc(time.Millisecond, func() {
							_ = breaker.Break(context.WithoutCancel(ctx), "job", holdfast.BreakAnybody())
							back.Add(int64(n(7200)) * int64(time.Second))
						})
					}
					return fault
				})
				f.Watcher = p%2 == 0
				pace := locktest.NewPace(t, ttl, poll)
				paces[pace] = failures
				var ahead atomic.Int64
				f.Check = func(ctx context.Context, op string) {
					pace.Note(ctx, op)
					// a suspend between request and reply
					if op == locktest.OpRenew && n(6) == 0 {
						ahead.Add(int64(n(40000)) * int64(time.Millisecond))
					}
				}
				c := locktest.NewClient(t, f, holdfast.WithTTL(ttl), holdfast.WithPollInterval(poll),
					holdfast.WithElapsed(func() time.Duration { return time.Since(begin) + time.Duration(ahead.Load()) }))
				wg.Go(func() {
					for ctx.Err() == nil {
						work := time.Duration(n(20000)) * time.Millisecond
						err := c.Do(ctx, "job", func(ctx context.Context) error {
							grants.Add(1)
							token, _ := holdfast.TokenFromContext(ctx)
							check.Enter(ctx, "job", token)
							if n(4) == 0 {
								ahead.Add(int64(n(40000)) * int64(time.Millisecond))
							}
							select {
							case <-ctx.Done():
								time.Sleep(time.Duration(n(2000)) * time.Millisecond)
							case <-time.After(work):
							}
							return nil
						})
						if err != nil && !errors.Is(err, holdfast.ErrLost) && ctx.Err() == nil {
							t.Error(err)
						}
					}
				})
			}
			rng := rand.New(rand.NewPCG(seed, 99))
			admin := store.Locker()
			breaks := 0
			for ctx.Err() == nil {
				time.Sleep(time.Duration(rng.IntN(120)) * time.Second)
				if rng.IntN(2) == 0 {
					back.Add(int64(rng.IntN(7200)) * int64(time.Second))
				} else {
					_ = admin.Break(ctx, "job", holdfast.BreakAnybody())
					breaks++
				}
			}
			wg.Wait()
			for p, failures := range paces {
				p.Verify(int(grants.Load()+failures.Load()) + breaks)
			}
			if grants.Load() < 20 {
				t.Errorf("seed %d: only %d grants in 20 minutes", seed, grants.Load())
			}
		})
	}
}
