package leases_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/leases"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// An outage that is shorter than the TTL costs nothing. A longer one is reported as a loss of every
// lease before it can expire, and afterwards all are acquired again.
func TestManagerOutage(t *testing.T) {
	for _, long := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			var mu sync.Mutex
			down := false
			f := locktest.NewFaulty(t, store.Locker(), func(string, int, holdfast.Lease) locktest.Fault {
				mu.Lock()
				defer mu.Unlock()
				return locktest.Fault{Hang: down}
			})
			set := func(v bool) { mu.Lock(); down = v; mu.Unlock() }
			names := locktest.Names("n", 50)
			led := locktest.NewLedger(t)
			lostHeld := 0
			c := locktest.NewClient(t, f)
			m := locktest.NewManager(t, c, holdfast.WithObserver(led.Observe), holdfast.WithObserver(func(e holdfast.Event) {
				if e.Type == holdfast.EventLost && locktest.IsHeld(t, store, e.Name) {
					lostHeld++
				}
			}))
			locktest.MustAdd(t, m, names...)
			time.Sleep(9 * time.Second)
			set(true)
			if !long {
				time.Sleep(13 * time.Second)
				set(false)
				time.Sleep(time.Minute)
				if n := led.Count(holdfast.EventLost); n != 0 || len(m.Leases()) != len(names) {
					t.Errorf("%d leases were lost in an outage shorter than the TTL", n)
				}
				return
			}
			time.Sleep(time.Minute)
			if n := led.Count(holdfast.EventLost); n != len(names) || lostHeld != n || len(m.Leases()) != 0 {
				t.Errorf("%d leases lost, %d of them before the expiry, %d held", n, lostHeld, len(m.Leases()))
			}
			set(false)
			time.Sleep(time.Minute)
			if n := len(m.Leases()); n != len(names) {
				t.Errorf("%d of %d names are held again", n, len(names))
			}
		})
	}
}

// A lease that is broken is lost at once, and the manager campaigns for it again, also while another
// client holds it.
func TestManagerLeaseBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := locktest.NewClient(t, store.Locker())
		led := locktest.NewLedger(t)
		m := locktest.NewManager(t, c, holdfast.WithObserver(led.Observe))
		locktest.MustAdd(t, m, "job", "other")
		synctest.Wait()
		first, _ := m.Hold("job")
		raw := store.Locker()
		if err := raw.Capabilities().Breaker.BreakNow(t.Context(), "job", holdfast.BreakAnybody()); err != nil {
			t.Fatal(err)
		}
		thief := locktest.MustTryLock(t, locktest.NewClient(t, raw), "job")
		time.Sleep(20 * time.Second)
		if _, ok := m.Hold("job"); ok || !errors.Is(first.Err(), holdfast.ErrLost) {
			t.Errorf("not lost: %v", first.Err())
		}
		locktest.Release(t, thief)
		synctest.Wait() // the Watcher wakes the manager
		if h, ok := m.Hold("job"); !ok || h.Token() <= thief.Token() {
			t.Error("not acquired again")
		}
		if _, ok := m.Hold("other"); !ok || led.Count(holdfast.EventLost) != 1 {
			t.Errorf("%d lost", led.Count(holdfast.EventLost))
		}
	})
}

// Without a function the manager does not know when the work stops: a lease that another client breaks becomes free no sooner than a
// grace after the end of the hold's context.
func TestManagerLeavesTheGraceToWorkUnderABrokenLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const grace = 4 * time.Second
		store := memory.NewStore()
		m := locktest.NewManager(t, locktest.NewClient(t, store.Locker()), holdfast.WithTTL(30*time.Second), holdfast.WithGrace(grace))
		h := locktest.MustManage(t, m, "job")
		other := locktest.NewClient(t, store.Locker())
		granted := make(chan time.Time)
		go func() {
			next, err := other.Lock(t.Context(), "job")
			granted <- time.Now()
			if err == nil {
				locktest.Release(t, next)
			}
		}()
		if err := other.Break(t.Context(), "job", holdfast.BreakToken(h.Token())); err != nil {
			t.Fatal(err)
		}
		<-h.Context().Done()
		ended := time.Now()
		if d := (<-granted).Sub(ended); d < grace || d > grace+time.Second || !errors.Is(h.Err(), holdfast.ErrLost) {
			t.Errorf("granted to another %v after the end of the context (%v)", d, h.Err())
		}
	})
}

