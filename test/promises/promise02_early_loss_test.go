package promises_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// Promise 2: a holder's context ends before another can be granted the lock.
func TestPromise02_EarlyLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl, reply = 30 * time.Second, 2 * time.Second
		store := memory.NewStore()
		// Each reply takes 2 s: a deadline counted from the reply would be late.
		a := locktest.FaultyClient(t, store.Locker(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
			switch {
			case op == locktest.OpRenew && n > 1:
				return locktest.Fault{Refuse: locktest.ErrInjected}
			case op == locktest.OpRelease:
				return locktest.Fault{Hang: true}
			default:
				return locktest.Fault{Delay: reply}
			}
		})
		start := time.Now()
		h := locktest.MustLock(t, a, "job")
		if d := time.Since(start); d != reply {
			t.Fatalf("acquired after %v", d)
		}
		b := locktest.NewClient(t, store.Locker())
		granted := make(chan time.Time)
		go func() {
			hb := locktest.MustLock(t, b, "job")
			if h.Context().Err() == nil {
				t.Error("another was granted the lock while the first hold's context was live")
			}
			if hb.Token() <= h.Token() {
				t.Errorf("token %d after %d", hb.Token(), h.Token())
			}
			granted <- time.Now()
		}()
		<-h.Context().Done()
		// The only renewal was sent 10 s after the start.
		if got, want := time.Since(start), 10*time.Second+ttl-ttl/6; got != want {
			t.Errorf("lost after %v, want %v: t0 of the last successful request + TTL - grace", got, want)
		}
		if cause := context.Cause(h.Context()); !errors.Is(cause, holdfast.ErrLost) || !errors.Is(h.Err(), holdfast.ErrLost) {
			t.Errorf("cause %v, Err %v: want ErrLost", cause, h.Err())
		}
		lost := time.Now()
		if d := (<-granted).Sub(lost); d < ttl/6 {
			t.Errorf("granted to another %v after the loss, want at least the grace", d)
		}
	})
}
