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

// Promise 8: only elapsed time counts, including suspend. TestElapsedClock in internal/clock shows that
// the default clock counts it and does not follow the wall clock.
func TestPromise08_ClientClocksDoNotMatter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The server's clock is a year ahead; local deadlines do not depend on it.
		store := memory.NewStore(memory.WithClock(func() time.Time { return time.Now().AddDate(1, 0, 0) }))
		var suspended atomic.Int64
		start := time.Now()
		c := locktest.NewClient(t, store.Locker(),
			holdfast.WithElapsed(func() time.Duration { return time.Since(start) + time.Duration(suspended.Load()) }))
		h := locktest.MustLock(t, c, "job")
		time.Sleep(time.Hour + 3*time.Second) // between two renewals
		if h.Err() != nil {
			t.Fatalf("lost: %v", h.Err())
		}
		// The machine sleeps for a minute: timers stand still, and the lease expires.
		suspended.Store(int64(time.Minute))
		if !errors.Is(h.Err(), holdfast.ErrLost) {
			t.Error("Err does not report the loss at once after a suspend")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !errors.Is(context.Cause(h.Context()), holdfast.ErrLost) {
			t.Error("the context did not end within a second after a suspend")
		}
	})
}
