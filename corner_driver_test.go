package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// changed is a Locker some of whose answers a test makes up.
type changed struct {
	holdfast.Locker
	acquire func(ctx context.Context, req driver.Request) (holdfast.Lease, error)
	watch   func(name string, wake func()) (stop func())
	limits  *driver.Limits
}

func (c changed) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	if c.acquire == nil {
		return c.Locker.TryAcquire(ctx, req)
	}
	return c.acquire(ctx, req)
}

func (c changed) Capabilities() driver.Capabilities {
	if c.watch == nil {
		return driver.Capabilities{}
	}
	return driver.Capabilities{Watcher: c}
}

func (c changed) Watch(name string, wake func()) (stop func()) { return c.watch(name, wake) }

func (c changed) Limits() driver.Limits {
	if c.limits != nil {
		return *c.limits
	}
	return c.Locker.Limits()
}

func refuse(ops ...string) func(string, int, holdfast.Lease) fault {
	return func(op string, _ int, _ holdfast.Lease) fault {
		for _, o := range ops {
			if o == op {
				return fault{refuse: errInjected}
			}
		}
		return fault{}
	}
}

// The backend's clock may run up to 0.05 % faster than ours (expiresAt allows 0.1 %),
// but the grace, which is what ends the context, may be less than that.
func TestCorner_GraceBelowTheDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		store := memory.NewStore(memory.WithClock(func() time.Time {
			d := time.Since(begin)
			return begin.Add(d + d/2000)
		}))
		check := newExclusive(t)
		opts := []holdfast.ClientOption{holdfast.WithTTL(24 * time.Hour), holdfast.WithGrace(10 * time.Second)}
		start := time.Now()
		opts = append(opts, holdfast.WithElapsed(func() time.Duration { return time.Since(start) }))
		one, err := holdfast.New(newFaulty(t, store.Locker(), refuse(opRenew)), opts...)
		if errors.Is(err, driver.ErrInvalid) {
			return // refused: as good
		}
		defer func() { _ = one.Shutdown(context.Background()) }()
		h := mustLock(t, one, "job")
		check.enter(h.Context(), "job", h.Token())
		time.Sleep(24*time.Hour - time.Minute)
		if h.Err() == nil && h.ExpiresIn() <= 0 {
			t.Errorf("held, and yet it expired %v ago", -h.ExpiresIn())
		}
		h2 := mustLock(t, newClient(t, store.Locker()), "job")
		check.enter(h2.Context(), "job", h2.Token())
	})
}

