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

// The reply of a call that is no longer waited for counts like any other: it says whether the lease was renewed, or is definitely
// lost. But the call has failed once, so a late error is not another failure, and the call that replaced it goes on: a late reply
// does not change how long that one is waited for.
func TestReplyOfAGivenUpRenewalCounts(t *testing.T) {
	late := func(refuse error) locktest.Fault {
		return locktest.Fault{Delay: 5 * time.Second, IgnoreContext: true, Refuse: refuse}
	}
	for name, tc := range map[string]struct {
		first, second locktest.Fault // renewals, which are sent at 10 s and about 14 s; all others are refused
		third         bool           // is sent after the time limit of the second
		lost          time.Duration
	}{
		"success":                     {late(nil), locktest.Fault{Hang: true}, true, 10*time.Second + 25*time.Second},
		"success, the second is deaf": {late(nil), locktest.Fault{Delay: time.Minute, IgnoreContext: true}, true, 35 * time.Second},
		"lost":                        {late(holdfast.ErrLost), locktest.Fault{Hang: true}, false, 15 * time.Second},
		"error":                       {late(locktest.ErrInjected), locktest.Fault{Delay: 2500 * time.Millisecond}, false, 39 * time.Second},
	} {
		locktest.Bubble(t, name, func(t *testing.T) {
			var seen locktest.Events
			f := locktest.NewFaulty(t, memory.New(), locktest.RenewalFaults(tc.first, tc.second))
			start := time.Now()
			h := locktest.MustLock(t, locktest.NewClient(t, f, holdfast.WithObserver(seen.Observe)), "job")
			ended := make(chan time.Duration, 1)
			context.AfterFunc(h.Context(), func() { ended <- time.Since(start) })
			time.Sleep(16 * time.Second)
			if n := seen.Failures("renew"); n != 1 {
				t.Errorf("the one failure was reported %d times", n)
			}
			time.Sleep(1500 * time.Millisecond)
			if n := f.Count(locktest.OpRenew); n != 2 && !tc.second.Hang { // that one notices its time limit at 17 s
				t.Errorf("%d renewals were sent, want the one given up and the one under way", n)
			}
			time.Sleep(time.Second)
			if n := f.Count(locktest.OpRenew); n > 2 != tc.third {
				t.Errorf("%d renewals were sent until the time limit of the second", n)
			}
			if lost := <-ended; (lost-tc.lost).Abs() > 250*time.Millisecond || !errors.Is(h.Err(), holdfast.ErrLost) {
				t.Errorf("ended after %v by %v, want ErrLost after %v", lost, h.Err(), tc.lost)
			}
		})
	}
}

// A lease that has ended is no longer renewed, whatever late replies say, and its end is
// reported once.
func TestLateReplyAfterTheEnd(t *testing.T) {
	locktest.Bubble(t, "lost", func(t *testing.T) {
		store := memory.NewStore()
		var seen locktest.Events
		f := locktest.NewFaulty(t, store.Locker(), locktest.Each(locktest.OpRenew, locktest.Fault{Delay: 17 * time.Second, IgnoreContext: true}))
		c := locktest.NewClient(t, f, holdfast.WithObserver(seen.Observe))
		start := time.Now()
		h := locktest.MustLock(t, c, "job")
		<-h.Context().Done()
		if d := time.Since(start); d != 25*time.Second {
			t.Errorf("lost after %v", d)
		}
		sent := f.Count(locktest.OpRenew)
		for range 120 {
			if time.Sleep(time.Second); h.Err() == nil {
				t.Fatal("a late reply revived a lost hold")
			}
		}
		if f.Count(locktest.OpRenew) != sent || locktest.IsHeld(t, store, "job") {
			t.Errorf("%d renewals after the loss: %v", f.Count(locktest.OpRenew)-sent, h.Err())
		}
		if n := seen.Count(holdfast.EventLost); n != 1 {
			t.Errorf("the loss was reported %d times", n)
		}
	})
	locktest.Bubble(t, "given up", func(t *testing.T) {
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
	locktest.Bubble(t, "released", func(t *testing.T) {
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
}

// A reply that comes after a later call's does not move the deadline back.
func TestLateRepliesMoveNoDeadlineBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.FaultyClient(t, memory.New(), locktest.RenewalFaults(
			locktest.Fault{Delay: 12 * time.Second, IgnoreContext: true}, // sent at 10 s, answers at 22 s
			locktest.Fault{})) // sent at 14 s
		start := time.Now()
		h := locktest.MustLock(t, c, "job")
		<-h.Context().Done()
		if d := time.Since(start); d < 10*time.Second+28*time.Second || d > 40*time.Second {
			t.Errorf("lost after %v: not counted from the second renewal", d)
		}
	})
}
