package leases_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/locktest"
)

// The renewal engine reports the loss of a hold late, when its user has released that already
// and the name is held anew: the new hold is not affected.
func TestManagerLateLossOfAnEarlierHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first atomic.Pointer[holdfast.Hold]
		reported, proceed := make(chan struct{}), make(chan struct{})
		begin := time.Now()
		clock := func() time.Duration {
			// Once the hold's context has ended, the engine reads the clock before it tells the manager.
			if h := first.Load(); h != nil && h.Context().Err() != nil && first.CompareAndSwap(h, nil) {
				close(reported)
				<-proceed
			}
			return time.Since(begin)
		}
		store := memory.NewStore()
		m := locktest.NewManager(t, locktest.NewClient(t, store.Locker(), holdfast.WithElapsed(clock)))
		locktest.MustAdd(t, m, "job")
		synctest.Wait()
		h, ok := m.Hold("job")
		if !ok {
			t.Fatal("not held")
		}
		first.Store(h)
		if err := store.Locker().BreakNow(t.Context(), "job"); err != nil {
			t.Fatal(err)
		}
		<-reported
		if err := h.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // the manager campaigns again after a poll interval
		again, ok := m.Hold("job")
		if !ok || again == h {
			t.Fatalf("not held anew: %v", again)
		}
		close(proceed)
		synctest.Wait()
		if now, ok := m.Hold("job"); !ok || now != again || now.Err() != nil {
			t.Errorf("the hold after it: %v, %v", now, ok)
		}
	})
}

// A process that was paused for longer than its lease lasts: Leases and Hold do not
// show it, also before the renewal engine has seen what the time is.
func TestManagerShowsNothingLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pause atomic.Int64
		begin := time.Now()
		clock := func() time.Duration { return time.Since(begin) + time.Duration(pause.Load()) }
		m := locktest.NewManager(t, locktest.NewClient(t, memory.New(), holdfast.WithElapsed(clock)))
		locktest.MustAdd(t, m, "job")
		synctest.Wait()
		if h, ok := m.Hold("job"); !ok || len(m.Leases()) != 1 {
			t.Fatalf("Hold: %v", h)
		}
		pause.Store(int64(26 * time.Second))
		if h, ok := m.Hold("job"); ok || len(m.Leases()) != 0 {
			t.Errorf("after a pause: hold %v, leases %v", h, m.Leases())
		}
	})
}

// Unmanage ends the contexts of all its holds at once, also of those whose release has to wait
// for others that hang.
func TestManagerUnmanageEndsContextsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFaulty(t, memory.New(), func(op string, _ int, _ holdfast.Lease) locktest.Fault {
			return locktest.Fault{Hang: op == locktest.OpRelease}
		})
		m := locktest.NewManager(t, locktest.NewClient(t, f))
		names := locktest.Names("n", 100)
		locktest.MustAdd(t, m, names...)
		synctest.Wait()
		var holds []*holdfast.Hold
		for _, name := range names {
			h, ok := m.Hold(name)
			if !ok {
				t.Fatalf("%q is not held", name)
			}
			holds = append(holds, h)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := m.Remove(ctx, names...); !errors.Is(err, context.Canceled) {
			t.Errorf("Unmanage: %v", err)
		}
		for _, h := range holds {
			if !errors.Is(context.Cause(h.Context()), holdfast.ErrReleased) {
				t.Fatalf("the context of %v: %v", h, context.Cause(h.Context()))
			}
		}
		if n := f.Count(locktest.OpRelease); n >= len(names) {
			t.Errorf("%d releases under way: none waits", n)
		}
	})
}