// "For ever" is commonly written as the largest duration.
func TestCorner_LargestDurations(t *testing.T) {
	const ever = time.Duration(math.MaxInt64)
	aged := func(tb testing.TB, store *memory.Store, opts ...holdfast.ClientOption) *holdfast.Client {
		start := time.Now()
		return newClient(tb, store.Locker(), append(opts, holdfast.WithElapsed(func() time.Duration {
			return time.Since(start) + time.Hour // the machine has been up for an hour
		}))...)
	}
	t.Run("IdleLimit", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRunner(t, aged(t, memory.NewStore()), holdfast.WithIdleLimit(ever))
			if _, err := r.RunTaskOnLeader(t.Context(), func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if !r.IsLeader() {
				t.Error("leadership was given up at once")
			}
		})
	})
	t.Run("StallTimeout", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRunner(t, aged(t, memory.NewStore()), holdfast.WithStallTimeout(ever))
			_, err := r.RunTaskOnLeader(t.Context(), func(ctx context.Context) error { time.Sleep(time.Second); return context.Cause(ctx) })
			if err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("MinHold", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRunner(t, aged(t, memory.NewStore()), holdfast.WithMinHold(ever))
			done := campaign(t.Context(), r, func(context.Context) error { return nil })
			time.Sleep(time.Second)
			pending(t, done, "Run")
			_ = r.Close(t.Context())
		})
	})
	t.Run("CoolDown", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRunner(t, aged(t, memory.NewStore()), holdfast.WithCoolDown(ever))
			nothing := func(context.Context) error { return nil }
			_, _ = r.RunTaskOnLeader(t.Context(), nothing)
			_ = r.StepDown(t.Context())
			if ran, _ := r.RunTaskOnLeader(t.Context(), nothing); ran {
				t.Error("no cool-down")
			}
		})
	})
	t.Run("PollInterval", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var asked atomic.Int64
			c := newClient(t, changed{Locker: memory.New(), acquire: func(_ context.Context, req driver.Request) (holdfast.Lease, error) {
				asked.Add(1)
				return holdfast.Lease{}, &holdfast.HeldError{Record: holdfast.Record{Name: req.Name}}
			}}, holdfast.WithPollInterval(ever))
			for i := range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				_, _ = c.Lock(ctx, fmt.Sprint(i))
				cancel()
			}
			if n := asked.Load(); n > 20 {
				t.Errorf("20 waiters that are not to poll asked %d times", n)
			}
		})
	})
	t.Run("remaining time", func(t *testing.T) { // what time.Time.Sub saturates at
		synctest.Test(t, func(t *testing.T) {
			var asked atomic.Int64
			c := newClient(t, changed{Locker: memory.New(), acquire: func(_ context.Context, req driver.Request) (holdfast.Lease, error) {
				asked.Add(1)
				return holdfast.Lease{}, &holdfast.HeldError{Record: holdfast.Record{Name: req.Name, Remaining: ever, RemainingKnown: true}}
			}}, holdfast.WithPollInterval(10*time.Second))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, _ = c.Lock(ctx, "job")
			if n := asked.Load(); n > 10 {
				t.Errorf("asked %d times in a minute at a poll interval of 10 s", n)
			}
		})
	})
	t.Run("TTL of the holder seen", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var once sync.Once
			c := newClient(t, changed{Locker: memory.New(), acquire: func(_ context.Context, req driver.Request) (holdfast.Lease, error) {
				if !req.Replace.IsZero() {
					once.Do(func() {
						t.Errorf("a waiter of %v takes over from a live holder whose TTL is %v", 200*time.Millisecond, ever)
					})
				}
				return holdfast.Lease{}, &holdfast.HeldError{Record: holdfast.Record{Name: req.Name, TTL: ever, Revision: driver.NewRevision("r")}}
			}})
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, _ = c.Lock(ctx, "job")
		})
	})
	t.Run("TTL without a limit", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			c, err := holdfast.New(changed{Locker: memory.New(), limits: &driver.Limits{},
				acquire: func(_ context.Context, req driver.Request) (holdfast.Lease, error) {
					return holdfast.Lease{Name: req.Name, ID: req.ID, Token: 1, TTL: req.TTL}, nil
				}}, holdfast.WithTTL(ever), holdfast.WithElapsed(func() time.Duration { return time.Since(start) + 100*24*time.Hour }))
			if errors.Is(err, driver.ErrInvalid) {
				return
			}
			defer func() { _ = c.Shutdown(context.Background()) }()
			h, err := c.TryLock(t.Context(), "job", holdfast.WithGrace(time.Hour))
			if err == nil {
				err = h.Err()
			}
			if err != nil && !errors.Is(err, driver.ErrInvalid) {
				t.Error(err)
			}
		})
	})
}

