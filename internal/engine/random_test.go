package engine_test

import (
	"context"
	"errors"
	"log/slog"
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

// Random calls and random faults in real time: holds do not overlap, no goroutine leaks, Shutdown
// returns, and the race detector finds nothing.
func TestRandomCallsAndFaults(t *testing.T) {
	for round := range 3 {
		store := memory.NewStore()
		var mu sync.Mutex
		rng := rand.New(rand.NewPCG(uint64(round), 5))
		n := func(k int) int { mu.Lock(); defer mu.Unlock(); return rng.IntN(k) }
		f := locktest.NewFaulty(t, store.Locker(), func(string, int, holdfast.Lease) locktest.Fault {
			d := time.Duration(n(3000)) * time.Microsecond
			switch n(10) {
			case 0:
				return locktest.Fault{Refuse: locktest.ErrInjected}
			case 1:
				return locktest.Fault{Lose: locktest.ErrInjected}
			case 2:
				return locktest.Fault{Hang: true}
			case 3:
				return locktest.Fault{Late: d}
			case 4:
				return locktest.Fault{Delay: d}
			default:
				return locktest.Fault{}
			}
		})
		f.Watcher = round%2 == 0
		check := locktest.NewExclusive(t)
		c, err := holdfast.New(f, holdfast.WithLogger(slog.New(slog.DiscardHandler)), holdfast.WithTTL(1200*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		r, _ := holdfast.NewLeaderAwareRunner(c, "job", holdfast.WithStallTimeout(20*time.Millisecond), holdfast.WithCoolDown(5*time.Millisecond),
			holdfast.WithIdleLimit(10*time.Millisecond), holdfast.WithHealthCheck(5*time.Millisecond, func(context.Context) error {
				if n(20) == 0 {
					return locktest.ErrInjected
				}
				return nil
			}), holdfast.WithRestart(holdfast.Backoff{Initial: time.Millisecond, Max: 5 * time.Millisecond}))
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		work := func(ctx context.Context) error {
			tok, ok := holdfast.TokenFromContext(ctx)
			if !ok {
				t.Error("no token")
			}
			check.EnterAgain(ctx, "job", tok)
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(n(15)) * time.Millisecond):
			}
			if n(3) == 0 {
				return locktest.ErrInjected
			}
			return nil
		}
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				for {
					ctx, cancel := context.WithTimeout(ctx, time.Duration(5+n(40))*time.Millisecond)
					var err error
					switch n(7) {
					case 0:
						err = c.Do(ctx, "job", work)
					case 1:
						var h *holdfast.Hold
						if h, err = c.Lock(ctx, "job"); err == nil {
							_ = work(h.Context())
							_ = h.Release(ctx)
						}
					case 2:
						var h *holdfast.Hold
						if h, err = c.TryLock(ctx, "job"); err == nil {
							_ = work(h.Context())
							_ = h.Release(ctx)
						}
					case 3:
						err = r.Run(ctx, work)
					case 4, 5:
						_, err = r.RunTaskOnLeader(ctx, work)
					case 6:
						_ = r.StepDown(ctx)
						_ = r.IsLeader()
					}
					cancel()
					if errors.Is(err, holdfast.ErrClosed) {
						return
					}
				}
			})
		}
		time.Sleep(time.Duration(20+n(400)) * time.Millisecond)
		if n(2) == 0 {
			_ = r.Close(ctx)
		}
		start := time.Now()
		shutdownCtx, cancelShutdown := context.WithTimeout(context.Background(), time.Minute)
		if err := c.Shutdown(shutdownCtx); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		cancelShutdown()
		if d := time.Since(start); d > 10*time.Second { // what is in doubt is over after a TTL
			t.Errorf("round %d: Shutdown took %v", round, d)
		}
		wg.Wait()
		cancel()
		if c.Locker() == nil {
			t.Fatal()
		}
		f.InFlight.Wait(context.Background())
	}
}

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
					switch kind {
					case 0:
						return locktest.Fault{Refuse: locktest.ErrInjected}
					case 1:
						if op == locktest.OpAcquire && n(2) == 0 { // if it was granted, its lease is broken before the next request
							time.AfterFunc(time.Millisecond, func() {
								_ = breaker.Break(context.WithoutCancel(ctx), "job", holdfast.BreakAnybody())
								back.Add(int64(n(7200)) * int64(time.Second))
							})
						}
						return locktest.Fault{Lose: locktest.ErrInjected}
					case 2:
						return locktest.Fault{Hang: true}
					case 3:
						return locktest.Fault{Late: d}
					case 4:
						return locktest.Fault{Delay: d}
					default:
						return locktest.Fault{}
					}
				})
				f.Watcher = p%2 == 0
				pace := locktest.NewPace(t, ttl, poll)
				f.Check, paces[pace] = pace.Note, failures
				var ahead atomic.Int64
				f.Check = func(_ context.Context, op string) { // a suspend between request and reply
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
