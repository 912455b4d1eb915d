package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

func TestHungRenewalDoesNotDelayTheLoss(t *testing.T) {
	for _, deaf := range []bool{false, true} { // a driver that heeds its context, and one that does not
		t.Run(fmt.Sprintf("deaf=%v", deaf), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFaulty(t, memory.NewStore().Locker(), func(op string, _ int, _ holdfast.Lease) fault {
					if op == opRenew {
						return fault{delay: time.Hour, deaf: deaf, refuse: errInjected}
					}
					return fault{}
				})
				c := newClient(t, f)
				start := time.Now()
				h := mustLock(t, c, "job")
				<-h.Context().Done()
				if d := time.Since(start); d != 25*time.Second {
					t.Errorf("lost after %v, want 25s", d)
				}
				if n := f.count(opRenew); n < 3 {
					t.Errorf("%d tries before the loss", n)
				}
			})
		})
	}
}

func TestSlowRenewalDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newFaulty(t, memory.NewStore().Locker(), func(op string, _ int, l holdfast.Lease) fault {
			if op == opRenew && l.Name == "slow" {
				return fault{delay: time.Hour, deaf: true}
			}
			return fault{}
		}))
		slow := mustLock(t, c, "slow")
		var others []*holdfast.Hold
		for i := range 100 {
			others = append(others, mustLock(t, c, fmt.Sprint(i)))
		}
		time.Sleep(10 * time.Minute)
		if slow.Err() == nil {
			t.Error("the slow one was not lost")
		}
		for _, h := range others {
			if h.Err() != nil {
				t.Fatalf("%q was lost: %v", h.Name(), h.Err())
			}
		}
	})
}

// A reply that comes after a later try's must not set the deadline back, and one
// that comes after the loss must not undo it.
func TestLateRenewReplies(t *testing.T) {
	t.Run("overtaken", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t, newFaulty(t, memory.NewStore().Locker(), func(op string, n int, _ holdfast.Lease) fault {
				switch {
				case op == opRenew && n == 1: // sent at 10 s, answers at 22 s; the second try is sent at 14 s
					return fault{delay: 12 * time.Second, deaf: true}
				case op == opRenew && n > 2:
					return fault{refuse: errInjected}
				}
				return fault{}
			}))
			start := time.Now()
			h := mustLock(t, c, "job")
			<-h.Context().Done()
			if d := time.Since(start); d < 10*time.Second+28*time.Second || d > 40*time.Second {
				t.Errorf("lost after %v: not counted from the second try", d)
			}
		})
	})
	t.Run("after the loss", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t, newFaulty(t, memory.NewStore().Locker(), func(op string, _ int, _ holdfast.Lease) fault {
				if op == opRenew {
					return fault{delay: 17 * time.Second, deaf: true}
				}
				return fault{}
			}))
			start := time.Now()
			h := mustLock(t, c, "job")
			<-h.Context().Done()
			if d := time.Since(start); d != 25*time.Second {
				t.Errorf("lost after %v", d)
			}
			for range 10 {
				time.Sleep(time.Second)
				if h.Err() == nil {
					t.Fatal("a late reply brought a lost hold back")
				}
			}
		})
	})
}

func TestOverrun(t *testing.T) {
	run := func(t *testing.T, stopAfter time.Duration) (seen *events, hooked time.Duration) {
		seen = &events{}
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t, newFaulty(t, memory.NewStore().Locker(), func(op string, _ int, _ holdfast.Lease) fault {
				return map[string]fault{opRenew: {refuse: errInjected}}[op]
			}), holdfast.WithObserver(seen.observe))
			start := time.Now()
			var at atomic.Int64
			err := c.Do(t.Context(), "job", func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(stopAfter)
				return nil
			}, holdfast.WithOverrunHook(func(holdfast.Event) { at.Store(int64(time.Since(start))) }))
			if !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("Do: %v", err)
			}
			time.Sleep(time.Minute)
			hooked = time.Duration(at.Load())
		})
		return seen, hooked
	}
	t.Run("work that goes on", func(t *testing.T) {
		seen, at := run(t, 20*time.Second)
		if seen.count(holdfast.EventOverrun) != 1 || at != 30*time.Second-30*time.Millisecond {
			t.Errorf("told %d times, the hook at %v", seen.count(holdfast.EventOverrun), at)
		}
	})
	t.Run("work that stops in time", func(t *testing.T) {
		if seen, at := run(t, 4*time.Second); seen.count(holdfast.EventOverrun) != 0 || at != 0 {
			t.Error("told of an overrun that was none")
		}
	})
}

// A hook runs for as long as it likes: the renewals of other leases go on.
func TestOverrunHookDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newFaulty(t, memory.New(), func(op string, _ int, l holdfast.Lease) fault {
			if op == opRenew && l.Name == "lost" {
				return fault{refuse: errInjected}
			}
			return fault{}
		}))
		called, gate := make(chan struct{}), make(chan struct{})
		mustLock(t, c, "lost", holdfast.WithOverrunHook(func(holdfast.Event) { close(called); <-gate }))
		h := mustLock(t, c, "job")
		<-called
		time.Sleep(5 * time.Minute)
		if h.Err() != nil {
			t.Errorf("lost behind another lock's hook: %v", h.Err())
		}
		close(gate)
	})
}

