package kuberneteslock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// wire is what an elector's calls pass on their way to the store.
type wire struct {
	mu   sync.Mutex
	hang func(driver.Method) bool // whether a call has no answer until its context ends
	slow time.Duration            // how late the answers to releases come
}

func (w *wire) set(hang func(driver.Method) bool, slow time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hang, w.slow = hang, slow
}

func (w *wire) call(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
	w.mu.Lock()
	hang, slow := w.hang != nil && w.hang(call.Method), w.slow
	w.mu.Unlock()
	if hang {
		<-ctx.Done()
		return driver.Answer{Err: ctx.Err()}
	}
	answer := next(ctx, call)
	if call.Method == driver.MethodRelease {
		time.Sleep(slow)
	}
	return answer
}

func everything(driver.Method) bool { return true }

func renewals(m driver.Method) bool { return m == driver.MethodRenew }

// Promise 1: client-go releases before it ends the leader's context. So a leader that could not renew is not kept by
// a read without an answer, and does not release while its work runs.
func TestReleaseOfALeaderThatIsCutOff(t *testing.T) {
	for what, c := range map[string]struct {
		lost bool
		hang func(driver.Method) bool
		slow time.Duration
	}{
		"no call is answered":              {hang: everything},
		"no renewal is answered":           {hang: renewals, slow: 8 * time.Second},
		"after a loss no read is answered": {lost: true, hang: func(m driver.Method) bool { return m == driver.MethodInspect }},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newElection(t, true)
				defer e.end()
				first := e.leader(t, 1)
				time.Sleep(time.Minute)
				if c.lost {
					if err := e.store.Locker().Capabilities().Breaker.Break(t.Context(), "operator", driver.BreakAnybody()); err != nil {
						t.Fatal(err)
					}
				}
				e.wires[first].set(c.hang, c.slow)
				if second := e.leader(t, 2); second == first || e.overlap {
					t.Errorf("elector %d leads after %d; two at once: %t", second, first, e.overlap)
				}
			})
		})
	}
}

// A renewal that the elector cancels has not failed, so the lease is released.
func TestReleaseDuringARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newElection(t, true)
		defer e.end()
		first := e.leader(t, 1)
		e.wires[first].set(renewals, 0)
		time.Sleep(2100 * time.Millisecond) // client-go renews every 2 s, and an answer may take 2.5 s
		began := time.Now()
		e.stop[first]()
		if second := e.leader(t, 2); second == first || time.Since(began) > 5*time.Second || e.overlap {
			t.Errorf("elector %d leads after %d, after %v; two at once: %t", second, first, time.Since(began), e.overlap)
		}
	})
}

// A Lock whose elector gave up can lead again in a new one.
func TestNewElectorAfterFailedRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newElection(t, true)
		defer e.end()
		first := e.leader(t, 1)
		e.stop[1-first]()
		<-e.done[1-first]
		e.wires[first].set(everything, 0)
		<-e.done[first]
		e.wires[first].set(nil, 0)
		e.stop[first], e.done[first] = e.elect(t, e.locks[first], true)
		if second := e.leader(t, 2); second != first {
			t.Errorf("elector %d leads after %d", second, first)
		}
		if _, _, err := e.locks[first].Get(t.Context()); err != nil {
			t.Error(errors.Join(errors.New("the new leader reads the record"), err))
		}
	})
}

// client-go cuts off fractions of a second.
func TestLeaseDurationBelowASecond(t *testing.T) {
	short := record("a")
	short.LeaseDurationSeconds = 0
	var invalid *driver.InvalidError
	err := newLock(t, memory.NewStore().Locker(), "a").Create(t.Context(), short)
	if !errors.As(err, &invalid) || invalid.Field != "LeaseDuration" {
		t.Errorf("Create: %v", err)
	}
}
