package renewal_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// The reply of a call that is no longer waited for counts like any other: it says whether the
// lease was renewed, or is definitely lost.
func TestReplyOfAGivenUpRenewalCounts(t *testing.T) {
	for name, tc := range map[string]struct {
		late locktest.Fault
		lost time.Duration
	}{
		"success": {locktest.Fault{Delay: 5 * time.Second, IgnoreContext: true}, 10*time.Second + 25*time.Second},
		"lost":    {locktest.Fault{Delay: 5 * time.Second, IgnoreContext: true, Refuse: holdfast.ErrLost}, 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := locktest.FaultyClient(t, memory.New(), locktest.RenewalFaults(tc.late, locktest.Fault{Hang: true}))
				start := time.Now()
				h := locktest.MustLock(t, c, "job")
				<-h.Context().Done()
				if d := time.Since(start); d != tc.lost || !errors.Is(h.Err(), holdfast.ErrLost) {
					t.Errorf("ended after %v by %v, want ErrLost after %v", d, h.Err(), tc.lost)
				}
			})
		})
	}
}

// A call that is no longer waited for has failed once. Its late error is not another failure:
// the call that replaced it goes on.
func TestErrorOfAGivenUpRenewalIsNotAnotherFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen locktest.Events
		f := locktest.NewFaulty(t, memory.New(), locktest.RenewalFaults(
			locktest.Fault{Delay: 5 * time.Second, IgnoreContext: true, Refuse: locktest.ErrInjected},
			locktest.Fault{Delay: 2500 * time.Millisecond}))
		c := locktest.NewClient(t, f, holdfast.WithObserver(seen.Observe))
		h := locktest.MustLock(t, c, "job")
		time.Sleep(16 * time.Second)
		if n := f.Count(locktest.OpRenew); n != 2 {
			t.Errorf("%d renewals were sent, want the one given up and the one under way", n)
		}
		if n := seen.Failures("renew"); n != 1 {
			t.Errorf("the one failure was reported %d times", n)
		}
		time.Sleep(time.Second)
		if in := h.LostIn(); in < 20*time.Second {
			t.Errorf("lost in %v: the second renewal did not count", in)
		}
	})
}

// A late success does not change how long the call under way is waited for.
func TestLateSuccessLeavesTheCallUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFaulty(t, memory.New(), locktest.RenewalFaults(
			locktest.Fault{Delay: 5 * time.Second, IgnoreContext: true}, locktest.Fault{Delay: time.Minute, IgnoreContext: true}))
		c := locktest.NewClient(t, f)
		locktest.MustLock(t, c, "job")
		time.Sleep(17500 * time.Millisecond)
		if n := f.Count(locktest.OpRenew); n != 2 {
			t.Errorf("%d renewals were sent before the second was given up", n)
		}
		time.Sleep(time.Second)
		if n := f.Count(locktest.OpRenew); n < 3 {
			t.Error("the second renewal is still waited for, past its time limit")
		}
	})
}

// A lease that has ended is no longer renewed, whatever late replies say, and its end is
// reported once.
func TestLateReplyAfterTheEnd(t *testing.T) {
	t.Run("lost", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			var seen locktest.Events
			f := locktest.NewFaulty(t, store.Locker(), locktest.Each(locktest.OpRenew, locktest.Fault{Delay: 17 * time.Second, IgnoreContext: true}))
			c := locktest.NewClient(t, f, holdfast.WithObserver(seen.Observe))
			h := locktest.MustLock(t, c, "job")
			<-h.Context().Done()
			sent := f.Count(locktest.OpRenew)
			time.Sleep(2 * time.Minute)
			if h.Err() == nil || f.Count(locktest.OpRenew) != sent || locktest.IsHeld(t, store, "job") {
				t.Errorf("%d renewals after the loss: %v", f.Count(locktest.OpRenew)-sent, h.Err())
			}
			if n := seen.Count(holdfast.EventLost); n != 1 {
				t.Errorf("the loss was reported %d times", n)
			}
		})
	})
	t.Run("given up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			f := locktest.NewFaulty(t, store.Locker(), locktest.RenewalFaults(locktest.Fault{Delay: 6 * time.Second, IgnoreContext: true}))
			r := locktest.NewRunner(t, locktest.NewClient(t, f), holdfast.WithStallTimeout(12*time.Second))
			stuck := make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			done := locktest.Campaign(ctx, r, func(context.Context) error { <-stuck; return nil })
			time.Sleep(47 * time.Second) // stalled at 12 s, renewed by the backend at 16 s
			if n := f.Count(locktest.OpRenew); n != 1 || r.IsLeader() || locktest.IsHeld(t, store, "job") {
				t.Errorf("%d renewals; leader: %v; held: %v", n, r.IsLeader(), locktest.IsHeld(t, store, "job"))
			}
			cancel()
			close(stuck)
			t.Logf("Run returned %v", <-done)
		})
	})
	t.Run("released", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var seen locktest.Events
			f := locktest.NewFaulty(t, memory.New(), locktest.RenewalFaults(locktest.Fault{Delay: 2 * time.Second, IgnoreContext: true,
				Refuse: holdfast.ErrLost}))
			c := locktest.NewClient(t, f, holdfast.WithObserver(seen.Observe))
			h := locktest.MustLock(t, c, "job")
			time.Sleep(11 * time.Second)
			locktest.Release(t, h)
			time.Sleep(time.Minute)
			if got := seen.Types(); !slices.Equal(got, []holdfast.EventType{holdfast.EventAcquired, holdfast.EventReleased}) {
				t.Errorf("Events: %v", got)
			}
		})
	})
}

// A reply that comes after a later call's does not move the deadline back, and one that comes
// after the loss does not undo it.
func TestLateRepliesMoveNoDeadlineBack(t *testing.T) {
	t.Run("overtaken", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := locktest.FaultyClient(t, memory.NewStore().Locker(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
				switch {
				case op == locktest.OpRenew && n == 1: // sent at 10 s, answers at 22 s; the second is sent at 14 s
					return locktest.Fault{Delay: 12 * time.Second, IgnoreContext: true}
				case op == locktest.OpRenew && n > 2:
					return locktest.Fault{Refuse: locktest.ErrInjected}
				}
				return locktest.Fault{}
			})
			start := time.Now()
			h := locktest.MustLock(t, c, "job")
			<-h.Context().Done()
			if d := time.Since(start); d < 10*time.Second+28*time.Second || d > 40*time.Second {
				t.Errorf("lost after %v: not counted from the second renewal", d)
			}
		})
	})
	t.Run("after the loss", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := locktest.FaultyClient(t, memory.NewStore().Locker(),
				locktest.Each(locktest.OpRenew, locktest.Fault{Delay: 17 * time.Second, IgnoreContext: true}))
			start := time.Now()
			h := locktest.MustLock(t, c, "job")
			<-h.Context().Done()
			if d := time.Since(start); d != 25*time.Second {
				t.Errorf("lost after %v", d)
			}
			for range 10 {
				time.Sleep(time.Second)
				if h.Err() == nil {
					t.Fatal("a late reply revived a lost hold")
				}
			}
		})
	})
}