// Whatever a renewal takes, the next one is due a fixed time after it was sent: that is
// where the lease's time counts from.
func TestRenewalsCountFromTheirSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex
		var sent []time.Duration
		f := newFaulty(t, memory.New(), func(op string, _ int, _ holdfast.Lease) fault {
			if op == opRenew {
				mu.Lock()
				defer mu.Unlock()
				sent = append(sent, time.Since(start))
				return fault{delay: 2 * time.Second}
			}
			return fault{}
		})
		mustLock(t, newClient(t, f), "job")
		time.Sleep(45 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if want := []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second, 40 * time.Second}; !slices.Equal(sent, want) {
			t.Errorf("renewals were sent after %v, want %v", sent, want)
		}
	})
}

// The error of a loss says what the tries before it met, but does not match that: it is the
// loss that happened to the lease.
func TestLossSaysWhatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := mustLock(t, newClient(t, newFaulty(t, memory.New(), renewals())), "job")
		<-h.Context().Done()
		err := h.Err()
		if !errors.Is(err, holdfast.ErrLost) || errors.Is(err, errInjected) || !strings.Contains(err.Error(), errInjected.Error()) {
			t.Errorf("lost by %v", err)
		}
	})
}

// A try may not take longer than the lease lasts, however short that is.
func TestNoTryOutlivesTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		const loss = 25 * time.Second
		var last atomic.Int64
		f := newFaulty(t, memory.New(), renewals())
		f.check = func(ctx context.Context, op string) {
			if op != opRenew {
				return
			}
			if end, ok := ctx.Deadline(); !ok || end.Sub(start) > loss {
				t.Errorf("a renewal sent after %v may take until %v", time.Since(start), end.Sub(start))
			}
			last.Store(int64(time.Since(start)))
		}
		h := mustLock(t, newClient(t, f), "job")
		<-h.Context().Done()
		if d := time.Duration(last.Load()); d < loss-200*time.Millisecond {
			t.Errorf("the last try was made after %v: it had time enough", d)
		}
	})
}

func TestObserversDelayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen, missed events
		gate := make(chan struct{})
		slow := func(e holdfast.Event) { <-gate; missed.observe(e) }
		c := newClient(t, memory.NewStore().Locker(), holdfast.WithObserver(slow),
			holdfast.WithObserver(func(holdfast.Event) { panic("observer") }), holdfast.WithObserver(seen.observe))
		h := mustLock(t, c, "job")
		for range 1000 {
			if err := mustLock(t, c, "other").Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // for the quick observer
		}
		time.Sleep(time.Hour)
		if h.Err() != nil {
			t.Errorf("lost: %v", h.Err())
		}
		if n := len(seen.types()); n != 2001 {
			t.Errorf("an observer beside a slow and a panicking one saw %d events of 2001", n)
		}
		close(gate)
		synctest.Wait()
		_ = mustLock(t, c, "other").Release(t.Context())
		synctest.Wait()
		told, dropped := 0, 0
		for _, e := range missed.list {
			told, dropped = told+1, dropped+e.Dropped
		}
		if told+dropped != 2003 || dropped < 900 {
			t.Errorf("the slow observer saw %d events and was told that it missed %d of 2003", told, dropped)
		}
	})
}

// An observer that never returns does not keep Shutdown beyond its context.
func TestShutdownDoesNotWaitForObserversForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		c := newClient(t, memory.NewStore().Locker(), holdfast.WithObserver(func(holdfast.Event) { <-gate }))
		_ = mustLock(t, c, "job").Release(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: %v", err)
		}
		close(gate)
	})
}

// A lease costs no goroutine: one engine keeps them all.
func TestNoGoroutinePerLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t, memory.NewStore().Locker(), nil)
		c := newClient(t, f)
		before := runtime.NumGoroutine()
		var holds []*holdfast.Hold
		for i := range 1000 {
			holds = append(holds, mustLock(t, c, fmt.Sprint(i)))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n > 3 {
			t.Errorf("1000 leases cost %d goroutines", n)
		}
		time.Sleep(time.Minute)
		for _, h := range holds {
			if h.Err() != nil {
				t.Fatal(h.Err())
			}
		}
		// One renewal in 10 s each: a keeper that spins would show here.
		if n := f.count(opRenew); n < 5000 || n > 7000 {
			t.Errorf("%d renewals in a minute", n)
		}
	})
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	c := newClient(t, memory.NewStore().Locker())
	h := mustLock(t, c, "job")
	ctx := h.Context()
	if n := testing.AllocsPerRun(100, func() { _ = h.Err() }); n != 0 {
		t.Errorf("Hold.Err allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = holdfast.TokenFromContext(ctx) }); n != 0 {
		t.Errorf("TokenFrom allocates %v times", n)
	}
	_ = h.Release(context.Background())
}

// Every call has a time limit of its own, shorter than the grace, whatever limit
// the caller has.
func TestEveryCallIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(t, memory.NewStore().Locker(), func(op string, n int, _ holdfast.Lease) fault {
			if n == 2 && op == opAcquire {
				return fault{lose: errInjected} // has a clean-up follow
			}
			return fault{}
		})
		f.check = func(ctx context.Context, op string) {
			if end, ok := ctx.Deadline(); !ok || time.Until(end) > 4*time.Second {
				t.Errorf("%s has %v", op, time.Until(end))
			}
		}
		c := newClient(t, f, holdfast.WithRequestTimeout(4*time.Second))
		h := mustLock(t, c, "job")
		time.Sleep(time.Minute)
		_ = h.Release(context.Background())
		if _, err := c.TryLock(context.Background(), "job"); !errors.Is(err, errInjected) {
			t.Errorf("TryLock: %v", err)
		}
		time.Sleep(time.Minute)
	})
}
