package leases_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/leases"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// calls records the calls of a manager's function, and checks that those for one name do not overlap.
type calls struct {
	t       *testing.T
	mu      sync.Mutex
	running map[string]bool
	tokens  map[string][]uint64 // of each call
	causes  []error             // for which contexts ended
}

func newCalls(t *testing.T) *calls {
	t.Helper()
	return &calls{t: t, running: map[string]bool{}, tokens: map[string][]uint64{}}
}

// begin notes the beginning of a call. What it returns notes the end.
func (c *calls) begin(ctx context.Context, name string) (end func()) {
	hold, ok := holdfast.HoldFromContext(ctx)
	token, _ := holdfast.TokenFromContext(ctx)
	if !ok || hold.Name() != name || hold.Token() != token {
		c.t.Errorf("the context of %q has the hold %v and the token %d", name, hold, token)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[name] {
		c.t.Errorf("two calls for %q at once", name)
	}
	c.running[name], c.tokens[name] = true, append(c.tokens[name], token)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.running[name] = false
		c.causes = append(c.causes, context.Cause(ctx))
	}
}

// of returns how many calls for a name there were, and whether one is running.
func (c *calls) of(name string) (n int, running bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.tokens[name]), c.running[name]
}

// until works until its context ends, and then for as long as it takes to stop.
func (c *calls) until(stop time.Duration) leases.Option {
	return leases.WithFunc(func(ctx context.Context, name string) error {
		defer c.begin(ctx, name)()
		<-ctx.Done()
		time.Sleep(stop)
		return ctx.Err()
	})
}

// Each lease has one call of the function. Remove, Close and Shutdown end its context; the lease is
// renewed until it has returned, and then released.
func TestFuncForEachLease(t *testing.T) {
	const stop = 2 * time.Minute // several TTLs
	for _, tc := range []struct {
		what  string
		end   func(ctx context.Context, c *holdfast.Client, m *leases.LeaseManager) error
		cause error
	}{
		{"Remove", func(ctx context.Context, _ *holdfast.Client, m *leases.LeaseManager) error {
			return m.Remove(ctx, "a", "b")
		}, holdfast.ErrReleased},
		{"Close", func(ctx context.Context, _ *holdfast.Client, m *leases.LeaseManager) error { return m.Close(ctx) }, holdfast.ErrReleased},
		{"Shutdown", func(ctx context.Context, c *holdfast.Client, _ *leases.LeaseManager) error { return c.Shutdown(ctx) }, holdfast.ErrClosed},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			c := locktest.NewClient(t, store.Locker())
			led, calls := locktest.NewLedger(t), newCalls(t)
			m := locktest.NewManager(t, c, holdfast.WithObserver(led.Observe), calls.until(stop))
			locktest.MustAdd(t, m, "a", "b")
			time.Sleep(5 * time.Minute) // many renewals
			for _, name := range []string{"a", "b"} {
				if n, running := calls.of(name); n != 1 || !running {
					t.Errorf("%s: %d calls for %q, running: %v", tc.what, n, name, running)
				}
			}
			begun, done := time.Now(), make(chan error, 1)
			go func() { done <- tc.end(t.Context(), c, m) }()
			time.Sleep(stop - time.Second)
			if !locktest.IsHeld(t, store, "a") || !locktest.IsHeld(t, store, "b") || len(m.Leases()) != 0 {
				t.Errorf("%s: released while the functions run; leases: %v", tc.what, m.Leases())
			}
			if err := <-done; err != nil || time.Since(begun) < stop || time.Since(begun) > stop+time.Second {
				t.Errorf("%s: %v after %v", tc.what, err, time.Since(begun))
			}
			if locktest.IsHeld(t, store, "a") || locktest.IsHeld(t, store, "b") {
				t.Errorf("%s: still held", tc.what)
			}
			calls.mu.Lock()
			defer calls.mu.Unlock()
			for _, cause := range calls.causes {
				if !errors.Is(cause, tc.cause) {
					t.Errorf("%s: the context ended with %v", tc.what, cause)
				}
			}
			synctest.Wait()
			led.Mu.Lock()
			defer led.Mu.Unlock()
			if len(led.Held) != 0 {
				t.Errorf("%s: reported as held: %v", tc.what, led.Held)
			}
		})
	}
}

