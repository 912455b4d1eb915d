package holdfast_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// Replies of renewals that come after their time limit. With the default TTL of 30 s the
// first renewal is sent at 10 s and given up at 13.75 s, the second is sent at 14 s.

// renewals has the first renewals meet these faults, in order, and all others fail.
func renewals(first ...fault) func(op string, n int, _ holdfast.Lease) fault {
	return func(op string, n int, _ holdfast.Lease) fault {
		switch {
		case op != opRenew:
			return fault{}
		case n <= len(first):
			return first[n-1]
		}
		return fault{refuse: errInjected}
	}
}

// The reply of a call that was given up is as good as any: it says whether the lease was
// renewed, or is lost for certain.
func TestReplyOfAGivenUpRenewalCounts(t *testing.T) {
	for name, tc := range map[string]struct {
		late fault
		lost time.Duration
	}{
		"success": {fault{delay: 5 * time.Second, deaf: true}, 10*time.Second + 25*time.Second},
		"lost":    {fault{delay: 5 * time.Second, deaf: true, refuse: holdfast.ErrLost}, 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClient(t, newFaulty(t, memory.New(), renewals(tc.late, fault{hang: true})))
				start := time.Now()
				h := mustLock(t, c, "job")
				<-h.Context().Done()
				if d := time.Since(start); d != tc.lost || !errors.Is(h.Err(), holdfast.ErrLost) {
					t.Errorf("ended after %v by %v, want ErrLost after %v", d, h.Err(), tc.lost)
				}
			})
		})
	}
}

// A call that was given up has failed once. Its late error is not another failure: the call
// that replaced it goes on, alone.
func TestErrorOfAGivenUpRenewalIsNotAnotherFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		f := newFaulty(t, memory.New(), renewals(
			fault{delay: 5 * time.Second, deaf: true, refuse: errInjected}, fault{delay: 2500 * time.Millisecond}))
		c := newClient(t, f, holdfast.WithObserver(seen.observe))
		h := mustLock(t, c, "job")
		time.Sleep(16 * time.Second)
		if n := f.count(opRenew); n != 2 {
			t.Errorf("%d renewals were sent, want the one given up and the one under way", n)
		}
		if n := seen.op("renew"); n != 1 {
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
		f := newFaulty(t, memory.New(), renewals(
			fault{delay: 5 * time.Second, deaf: true}, fault{delay: time.Minute, deaf: true}))
		c := newClient(t, f)
		mustLock(t, c, "job")
		time.Sleep(17500 * time.Millisecond)
		if n := f.count(opRenew); n != 2 {
			t.Errorf("%d renewals were sent before the second was given up", n)
		}
		time.Sleep(time.Second)
		if n := f.count(opRenew); n < 3 {
			t.Error("the second renewal is still waited for, past its time limit")
		}
	})
}

// A lease that has ended is not renewed on, whatever the late replies say, and its end is
// reported once.
func TestLateReplyAfterTheEnd(t *testing.T) {
	t.Run("lost", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			var seen events
			f := newFaulty(t, store.Locker(), func(op string, _ int, _ holdfast.Lease) fault {
				if op == opRenew {
					return fault{delay: 17 * time.Second, deaf: true}
				}
				return fault{}
			})
			c := newClient(t, f, holdfast.WithObserver(seen.observe))
			h := mustLock(t, c, "job")
			<-h.Context().Done()
			sent := f.count(opRenew)
			time.Sleep(2 * time.Minute)
			if h.Err() == nil || f.count(opRenew) != sent || isHeld(t, store, "job") {
				t.Errorf("%d renewals after the loss: %v", f.count(opRenew)-sent, h.Err())
			}
			if n := seen.count(holdfast.EventLost); n != 1 {
				t.Errorf("the loss was reported %d times", n)
			}
		})
	})
	t.Run("given up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			f := newFaulty(t, store.Locker(), renewals(fault{delay: 6 * time.Second, deaf: true}))
			r := newRunner(t, newClient(t, f), holdfast.WithStallTimeout(12*time.Second))
			stuck := make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			done := campaign(ctx, r, func(context.Context) error { <-stuck; return nil })
			time.Sleep(47 * time.Second) // stalled at 12 s, renewed by the backend at 16 s
			if n := f.count(opRenew); n != 1 || r.IsLeader() || isHeld(t, store, "job") {
				t.Errorf("%d renewals; leader: %v; held: %v", n, r.IsLeader(), isHeld(t, store, "job"))
			}
			cancel()
			close(stuck)
			t.Logf("Run returned %v", <-done)
		})
	})
	t.Run("released", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var seen events
			f := newFaulty(t, memory.New(), renewals(fault{delay: 2 * time.Second, deaf: true, refuse: holdfast.ErrLost}))
			c := newClient(t, f, holdfast.WithObserver(seen.observe))
			h := mustLock(t, c, "job")
			time.Sleep(11 * time.Second)
			if err := h.Release(t.Context()); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
			if got := seen.types(); !slices.Equal(got, []holdfast.EventType{holdfast.EventAcquired, holdfast.EventReleased}) {
				t.Errorf("events: %v", got)
			}
		})
	})
}
