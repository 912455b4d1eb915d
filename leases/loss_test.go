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
	"github.com/holdfast-go/holdfast/leases"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// An outage that is shorter than the TTL costs nothing. TestManagerFuncsThatStopInTimeAreNoOverruns has a longer one.
func TestManagerOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		names := locktest.Names("n", 50)
		led := locktest.NewLedger(t)
		c := locktest.FaultyClient(t, memory.New(), locktest.While(&down, locktest.Fault{Hang: true}))
		m := locktest.NewManager(t, c, holdfast.WithObserver(led.Observe))
		locktest.MustAdd(t, m, names...)
		time.Sleep(9 * time.Second)
		down.Store(true)
		time.Sleep(13 * time.Second)
		down.Store(false)
		time.Sleep(time.Minute)
		if n := led.Count(holdfast.EventLost); n != 0 || len(m.Leases()) != len(names) {
			t.Errorf("%d leases were lost in an outage shorter than the TTL", n)
		}
	})
}

// Without a function the manager does not know when the work stops: a lease that another client breaks is lost at once, and becomes
// free no sooner than a grace after the end of the hold's context. The manager campaigns for it again while the other holds it.
func TestManagerLeavesTheGraceToWorkUnderABrokenLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const grace = 4 * time.Second
		store := memory.NewStore()
		led := locktest.NewLedger(t)
		m := locktest.NewManager(t, locktest.NewClient(t, store.Locker()), holdfast.WithTTL(30*time.Second), holdfast.WithGrace(grace),
			holdfast.WithObserver(led.Observe))
		h := locktest.MustManageAll(t, m, []string{"job", "other"})[0]
		other := locktest.NewClient(t, store.Locker())
		granted := make(chan *holdfast.Hold)
		go func() { granted <- locktest.MustLock(t, other, "job") }()
		if err := other.Break(t.Context(), "job", holdfast.BreakToken(h.Token())); err != nil {
			t.Fatal(err)
		}
		<-h.Context().Done()
		ended := time.Now()
		thief := <-granted
		if d := time.Since(ended); d < grace || d > grace+time.Second || !errors.Is(h.Err(), holdfast.ErrLost) {
			t.Errorf("granted to another %v after the end of the context (%v)", d, h.Err())
		}
		time.Sleep(20 * time.Second)
		if _, ok := m.Hold("job"); ok {
			t.Error("held by both")
		}
		locktest.Release(t, thief)
		synctest.Wait() // the Watcher wakes the manager
		if again, ok := m.Hold("job"); !ok || again.Token() <= thief.Token() {
			t.Error("not acquired again")
		}
		if _, ok := m.Hold("other"); !ok || led.Count(holdfast.EventLost) != 1 {
			t.Errorf("%d lost", led.Count(holdfast.EventLost))
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
		locktest.Break(t, store, "job")
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
// even before the renewer has read the clock. A manager without a function knows of no work: the pause is a loss and no overrun.
func TestManagerListsNothingLost(t *testing.T) {
	for _, d := range []time.Duration{26 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var events locktest.Events
			c, pause := locktest.PausableClient(t, memory.New())
			m := locktest.NewManager(t, c, holdfast.WithObserver(events.Observe))
			if locktest.MustManage(t, m, "job"); len(m.Leases()) != 1 {
				t.Fatalf("leases %v", m.Leases())
			}
			pause(d)
			if h, ok := m.Hold("job"); ok || len(m.Leases()) != 0 {
				t.Errorf("after a pause of %v: hold %v, leases %v", d, h, m.Leases())
			}
			time.Sleep(10 * time.Second)
			if lost, over := events.Count(holdfast.EventLost), events.Count(holdfast.EventOverrun); lost != 1 || over != 0 {
				t.Errorf("after a pause of %v: %d losses, %d overruns", d, lost, over)
			}
		})
	}
}

// An outage that is longer than the TTL is reported as a loss of every lease before it can expire, and afterwards all are acquired
// again. Functions that return before their leases expire are no overruns, also if the releases wait for each other meanwhile.
func TestManagerFuncsThatStopInTimeAreNoOverruns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 200
		var down atomic.Bool
		var events locktest.Events
		var hooked atomic.Int64
		store, early := memory.NewStore(), 0 // losses before the expiry
		c := locktest.FaultyClient(t, store.Locker(), locktest.While(&down, locktest.Fault{Hang: true}))
		m := locktest.NewManager(t, c, holdfast.WithObserver(events.Observe),
			holdfast.WithObserver(func(e holdfast.Event) {
				if e.Type == holdfast.EventLost && locktest.IsHeld(t, store, e.Name) {
					early++
				}
			}),
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
		if lost := events.Count(holdfast.EventLost); lost != n || early != n || len(m.Leases()) != 0 {
			t.Errorf("%d leases lost, %d of them before the expiry, %d held", lost, early, len(m.Leases()))
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