// The function of a lost lease delays the next campaign for its name, is reported as an overrun when
// another may be granted the lease, and delays no other name.
func TestFuncOfALostLease(t *testing.T) {
	for _, stop := range []time.Duration{0, time.Second, 40 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			c := locktest.NewClient(t, store.Locker())
			calls, events := newCalls(t), &locktest.Events{}
			var overruns atomic.Int64
			m := locktest.NewManager(t, c, holdfast.WithObserver(events.Observe), calls.until(stop),
				holdfast.WithOverrunHook(func(holdfast.Event) { overruns.Add(1) }))
			locktest.MustAdd(t, m, "job", "other")
			synctest.Wait()
			locktest.Break(t, store, "job")
			lost, _ := m.Hold("job")
			<-lost.Context().Done()
			if !errors.Is(context.Cause(lost.Context()), holdfast.ErrLost) {
				t.Errorf("the cause is %v", context.Cause(lost.Context()))
			}
			time.Sleep(stop - 10*time.Millisecond)
			synctest.Wait()
			if n, running := calls.of("job"); stop > 0 && (n != 1 || !running) {
				t.Errorf("stops in %v: %d calls, the first is running: %v", stop, n, running)
			}
			if _, held := m.Hold("job"); held && stop > 0 {
				t.Errorf("stops in %v: acquired again while the function runs", stop)
			}
			time.Sleep(30 * time.Second)
			if n, running := calls.of("job"); n != 2 || !running {
				t.Errorf("stops in %v: %d calls, running: %v", stop, n, running)
			}
			if n, _ := calls.of("other"); n != 1 {
				t.Errorf("stops in %v: %d calls for the other name", stop, n)
			}
			want := 0
			if stop > 30*time.Second {
				want = 1
			}
			if n := events.Count(holdfast.EventOverrun); n != want || overruns.Load() != int64(want) {
				t.Errorf("stops in %v: %d overruns, %d calls of the hook", stop, n, overruns.Load())
			}
		})
	}
}

// After an error the function is called again, after a growing backoff. After nil the lease is kept, and
// the function is not called again.
func TestFuncReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := locktest.NewClient(t, store.Locker())
		calls, events := newCalls(t), &locktest.Events{}
		var at []time.Duration
		start := time.Now()
		before := runtime.NumGoroutine()
		m := locktest.NewManager(t, c, holdfast.WithObserver(events.Observe),
			leases.WithRestart(holdfast.Backoff{Initial: 10 * time.Second, Max: time.Minute}),
			leases.WithFunc(func(ctx context.Context, name string) error {
				calls.begin(ctx, name)()
				calls.mu.Lock()
				defer calls.mu.Unlock()
				if at = append(at, time.Since(start)); len(at) < 3 {
					return locktest.ErrInjected
				}
				return nil
			}))
		locktest.MustAdd(t, m, "job")
		time.Sleep(time.Hour)
		calls.mu.Lock()
		between := func(d, least, most time.Duration) bool { return d >= least && d <= most }
		if len(at) != 3 || at[0] != 0 || !between(at[1], 5*time.Second, 15*time.Second) || !between(at[2]-at[1], 10*time.Second, 30*time.Second) {
			t.Errorf("called at %v", at)
		}
		calls.mu.Unlock()
		if n := events.Failures("task"); n != 2 {
			t.Errorf("%d failures are reported", n)
		}
		if _, held := m.Hold("job"); !held || !locktest.IsHeld(t, store, "job") {
			t.Error("the lease is not kept")
		}
		if n := runtime.NumGoroutine() - before; n > 3 {
			t.Errorf("%d goroutines", n)
		}
		// Nothing works under the lease, so its loss is no overrun and a removal is immediate.
		locktest.Break(t, store, "job")
		time.Sleep(time.Minute)
		if n, _ := calls.of("job"); n != 4 || events.Count(holdfast.EventOverrun) != 0 {
			t.Errorf("%d calls, %d overruns", n, events.Count(holdfast.EventOverrun))
		}
		removed := time.Now()
		locktest.MustRemove(t, m, "job")
		if time.Since(removed) > 0 || locktest.IsHeld(t, store, "job") {
			t.Errorf("removed after %v", time.Since(removed))
		}
	})
}

// A function may remove its own name, and is not called for a name that was removed before the grant.
func TestFuncRemovesItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		f := locktest.NewFaulty(t, store.Locker(), func(op string, _ int, l holdfast.Lease) locktest.Fault {
			return locktest.Fault{Delay: time.Second}
		})
		c := locktest.NewClient(t, f)
		calls := newCalls(t)
		var m *leases.LeaseManager
		m = locktest.NewManager(t, c, leases.WithFunc(func(ctx context.Context, name string) error {
			defer calls.begin(ctx, name)()
			inner := func(ctx context.Context) error { return m.Remove(context.WithoutCancel(ctx), name) }
			if err := c.Do(ctx, "within "+name, inner); err != nil {
				t.Errorf("Remove: %v", err)
			}
			time.Sleep(time.Minute)
			if !locktest.IsHeld(t, store, name) {
				t.Error("released while the function runs")
			}
			return nil
		}))
		locktest.MustAdd(t, m, "job", "early")
		time.Sleep(time.Second / 2)
		locktest.MustRemove(t, m, "early")
		time.Sleep(2 * time.Minute)
		if n, running := calls.of("job"); n != 1 || running || locktest.IsHeld(t, store, "job") {
			t.Errorf("%d calls, running: %v, held: %v", n, running, locktest.IsHeld(t, store, "job"))
		}
		if n, _ := calls.of("early"); n != 0 || locktest.IsHeld(t, store, "early") {
			t.Errorf("%d calls for a removed name", n)
		}
	})
}

