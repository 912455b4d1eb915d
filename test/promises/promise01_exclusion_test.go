package promises_test

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

// Promise 1: at most one holder's context is live at any instant, whatever calls fail.
func TestPromise01_Exclusion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		check := locktest.NewExclusive(t)
		var wg sync.WaitGroup
		var events atomic.Int64 // failures and grants
		const poll = time.Second
		var paces []*locktest.Pace
		for p := range 5 { // five processes, each with failures of every kind
			l := locktest.NewFaulty(t, store.Locker(), locktest.RandomFaults(rand.New(rand.NewPCG(uint64(p), 1)), &events))
			pace := locktest.NewPace(t, 10*time.Second, poll)
			l.Check, paces = pace.Note, append(paces, pace)
			c := locktest.NewClient(t, l, holdfast.WithTTL(10*time.Second), holdfast.WithPollInterval(poll))
			for range 3 {
				wg.Go(func() {
					for range 20 {
						err := c.Do(t.Context(), "job", func(ctx context.Context) error {
							token, _ := holdfast.TokenFromContext(ctx)
							events.Add(1)
							check.Enter(ctx, "job", token)
							locktest.SlowToStop(ctx, 12*time.Second)
							return nil
						})
						if err != nil && !errors.Is(err, holdfast.ErrLost) {
							t.Errorf("Do: %v", err)
						}
					}
				})
			}
		}
		wg.Wait()
		for _, p := range paces {
			p.Verify(int(events.Load()))
		}
	})
}
