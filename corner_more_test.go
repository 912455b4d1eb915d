package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// Held: mixed TTLs on one name, a server's clock that steps back at random, clients'
// clocks that jump ahead (suspend), breaks, and calls that fail in every way.
func TestCorner_Fuzz(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			var back atomic.Int64
			store := memory.NewStore(memory.WithClock(func() time.Time { return time.Now().Add(-time.Duration(back.Load())) }))
			check := newExclusive(t)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
			defer cancel()
			var wg sync.WaitGroup
			var grants atomic.Int64
			begin := time.Now()
			const poll = time.Second
			breaker := store.Locker()
			paces := map[*pace]*atomic.Int64{} // with the failures of each
			processes := 5
			if seed%4 == 3 {
				processes = 1 // nobody else ends what keeps it from the lock
			}
			for p := range processes {
				rng := rand.New(rand.NewPCG(seed, uint64(p)))
				var mu sync.Mutex
				failures := &atomic.Int64{}
				n := func(k int) int { mu.Lock(); defer mu.Unlock(); return rng.IntN(k) }
				ttl := []time.Duration{2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, 3 * time.Second}[p]
				f := newFaulty(t, store.Locker(), func(op string, _ int, _ holdfast.Lease) fault {
					d := time.Duration(n(3000)) * time.Millisecond
					kind := n(10)
					if kind <= 4 {
						failures.Add(1)
					}
					switch kind {
					case 0:
						return fault{refuse: errInjected}
					case 1:
						if op == opAcquire && n(2) == 0 { // its grant, if it is one, is broken before it is asked for again
							time.AfterFunc(time.Millisecond, func() {
								_ = breaker.Break(context.WithoutCancel(ctx), "job")
								back.Add(int64(n(7200)) * int64(time.Second))
							})
						}
						return fault{lose: errInjected}
					case 2:
						return fault{hang: true}
					case 3:
						return fault{late: d}
					case 4:
						return fault{delay: d}
					default:
						return fault{}
					}
				})
				f.watcher = p%2 == 0
				f.pace = newPace(t, ttl, poll)
				paces[f.pace] = failures
				var ahead atomic.Int64
				f.check = func(_ context.Context, op string) { // a suspend between sending and answer
					if op == opRenew && n(6) == 0 {
						ahead.Add(int64(n(40000)) * int64(time.Millisecond))
					}
				}
				c := newClient(t, f, holdfast.WithTTL(ttl), holdfast.WithPollInterval(poll), holdfast.WithElapsed(func() time.Duration { return time.Since(begin) + time.Duration(ahead.Load()) }))
				wg.Go(func() {
					for ctx.Err() == nil {
						work := time.Duration(n(20000)) * time.Millisecond
						err := c.Do(ctx, "job", func(ctx context.Context) error {
							grants.Add(1)
							token, _ := holdfast.TokenFromContext(ctx)
							check.enter(ctx, "job", token)
							if n(4) == 0 {
								ahead.Add(int64(n(40000)) * int64(time.Millisecond))
							}
							select {
							case <-ctx.Done():
								time.Sleep(time.Duration(n(2000)) * time.Millisecond)
							case <-time.After(work):
							}
							return nil
						})
						if err != nil && !errors.Is(err, holdfast.ErrLost) && ctx.Err() == nil {
							t.Error(err)
						}
					}
				})
			}
			rng := rand.New(rand.NewPCG(seed, 99))
			admin := store.Locker()
			breaks := 0
			for ctx.Err() == nil {
				time.Sleep(time.Duration(rng.IntN(120)) * time.Second)
				if rng.IntN(2) == 0 {
					back.Add(int64(rng.IntN(7200)) * int64(time.Second))
				} else {
					_ = admin.Break(ctx, "job")
					breaks++
				}
			}
			wg.Wait()
			for p, failures := range paces {
				p.verify(int(grants.Load()+failures.Load()) + breaks)
			}
			if grants.Load() < 20 {
				t.Errorf("seed %d: only %d grants in 20 minutes", seed, grants.Load())
			}
		})
	}
}

// The hook "is called when a hold has ended and its work still runs at the moment
// another may be granted the lock": also when Shutdown gave up on that work.
func TestCorner_OverrunAfterAFailedShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, memory.New())
		var told atomic.Bool
		go func() {
			_ = c.Do(t.Context(), "job", func(context.Context) error { time.Sleep(time.Hour); return nil },
				holdfast.WithOverrunHook(func(holdfast.Event) { told.Store(true) }))
		}()
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = c.Shutdown(ctx)
		time.Sleep(time.Minute)
		if !told.Load() {
			t.Error("work that overran was not told")
		}
		time.Sleep(time.Hour)
	})
}

