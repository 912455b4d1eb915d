package promises_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// Promise 4: failed renewals are retried, and only the definite answer ends the hold.
func TestPromise04_TransientErrorIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		start := time.Now()
		failing := func() bool {
			s := time.Since(start) % (40 * time.Second)
			return s > 10*time.Second && s < 24*time.Second
		}
		l := locktest.NewFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
			if op == locktest.OpRenew && failing() {
				return []locktest.Fault{{Refuse: locktest.ErrInjected}, {Hang: true}, {Lose: locktest.ErrInjected}}[n%3]
			}
			return locktest.Fault{}
		})
		var seen locktest.Events
		c := locktest.NewClient(t, l, holdfast.WithObserver(seen.Observe))
		h := locktest.MustLock(t, c, "job")
		time.Sleep(10 * time.Minute)
		if err := h.Err(); err != nil {
			t.Errorf("a hold was lost to transient errors: %v", err)
		}
		if seen.Count(holdfast.EventError) < 20 {
			t.Errorf("only %d failures were reported", seen.Count(holdfast.EventError))
		}
		// The definite answer ends it at once.
		other := store.Locker()
		defer other.Close(t.Context())
		if err := other.Release(t.Context(), h.Lease()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		if !errors.Is(h.Err(), holdfast.ErrLost) {
			t.Errorf("Err after a definite loss: %v", h.Err())
		}
	})
}
