package renewal_test

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
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// A driver that returns another lease than was requested does not break promise 2.
func TestLeaseThatWasNotRequested(t *testing.T) {
	for name, odd := range map[string]func(*holdfast.Lease){
		"TTL": func(l *holdfast.Lease) { l.TTL = 10 * time.Second }, "ID": func(l *holdfast.Lease) { l.ID = driver.LeaseID{} },
		"Name": func(l *holdfast.Lease) { l.Name = "" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.NewStore()
				under := store.Locker()
				f := locktest.NewFaulty(t, locktest.Scripted{Locker: under, OnAcquire: func(
					ctx context.Context, req driver.Request,
				) (holdfast.Lease, error) {
					l, err := under.TryAcquire(ctx, req)
					if err == nil {
						odd(&l)
					}
					return l, err
				}}, func(op string, n int, _ holdfast.Lease) locktest.Fault {
					if op == locktest.OpRenew && n > 1 {
						return locktest.Fault{Refuse: locktest.ErrInjected}
					}
					return locktest.Fault{}
				})
				c := locktest.NewClient(t, f)
				h := locktest.MustLock(t, c, "job")
				if name == "TTL" {
					time.Sleep(32 * time.Second)
				}
				if h.Err() == nil && !locktest.IsHeld(t, store, "job") {
					t.Error("the hold is live, although its lease has expired on the backend")
				}
				_ = h.Release(t.Context())
				if locktest.IsHeld(t, store, "job") {
					t.Error("still held after Release")
				}
			})
		})
	}
}

// A clock may show negative times, since only differences matter.
func TestClockBelowZero(t *testing.T) {
	below := func() holdfast.ClientOption {
		start := time.Now()
		return holdfast.WithElapsed(func() time.Duration { return time.Since(start) - time.Hour })
	}
	t.Run("cleanup", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			c := locktest.FaultyClient(t, store.Locker(), func(op string, _ int, _ holdfast.Lease) locktest.Fault {
				return map[string]locktest.Fault{locktest.OpAcquire: {Lose: locktest.ErrInjected}}[op]
			}, below())
			_, _ = c.TryLock(t.Context(), "job")
			time.Sleep(20 * time.Second)
			if locktest.IsHeld(t, store, "job") {
				t.Error("no cleanup")
			}
		})
	})
	t.Run("polling", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
			f := locktest.NewFaulty(t, store.Locker(), nil)
			c := locktest.NewClient(t, locktest.Anonymous{Locker: f}, below(), holdfast.WithPollInterval(10*time.Second))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, _ = c.Lock(ctx, "job")
			if n := f.Count(locktest.OpAcquire); n > 10 {
				t.Errorf("asked %d times in a minute at a poll interval of 10 s", n)
			}
		})
	})
}

// A renewal that hangs is reported like one that fails.
func TestHungRenewalIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen locktest.Events
		c := locktest.FaultyClient(t, memory.New(), func(op string, _ int, _ holdfast.Lease) locktest.Fault {
			return map[string]locktest.Fault{locktest.OpRenew: {Delay: time.Hour, IgnoreContext: true, Refuse: locktest.ErrInjected}}[op]
		}, holdfast.WithObserver(seen.Observe))
		h := locktest.MustLock(t, c, "job")
		<-h.Context().Done()
		synctest.Wait()
		if seen.Failures("renew") == 0 {
			t.Error("renewals hung, and nothing was reported before the loss")
		}
		_ = h.Release(t.Context())
	})
}

// A failed renewal is retried until the local deadline: no backoff is so long that a last
// attempt before it is left out.
func TestLastAttemptBeforeTheLoss(t *testing.T) {
	for name, ft := range map[string]locktest.Fault{"refused": {Refuse: locktest.ErrInjected}, "hung": {Hang: true}} {
		for _, back := range []time.Duration{22 * time.Second, 24200 * time.Millisecond} {
			t.Run(fmt.Sprint(name, " until ", back), func(t *testing.T) {
				lost := 0
				const runs = 200
				for range runs {
					synctest.Test(t, func(t *testing.T) {
						start := time.Now()
						c := locktest.FaultyClient(t, memory.New(), func(op string, _ int, _ holdfast.Lease) locktest.Fault {
							if op == locktest.OpRenew && time.Since(start) < back {
								return ft
							}
							return locktest.Fault{}
						})
						h := locktest.MustLock(t, c, "job")
						time.Sleep(26 * time.Second)
						if h.Err() != nil {
							lost++
						}
						_ = h.Release(t.Context())
					})
				}
				if lost > 0 {
					t.Errorf("the backend answers again %v before the deadline, and %d of %d leases are lost", 25*time.Second-back, lost, runs)
				}
			})
		}
	}
}

func TestHungRenewalDoesNotDelayTheLoss(t *testing.T) {
	for _, deaf := range []bool{false, true} { // whether the driver ignores its context
		t.Run(fmt.Sprintf("deaf=%v", deaf), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := locktest.NewFaulty(t, memory.NewStore().Locker(),
					locktest.Each(locktest.OpRenew, locktest.Fault{Delay: time.Hour, IgnoreContext: deaf, Refuse: locktest.ErrInjected}))
				c := locktest.NewClient(t, f)
				start := time.Now()
				h := locktest.MustLock(t, c, "job")
				<-h.Context().Done()
				if d := time.Since(start); d != 25*time.Second {
					t.Errorf("lost after %v, want 25s", d)
				}
				if n := f.Count(locktest.OpRenew); n < 3 {
					t.Errorf("%d attempts before the loss", n)
				}
			})
		})
	}
}

func TestSlowRenewalDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.FaultyClient(t, memory.NewStore().Locker(),
			locktest.Named(locktest.OpRenew, "slow", locktest.Fault{Delay: time.Hour, IgnoreContext: true}))
		slow := locktest.MustLock(t, c, "slow")
		var others []*holdfast.Hold
		for i := range 100 {
			others = append(others, locktest.MustLock(t, c, fmt.Sprint(i)))
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

// However long a renewal takes, the next one is due a fixed time after it was sent: the lease's
// time counts from there.
func TestRenewalsCountFromTheirSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex
		var sent []time.Duration
		f := locktest.NewFaulty(t, memory.New(), func(op string, _ int, _ holdfast.Lease) locktest.Fault {
			if op == locktest.OpRenew {
				mu.Lock()
				defer mu.Unlock()
				sent = append(sent, time.Since(start))
				return locktest.Fault{Delay: 2 * time.Second}
			}
			return locktest.Fault{}
		})
		locktest.MustLock(t, locktest.NewClient(t, f), "job")
		time.Sleep(45 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if want := []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second, 40 * time.Second}; !slices.Equal(sent, want) {
			t.Errorf("renewals were sent after %v, want %v", sent, want)
		}
	})
}

// The error of a loss says why the attempts before it failed, but does not match those errors.
func TestLossSaysWhatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := locktest.MustLock(t, locktest.FaultyClient(t, memory.New(), locktest.RenewalFaults()), "job")
		<-h.Context().Done()
		err := h.Err()
		if !errors.Is(err, holdfast.ErrLost) || errors.Is(err, locktest.ErrInjected) ||
			!strings.Contains(err.Error(), locktest.ErrInjected.Error()) {
			t.Errorf("lost by %v", err)
		}
	})
}

// No attempt may take longer than until the loss, however short that is.
func TestNoAttemptOutlivesTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		const loss = 25 * time.Second
		var last atomic.Int64
		f := locktest.NewFaulty(t, memory.New(), locktest.RenewalFaults())
		f.Check = func(ctx context.Context, op string) {
			if op != locktest.OpRenew {
				return
			}
			if end, ok := ctx.Deadline(); !ok || end.Sub(start) > loss {
				t.Errorf("a renewal sent after %v may take until %v", time.Since(start), end.Sub(start))
			}
			last.Store(int64(time.Since(start)))
		}
		h := locktest.MustLock(t, locktest.NewClient(t, f), "job")
		<-h.Context().Done()
		if d := time.Duration(last.Load()); d < loss-200*time.Millisecond {
			t.Errorf("the last attempt was made after %v: there was time for another", d)
		}
	})
}

// A lease costs no goroutine.
func TestNoGoroutinePerLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFaulty(t, memory.NewStore().Locker(), nil)
		c := locktest.NewClient(t, f)
		before := runtime.NumGoroutine()
		var holds []*holdfast.Hold
		for i := range 1000 {
			holds = append(holds, locktest.MustLock(t, c, fmt.Sprint(i)))
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
		// One renewal in 10 s each: a busy loop would show here.
		if n := f.Count(locktest.OpRenew); n < 5000 || n > 7000 {
			t.Errorf("%d renewals in a minute", n)
		}
	})
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	c := locktest.NewClient(t, memory.NewStore().Locker())
	h := locktest.MustLock(t, c, "job")
	ctx := h.Context()
	if n := testing.AllocsPerRun(100, func() { _ = h.Err() }); n != 0 {
		t.Errorf("Hold.Err allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = holdfast.TokenFromContext(ctx) }); n != 0 {
		t.Errorf("TokenFrom allocates %v times", n)
	}
	_ = h.Release(context.Background())
}

// Every call has a time limit of its own, shorter than the grace, whatever limit the caller has.
func TestEveryCallIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := locktest.NewFaulty(t, memory.NewStore().Locker(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
			if n == 2 && op == locktest.OpAcquire {
				return locktest.Fault{Lose: locktest.ErrInjected} // is followed by a cleanup
			}
			return locktest.Fault{}
		})
		f.Check = func(ctx context.Context, op string) {
			if end, ok := ctx.Deadline(); !ok || time.Until(end) > 4*time.Second {
				t.Errorf("%s has %v", op, time.Until(end))
			}
		}
		c := locktest.NewClient(t, f, holdfast.WithRequestTimeout(4*time.Second))
		h := locktest.MustLock(t, c, "job")
		time.Sleep(time.Minute)
		_ = h.Release(context.Background())
		if _, err := c.TryLock(context.Background(), "job"); !errors.Is(err, locktest.ErrInjected) {
			t.Errorf("TryLock: %v", err)
		}
		time.Sleep(time.Minute)
	})
}

// A hold that has reported its loss once stays lost, although a renewal that was sent before a
// suspend of the process succeeds.
func TestLostStaysLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asleep atomic.Int64
		start := time.Now()
		f := locktest.NewFaulty(t, memory.NewStore().Locker(), locktest.Each(locktest.OpRenew, locktest.Fault{Delay: 1200 * time.Millisecond}))
		c := locktest.NewClient(t, f, holdfast.WithElapsed(func() time.Duration { return time.Since(start) + time.Duration(asleep.Load()) }))
		h := locktest.MustLock(t, c, "job")
		time.Sleep(11100 * time.Millisecond) // the renewal was sent at 10 s
		asleep.Store(int64(14 * time.Second))
		for range 100 {
			if err := h.Err(); !errors.Is(err, holdfast.ErrLost) {
				t.Fatalf("after %v: %v", time.Since(start), err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
}