// What a driver gives back in place of what was asked must not break promise 2.
func TestCorner_OddLease(t *testing.T) {
	for name, odd := range map[string]func(*holdfast.Lease){
		"TTL": func(l *holdfast.Lease) { l.TTL = 10 * time.Second }, "ID": func(l *holdfast.Lease) { l.ID = driver.LeaseID{} },
		"Name": func(l *holdfast.Lease) { l.Name = "" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.NewStore()
				under := store.Locker()
				fails := false
				f := newFaulty(t, changed{Locker: under, acquire: func(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
					l, err := under.TryAcquire(ctx, req)
					if err == nil {
						odd(&l)
					}
					return l, err
				}}, func(op string, n int, _ holdfast.Lease) fault {
					if op == opRenew && n > 1 && fails {
						return fault{refuse: errInjected}
					}
					return fault{}
				})
				c := newClient(t, f)
				fails = true
				h := mustLock(t, c, "job")
				if name == "TTL" {
					time.Sleep(32 * time.Second)
				}
				if h.Err() == nil && !isHeld(t, store, "job") {
					t.Error("the hold is live, and for the backend it is over")
				}
				_ = h.Release(t.Context())
				if isHeld(t, store, "job") {
					t.Error("still held after Release")
				}
			})
		})
	}
}

// A watcher that cannot watch never calls wake.
func TestCorner_WatchInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		mustLock(t, newClient(t, store.Locker()), "job")
		var open, most atomic.Int64
		c := newClient(t, changed{Locker: store.Locker(), watch: func(string, func()) func() {
			most.Store(max(most.Load(), open.Add(1)))
			return func() { open.Add(-1) }
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, _ = c.Lock(ctx, "job")
		if n := most.Load(); n > 1 {
			t.Errorf("one waiter has %d watches open at once", n)
		}
	})
}

// Wake-ups must not undo the back-off towards a backend that fails.
func TestCorner_FloodOfWakeUps(t *testing.T) {
	for name, goroutines := range map[string]int{"every millisecond": 1, "by many": 20} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.NewStore()
				under := store.Locker()
				var asked atomic.Int64
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				flood := func(_ string, wake func()) func() {
					for range goroutines {
						go func() {
							for ctx.Err() == nil {
								time.Sleep(time.Millisecond)
								wake()
							}
						}()
					}
					return func() {}
				}
				c := newClient(t, changed{Locker: under, watch: flood,
					acquire: func(context.Context, driver.Request) (holdfast.Lease, error) {
						if asked.Add(1) > 5000 {
							cancel()
						}
						time.Sleep(100 * time.Microsecond)
						return holdfast.Lease{}, errInjected
					}})
				_, _ = c.Lock(ctx, "job")
				if n := asked.Load(); n > 1000 {
					t.Errorf("asked a failing backend %d times in 10 s", n)
				}
				time.Sleep(time.Second)
			})
		})
	}
}

// An observer that ends its goroutine, as t.FailNow does, must not silence itself and
// fill its backlog for ever.
func TestCorner_ObserverCallsGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		c := newClient(t, memory.New(), holdfast.WithObserver(func(holdfast.Event) {
			if n++; n == 1 {
				runtime.Goexit()
			}
		}))
		for range 5 {
			_ = mustLock(t, c, "job").Release(t.Context())
		}
		synctest.Wait()
		if n != 10 {
			t.Errorf("the observer was told of %d events of 10", n)
		}
	})
}

// A driver that passes on why the caller's context ended must not have it taken for the
// outcome: what it had acquired by then would stay taken.
func TestCorner_CauseIsNoOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		under := store.Locker()
		c := newClient(t, changed{Locker: under, acquire: func(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
			l, err := under.TryAcquire(ctx, req)
			if req.Name != "inner" {
				return l, err
			}
			<-ctx.Done() // applied, and the answer comes too late
			return holdfast.Lease{}, fmt.Errorf("%w: %w", ctx.Err(), context.Cause(ctx))
		}})
		time.AfterFunc(time.Second, func() { _ = c.Shutdown(context.Background()) })
		_ = c.Do(t.Context(), "outer", func(ctx context.Context) error {
			_, err := c.Lock(ctx, "inner")
			return err
		})
		_ = c.Shutdown(t.Context())
		if isHeld(t, store, "inner") {
			t.Error("Shutdown has returned, and a lock is left taken")
		}
	})
}