// A lease that was not renewed in time is not released before it can expire, since its work may still be stopping. Then it is
// released, also if a renewal landed late.
func TestManagerReleasesLostLeaseAtItsExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		f := locktest.NewFaulty(t, store.Locker(), func(op string, n int, l holdfast.Lease) locktest.Fault {
			switch op {
			case locktest.OpRenew:
				return locktest.Fault{Late: 14 * time.Second}
			case locktest.OpRelease:
				if !locktest.IsHeld(t, store, "job") {
					t.Error("released when it had expired already") // the late renewals keep it
				}
			}
			return locktest.Fault{}
		})
		c := locktest.NewClient(t, f)
		led := locktest.NewLedger(t)
		m := locktest.NewManager(t, c, holdfast.WithObserver(led.Observe))
		start := time.Now()
		h := locktest.MustManage(t, m, "job")
		<-h.Context().Done()
		if d := time.Since(start); d < 24*time.Second || d > 25*time.Second || !errors.Is(h.Err(), holdfast.ErrLost) {
			t.Errorf("lost after %v: %v", d, h.Err())
		}
		time.Sleep(4900 * time.Millisecond)
		if f.Count(locktest.OpRelease) != 0 || f.Count(locktest.OpAcquire) != 1 {
			t.Errorf("%d releases and %d acquisitions before the expiry", f.Count(locktest.OpRelease), f.Count(locktest.OpAcquire))
		}
		time.Sleep(200 * time.Millisecond)
		if n := f.Count(locktest.OpRelease); n != 1 {
			t.Errorf("%d releases at the expiry", n)
		}
		if again, ok := m.Hold("job"); !ok || again.Token() <= h.Token() {
			t.Error("not acquired again")
		}
		if n := led.Count(holdfast.EventReleased); n != 0 {
			t.Errorf("%d reported as released", n)
		}
	})
}

// The loss of a hold that is reported late, when the program has released that hold and the name is
// held again, does not affect the new hold.
func TestManagerLateLossOfAnEarlierHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first atomic.Pointer[holdfast.Hold]
		reported, proceed := make(chan struct{}), make(chan struct{})
		begin := time.Now()
		clock := func() time.Duration {
			// Once the hold's context has ended, the renewer reads the clock before it reports the loss.
			if h := first.Load(); h != nil && h.Context().Err() != nil && first.CompareAndSwap(h, nil) {
				close(reported)
				<-proceed
			}
			return time.Since(begin)
		}
		store := memory.NewStore()
		m := locktest.NewManager(t, locktest.NewClient(t, store.Locker(), holdfast.WithElapsed(clock)))
		h := locktest.MustManage(t, m, "job")
		first.Store(h)
		if err := store.Locker().BreakNow(t.Context(), "job", holdfast.BreakAnybody()); err != nil {
			t.Fatal(err)
		}
		<-reported
		locktest.Release(t, h)
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

// After a pause of the process that is longer than the lease, Leases and Hold do not return the lease,
// even before the renewer has read the clock.
func TestManagerListsNothingLost(t *testing.T) {
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

// Functions that return before their leases expire are no overruns, also if the releases wait for each other in an outage.
func TestManagerFuncsThatStopInTimeAreNoOverruns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 200
		var down atomic.Bool
		var events locktest.Events
		var hooked atomic.Int64
		c := locktest.FaultyClient(t, memory.New(), locktest.While(&down, locktest.Fault{Hang: true}))
		m := locktest.NewManager(t, c, holdfast.WithObserver(events.Observe),
			holdfast.WithOverrunHook(func(holdfast.Event) { hooked.Add(1) }),
			leases.WithFunc(func(ctx context.Context, _ string) error {
				<-ctx.Done()
				time.Sleep(10 * time.Millisecond)
				return ctx.Err()
			}))
		locktest.MustAdd(t, m, locktest.Names("n", n)...)
		time.Sleep(5 * time.Second)
		if len(m.Leases()) != n {
			t.Fatalf("%d held", len(m.Leases()))
		}
		down.Store(true)
		time.Sleep(time.Minute)
		if lost := events.Count(holdfast.EventLost); lost != n {
			t.Errorf("%d lost", lost)
		}
		if over := events.Count(holdfast.EventOverrun); over != 0 || hooked.Load() != 0 {
			t.Errorf("%d overruns, %d calls of the hook", over, hooked.Load())
		}
		down.Store(false)
		time.Sleep(time.Minute)
		if len(m.Leases()) != n {
			t.Errorf("%d held after the outage", len(m.Leases()))
		}
	})
}

// A manager without a function knows of no work: a pause that is longer than the TTL is a loss and no overrun.
func TestManagerWithoutFuncReportsNoOverrunAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pause atomic.Int64
		begin := time.Now()
		clock := func() time.Duration { return time.Since(begin) + time.Duration(pause.Load()) }
		var events locktest.Events
		c := locktest.NewClient(t, memory.New(), holdfast.WithElapsed(clock))
		m := locktest.NewManager(t, c, holdfast.WithObserver(events.Observe))
		locktest.MustManage(t, m, "job")
		pause.Store(int64(time.Hour))
		time.Sleep(10 * time.Second)
		if lost, over := events.Count(holdfast.EventLost), events.Count(holdfast.EventOverrun); lost != 1 || over != 0 {
			t.Errorf("%d losses, %d overruns", lost, over)
		}
	})
}
