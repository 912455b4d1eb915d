package promises_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// Promise 10: a dead holder's lock is taken over after one TTL of elapsed time, however far ahead its
// expiry lies.
func TestPromise10_NoLockIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		store := memory.NewStore(memory.WithClock(func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }))
		ahead.Store(int64(24 * time.Hour)) // a server's clock is a day ahead …
		dead := store.Locker()
		lease, err := dead.TryAcquire(t.Context(), driver.Request{Name: "job", ID: driver.NewLeaseID("dead"), Owner: "dead",
			TTL: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		ahead.Store(0) // … and steps back, or another server takes over
		c := locktest.NewClient(t, store.Locker())
		start := time.Now()
		h := locktest.MustLock(t, c, "job")
		if d := time.Since(start); d < 20*time.Second+20*time.Millisecond || d > 27*time.Second {
			t.Errorf("taken over after %v, want one TTL of the dead holder and 0.1 %% for clocks that differ", d)
		}
		if h.Token() <= lease.Token {
			t.Errorf("token %d after %d", h.Token(), lease.Token)
		}
	})
	t.Run("a live holder is safe", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var ahead atomic.Int64
			store := memory.NewStore(memory.WithClock(func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }))
			ahead.Store(int64(24 * time.Hour))
			live := locktest.NewClient(t, store.Locker())
			h := locktest.MustLock(t, live, "job")
			ahead.Store(0)
			c := locktest.NewClient(t, store.Locker())
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if _, err := c.Lock(ctx, "job"); !errors.Is(err, holdfast.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Lock: %v", err)
			}
			if h.Err() != nil {
				t.Errorf("the live holder was replaced: %v", h.Err())
			}
		})
	})
}