// A release by this process wakes this process's waiter, also if that waiter was
// asking the backend already.
func TestCorner_OwnReleaseWakesTheAsker(t *testing.T) {
	t.Run("of a lost hold", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			under := newFaulty(t, memory.New(), refuse(opRenew))
			c := newClient(t, blind{under}, holdfast.WithPollInterval(time.Hour), holdfast.WithTTL(30*time.Minute))
			h := mustLock(t, c, "job")
			done := make(chan time.Time)
			go func() { _ = mustLock(t, c, "job").Release(t.Context()); done <- time.Now() }()
			<-h.Context().Done()
			time.Sleep(time.Second)
			_ = h.Release(t.Context())
			freed := time.Now()
			if d := (<-done).Sub(freed); d > time.Second {
				t.Errorf("granted %v after the release in the same process", d)
			}
		})
	})
	t.Run("of a TryLock in between", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			other := mustLock(t, newClient(t, store.Locker()), "job")
			c := newClient(t, blind{newFaulty(t, store.Locker(), nil)}, holdfast.WithPollInterval(time.Hour))
			done := make(chan time.Time)
			go func() { _ = mustLock(t, c, "job").Release(t.Context()); done <- time.Now() }()
			time.Sleep(time.Second)
			_ = other.Release(t.Context())
			_ = mustTryLock(t, c, "job").Release(t.Context())
			freed := time.Now()
			if d := (<-done).Sub(freed); d > time.Second {
				t.Errorf("granted %v after the release in the same process", d)
			}
		})
	})
}

// Any clock will do, since only differences matter.
func TestCorner_ClockBelowZero(t *testing.T) {
	below := func() holdfast.ClientOption {
		start := time.Now()
		return holdfast.WithElapsed(func() time.Duration { return time.Since(start) - time.Hour })
	}
	t.Run("clean-up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			c := newClient(t, newFaulty(t, store.Locker(), func(op string, _ int, _ holdfast.Lease) fault {
				return map[string]fault{opAcquire: {lose: errInjected}}[op]
			}), below())
			_, _ = c.TryLock(t.Context(), "job")
			time.Sleep(20 * time.Second)
			if isHeld(t, store, "job") {
				t.Error("no clean-up")
			}
		})
	})
	t.Run("polling", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			mustLock(t, newClient(t, store.Locker()), "job")
			f := newFaulty(t, store.Locker(), nil)
			c := newClient(t, blind{f}, below(), holdfast.WithPollInterval(10*time.Second))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, _ = c.Lock(ctx, "job")
			if n := f.count(opAcquire); n > 10 {
				t.Errorf("asked %d times in a minute at a poll interval of 10 s", n)
			}
		})
	})
}

// A hung renewal is told as well as a refused one ("a lasting failure is told again
// with every try").
func TestCorner_HungRenewalIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		c := newClient(t, newFaulty(t, memory.New(), func(op string, _ int, _ holdfast.Lease) fault {
			return map[string]fault{opRenew: {delay: time.Hour, deaf: true, refuse: errInjected}}[op]
		}), holdfast.WithObserver(seen.observe))
		h := mustLock(t, c, "job")
		<-h.Context().Done()
		synctest.Wait()
		if seen.op("renew") == 0 {
			t.Error("three tries hung, and nobody was told before the loss")
		}
		_ = h.Release(t.Context())
	})
}

// Held: runtime.Goexit in the function releases the lock and lets Shutdown end.
func TestCorner_Goexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := newClient(t, store.Locker())
		r := newRunner(t, c)
		var wg sync.WaitGroup
		exit := func(context.Context) error { runtime.Goexit(); return nil }
		wg.Go(func() { _ = c.Do(t.Context(), "a", exit) })
		wg.Go(func() { _ = r.Run(t.Context(), exit) })
		wg.Wait()
		wg.Go(func() { _, _ = r.RunTaskOnLeader(t.Context(), exit) })
		wg.Wait()
		if isHeld(t, store, "a") || isHeld(t, store, "job") {
			t.Error("still held")
		}
		if err := c.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Held: a TTL of a millisecond neither spins nor gets stuck.
func TestCorner_TinyTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		check := newExclusive(t)
		var wg sync.WaitGroup
		for range 3 {
			f := newFaulty(t, store.Locker(), nil)
			c := newClient(t, f, holdfast.WithTTL(time.Millisecond))
			wg.Go(func() {
				for range 50 {
					_ = c.Do(t.Context(), "job", func(ctx context.Context) error {
						token, _ := holdfast.TokenFromContext(ctx)
						check.enter(ctx, "job", token)
						time.Sleep(10 * time.Millisecond)
						return nil
					})
				}
				if f.total() > 30000 {
					t.Errorf("%d calls", f.total())
				}
			})
		}
		wg.Wait()
	})
}

// Runners that nobody closes (their Run is over) pile up on the client.
func TestCorner_RunnersPileUp(t *testing.T) {
	c := newClient(t, memory.New())
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	run := func(n int) {
		for i := range n {
			r, err := holdfast.NewLeaderAwareRunner(c, fmt.Sprint("job", i%10))
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Run(t.Context(), func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(100)
	before := heap()
	run(20_000)
	if per := (int64(heap()) - int64(before)) / 20_000; per > 50 {
		t.Errorf("each finished runner leaves %d bytes behind", per)
	}
}
