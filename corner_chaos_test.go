package holdfast_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// Held (with the keeper.drop crash mended): everything at once in real time, for -race,
// leaks, overlaps, and a Shutdown that ends.
func TestCorner_Chaos(t *testing.T) {
	for round := range 3 {
		store := memory.NewStore()
		var mu sync.Mutex
		rng := rand.New(rand.NewPCG(uint64(round), 5))
		n := func(k int) int { mu.Lock(); defer mu.Unlock(); return rng.IntN(k) }
		f := newFaulty(t, store.Locker(), func(string, int, holdfast.Lease) fault {
			d := time.Duration(n(3000)) * time.Microsecond
			switch n(10) {
			case 0:
				return fault{refuse: errInjected}
			case 1:
				return fault{lose: errInjected}
			case 2:
				return fault{hang: true}
			case 3:
				return fault{late: d}
			case 4:
				return fault{delay: d}
			default:
				return fault{}
			}
		})
		f.watcher = round%2 == 0
		check := newExclusive(t)
		c, err := holdfast.New(f, holdfast.WithLogger(slog.New(slog.DiscardHandler)), holdfast.WithTTL(1200*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		r, _ := holdfast.NewLeaderAwareRunner(c, "job", holdfast.WithStallTimeout(20*time.Millisecond), holdfast.WithCoolDown(5*time.Millisecond),
			holdfast.WithIdleLimit(10*time.Millisecond), holdfast.WithHealthCheck(5*time.Millisecond, func(context.Context) error {
				if n(20) == 0 {
					return errInjected
				}
				return nil
			}), holdfast.WithRestart(holdfast.Backoff{Initial: time.Millisecond, Max: 5 * time.Millisecond}))
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		work := func(ctx context.Context) error {
			tok, ok := holdfast.TokenFromContext(ctx)
			if !ok {
				t.Error("no token")
			}
			check.again(ctx, "job", tok)
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(n(15)) * time.Millisecond):
			}
			if n(3) == 0 {
				return errInjected
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
		if err := c.Shutdown(ctx); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		if d := time.Since(start); d > 3*time.Second {
			t.Errorf("round %d: Shutdown took %v", round, d)
		}
		wg.Wait()
		cancel()
		if c.Locker() == nil {
			t.Fatal()
		}
		f.lates.Wait()
	}
}