// The hold of a function is released after the function has returned, not by its own Release: another would get the lock while the
// function works.
func TestFuncDoesNotReleaseItsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		calls := newCalls(t)
		var m *leases.LeaseManager
		m = locktest.NewManager(t, locktest.NewClient(t, store.Locker()), leases.WithFunc(func(ctx context.Context, name string) error {
			defer calls.begin(ctx, name)()
			mine, _ := holdfast.HoldFromContext(ctx)
			same, _ := m.Hold(name)
			for _, hold := range []*holdfast.Hold{mine, same} {
				var invalid *holdfast.InvalidError
				if err := hold.Release(ctx); !errors.As(err, &invalid) || invalid.Field != "Release" {
					t.Errorf("Release: %v", err)
				}
			}
			if ctx.Err() != nil || !locktest.IsHeld(t, store, name) {
				t.Errorf("the context has ended (%v), or the lock is free", ctx.Err())
			}
			<-ctx.Done()
			return nil
		}))
		locktest.MustAdd(t, m, "job")
		time.Sleep(time.Minute)
		if n, running := calls.of("job"); n != 1 || !running {
			t.Errorf("%d calls, running: %v", n, running)
		}
		locktest.MustRemove(t, m, "job")
		if locktest.IsHeld(t, store, "job") {
			t.Error("held after Remove")
		}
	})
}

// A Shutdown that does not wait for a function names what is left. The lease is given up, and the function
// ends later.
func TestFuncOutlivesShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c, err := holdfast.New(store.Locker(), holdfast.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		calls := newCalls(t)
		m, err := leases.New(c, calls.until(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		locktest.MustAdd(t, m, "job")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err = c.Shutdown(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `still held, left to expire: "job"`) {
			t.Errorf("Shutdown: %v", err)
		}
		time.Sleep(time.Minute)
		if _, running := calls.of("job"); !running || locktest.IsHeld(t, store, "job") {
			t.Errorf("running: %v, held: %v", running, locktest.IsHeld(t, store, "job"))
		}
		time.Sleep(time.Hour)
	})
}

// Two managers with functions that take their time to stop have the same names; calls fail, hang and lose
// their replies, and names are added and removed. No two functions work on a name at once, and in the end
// each name has one.
func TestFuncRandom(t *testing.T) {
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) { funcRandom(t, seed) })
	}
}

func funcRandom(t *testing.T, seed uint64) {
	t.Helper()
	store, names := memory.NewStore(), locktest.Names("n", 6)
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(seed, 0))
	roll := func(n int) int { mu.Lock(); defer mu.Unlock(); return rnd.IntN(n) }
	var well atomic.Bool
	faults := func(string, int, holdfast.Lease) locktest.Fault {
		f := locktest.Fault{Delay: time.Duration(roll(50)) * time.Millisecond}
		if !well.Load() {
			switch roll(15) {
			case 0:
				f.Hang = true
			case 1:
				f.Lose = locktest.ErrInjected
			case 2:
				f.Refuse = locktest.ErrInjected
			}
		}
		return f
	}
	calls := newCalls(t) // of both: it checks that those for one name do not overlap
	work := leases.WithFunc(func(ctx context.Context, name string) error {
		defer calls.begin(ctx, name)()
		select {
		case <-ctx.Done():
			time.Sleep(time.Duration(roll(4000)) * time.Millisecond) // less than the grace
			return nil
		case <-time.After(time.Duration(roll(60)) * time.Second):
			if roll(2) == 0 {
				return nil
			}
			return locktest.ErrTask
		}
	})
	var managers []*leases.LeaseManager
	for range 2 {
		c := locktest.FaultyClient(t, store.Locker(), faults)
		managers = append(managers, locktest.NewManager(t, c, work))
	}
	var removals sync.WaitGroup
	for range 250 {
		m, name := managers[roll(2)], names[roll(len(names))]
		switch roll(3) {
		case 0:
			removals.Go(func() { _ = m.Remove(t.Context(), name) })
		case 1:
			if h, ok := m.Hold(name); ok && roll(10) == 0 {
				_ = store.Locker().Capabilities().Breaker.Break(t.Context(), name, driver.BreakToken(h.Token()))
			}
		default:
			locktest.MustAdd(t, m, name)
		}
		time.Sleep(time.Duration(roll(3000)) * time.Millisecond)
	}
	well.Store(true)
	removals.Wait()
	locktest.MustAdd(t, managers[0], names...)
	time.Sleep(2 * time.Minute)
	all := 0
	for _, name := range names {
		n, _ := calls.of(name)
		all += n
		_, first := managers[0].Hold(name)
		if _, second := managers[1].Hold(name); first == second || n == 0 {
			t.Errorf("seed %d: %q: %d calls; held by the managers: %v, %v", seed, name, n, first, second)
		}
	}
	if all < 3*len(names) { // a name that is never lost may have one call
		t.Errorf("seed %d: %d calls for %d names", seed, all, len(names))
	}
}
