package promises_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// Promise 9: after every loss the runner campaigns again, and a lasting failure is reported repeatedly.
func TestPromise09_ElectionNeverDiesSilently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		var down atomic.Bool
		f := locktest.NewFaulty(t, store.Locker(), locktest.While(&down, locktest.Fault{Refuse: locktest.ErrInjected}))
		var seen locktest.Events
		c := locktest.NewClient(t, f)
		r, err := holdfast.NewLeaderAwareRunner(c, "job", holdfast.WithObserver(seen.Observe))
		if err != nil {
			t.Fatal(err)
		}
		var leaderships atomic.Int32
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- r.Run(ctx, func(ctx context.Context) error {
				leaderships.Add(1)
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		for range 5 {
			time.Sleep(time.Minute)
			down.Store(true)
			before := seen.Count(holdfast.EventError)
			time.Sleep(10 * time.Minute)
			if r.IsLeader() {
				t.Error("leads without a backend")
			}
			if reported := seen.Count(holdfast.EventError) - before; reported < 60 {
				t.Errorf("a lasting failure was reported %d times in ten minutes", reported)
			}
			down.Store(false)
		}
		time.Sleep(time.Minute)
		if leaderships.Load() != 6 || !r.IsLeader() {
			t.Errorf("%d leaderships, leader %v; want 6, true", leaderships.Load(), r.IsLeader())
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
}
