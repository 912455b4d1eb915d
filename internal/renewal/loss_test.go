package renewal_test

import (
	"context"
	"errors"
	"fmt"
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
		locktest.Bubble(t, name, func(t *testing.T) {
			store := memory.NewStore()
			l := driver.Intercept(store.Locker(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
				a := next(ctx, call)
				if call.Method == driver.MethodTryAcquire && a.Err == nil {
					odd(&a.Lease)
				}
				return a
			})
			c := locktest.FaultyClient(t, l, func(op string, n int, _ holdfast.Lease) locktest.Fault {
				if op == locktest.OpRenew && n > 1 {
					return locktest.Fault{Refuse: locktest.ErrInjected}
				}
				return locktest.Fault{}
			})
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
	}
}

// A clock may show negative times, since only differences matter.
func TestClockBelowZero(t *testing.T) {
	below := func() holdfast.ClientOption {
		start := time.Now()
		return holdfast.WithElapsed(func() time.Duration { return time.Since(start) - time.Hour })
	}
	locktest.Bubble(t, "cleanup", func(t *testing.T) {
		store := memory.NewStore()
		c := locktest.FaultyClient(t, store.Locker(), locktest.Each(locktest.OpAcquire, locktest.Fault{Lose: locktest.ErrInjected}), below())
		_, _ = c.TryLock(t.Context(), "job")
		time.Sleep(20 * time.Second)
		if locktest.IsHeld(t, store, "job") {
			t.Error("no cleanup")
		}
	})
	locktest.Bubble(t, "a free lock", func(t *testing.T) {
		start := time.Now()
		locktest.MustLock(t, locktest.NewClient(t, memory.New(), below()), "job")
		plain := locktest.NewClient(t, locktest.Scripted{Locker: memory.New()}, below()) // without a queue
		locktest.MustLock(t, plain, "job")
		locktest.MustLock(t, plain, "slots", holdfast.WithSlots(2))
		if d := time.Since(start); d != 0 {
			t.Errorf("Lock of free locks took %v", d)
		}
	})
	locktest.Bubble(t, "polling", func(t *testing.T) {
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

// Renewals that fail, hang or do not return do not delay the loss. None may take longer than until then, however short that is. The
// failures are reported, and the error of the loss says what failed, but does not match it.
func TestFailedRenewalsDoNotDelayTheLoss(t *testing.T) {
	const loss = 25 * time.Second
	for name, ft := range map[string]locktest.Fault{
		"refused": {Refuse: locktest.ErrInjected}, "hung": {Delay: time.Hour}, "deaf": {Delay: time.Hour, IgnoreContext: true},
	} {
		locktest.Bubble(t, name, func(t *testing.T) {
			start := time.Now()
			var last atomic.Int64
			var seen locktest.Events
			f := locktest.NewFaulty(t, memory.New(), locktest.Each(locktest.OpRenew, ft))
			f.Check = func(ctx context.Context, op string) {
				if op != locktest.OpRenew {
					return
				}
				if end, ok := ctx.Deadline(); !ok || end.Sub(start) > loss {
					t.Errorf("a renewal sent after %v may take until %v", time.Since(start), end.Sub(start))
				}
				last.Store(int64(time.Since(start)))
			}
			h := locktest.MustLock(t, locktest.NewClient(t, f, holdfast.WithObserver(seen.Observe)), "job")
			<-h.Context().Done()
			if d := time.Since(start); d != loss {
				t.Errorf("lost after %v, want %v", d, loss)
			}
			if n, d := f.Count(locktest.OpRenew), time.Duration(last.Load()); n < 3 || ft.Refuse != nil && d < loss-200*time.Millisecond {
				t.Errorf("%d attempts before the loss, the last after %v: there was time for another", n, d)
			}
			err, what := h.Err(), "not renewed in time"
			if ft.Refuse != nil {
				what = locktest.ErrInjected.Error()
			}
			if !errors.Is(err, holdfast.ErrLost) || errors.Is(err, locktest.ErrInjected) || !strings.Contains(err.Error(), what) {
				t.Errorf("lost by %v", err)
			}
			if synctest.Wait(); seen.Failures("renew") == 0 {
				t.Error("no failure was reported before the loss")
			}
		})
	}
}

// However long a renewal takes, the next one is due a fixed time after it was sent: the lease's time counts from there, in a batch
// as well.
func TestRenewalsCountFromTheirSending(t *testing.T) {
	for _, leases := range []int{1, 3} {
		locktest.Bubble(t, fmt.Sprint(leases, " leases"), func(t *testing.T) {
			start := time.Now()
			var mu sync.Mutex
			var sent []time.Duration
			holds := lockMany(t, locktest.NewClient(t, newBatches(t, func(int, []holdfast.Lease) locktest.Fault {
				mu.Lock()
				defer mu.Unlock()
				sent = append(sent, time.Since(start))
				return locktest.Fault{Delay: 2 * time.Second}
			})), leases, 0)
			time.Sleep(12*time.Second + time.Millisecond) // renewed at 10 s, answered at 12 s
			synctest.Wait()
			for _, h := range holds {
				if in := h.LostIn(); in > 23*time.Second || in < 22*time.Second {
					t.Errorf("lost in %v, not 25 s after the request was sent", in)
				}
			}
			time.Sleep(33 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			if want := []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second, 40 * time.Second}; !slices.Equal(sent, want) {
				t.Errorf("renewals were sent after %v, want %v", sent, want)
			}
		})
	}
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
