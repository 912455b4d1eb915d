package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// Close and StepDown of a runner return, also when called from its hooks, observers and health
// checks.
func TestRunnerIsEndedFromItsOwnCallbacks(t *testing.T) {
	run := func(name string, opts func(end func()) []holdfast.RunnerOption, end func(r *holdfast.LeaderAwareRunner),
		faults func(string, int, holdfast.Lease) locktest.Fault, work locktest.Task) {
		locktest.Bubble(t, name, func(t *testing.T) {
			store := memory.NewStore()
			c := locktest.FaultyClient(t, store.Locker(), faults)
			var r *holdfast.LeaderAwareRunner
			var once sync.Once
			took := time.Duration(-1)
			r = locktest.NewRunner(t, c, opts(func() {
				once.Do(func() { start := time.Now(); end(r); took = time.Since(start) })
			})...)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			_ = r.Run(ctx, work)
			synctest.Wait()
			if took < 0 || took > time.Minute {
				t.Errorf("took %v", took)
			}
		})
	}
	health := func(end func()) []holdfast.RunnerOption {
		return []holdfast.RunnerOption{holdfast.WithHealthCheck(time.Second, func(ctx context.Context) error {
			if _, leading := holdfast.TokenFromContext(ctx); leading {
				end()
			}
			return nil
		})}
	}
	campaigning := func(end func()) []holdfast.RunnerOption {
		return []holdfast.RunnerOption{holdfast.WithHealthCheck(time.Second, func(context.Context) error { end(); return nil })}
	}
	observer := func(end func()) []holdfast.RunnerOption {
		return []holdfast.RunnerOption{holdfast.WithObserver(func(holdfast.Event) { end() })}
	}
	hook := func(end func()) []holdfast.RunnerOption {
		return []holdfast.RunnerOption{holdfast.WithOverrunHook(func(holdfast.Event) { end() })}
	}
	stop := func(r *holdfast.LeaderAwareRunner) { _ = r.Close(context.Background()) }
	down := func(r *holdfast.LeaderAwareRunner) { _ = r.StepDown(context.Background()) }
	slow := func(ctx context.Context) error { <-ctx.Done(); time.Sleep(30 * time.Second); return nil }
	run("Close, health check while leading", health, stop, nil, locktest.LeadUntilCanceled)
	run("Close, health check while campaigning", campaigning, stop, nil, locktest.LeadUntilCanceled)
	run("Close, observer", observer, stop, nil, locktest.LeadUntilCanceled)
	run("Close, overrun hook", hook, stop, locktest.Refuse(locktest.OpRenew), slow)
	run("StepDown, health check", health, down, nil, locktest.LeadUntilCanceled)
	run("StepDown, observer", observer, down, nil, locktest.LeadUntilCanceled)
	run("StepDown, overrun hook", hook, down, locktest.Refuse(locktest.OpRenew), slow)
}

// Shutdown while many locks are acquired, in real time and many times: a hold that Shutdown
// releases before the Renewer has it does not disturb the renewal of others.
func TestShutdownWhileAcquiring(t *testing.T) {
	for round := range 60 {
		var mu sync.Mutex
		renewed := map[string]bool{}
		released := map[string]bool{}
		store := memory.NewStore()
		f := locktest.NewFaulty(t, store.Locker(), nil)
		f.Faults = func(op string, _ int, l holdfast.Lease) locktest.Fault {
			mu.Lock()
			defer mu.Unlock()
			switch op {
			case locktest.OpRelease:
				released[l.Name] = true
			case locktest.OpRenew:
				if released[l.Name] {
					renewed[l.Name] = true
				}
			}
			return locktest.Fault{}
		}
		var lost locktest.Events
		c, err := holdfast.New(f, holdfast.WithLogger(slog.New(slog.DiscardHandler)), holdfast.WithObserver(lost.Observe))
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() { _, _ = c.TryLock(context.Background(), fmt.Sprint(i)) })
		}
		time.Sleep(time.Duration(round%30) * 20 * time.Microsecond)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		if err := c.Shutdown(ctx); err != nil {
			t.Errorf("round %d: Shutdown: %v", round, err)
		}
		cancel()
		wg.Wait()
		if n := lost.Count(holdfast.EventLost); n > 0 {
			t.Fatalf("round %d: %d lost", round, n)
		}
	}
}

// Shutdown waits for the cleanup of a TryLock that it interrupts.
func TestShutdownCleansUpAfterTryLock(t *testing.T) {
	for round := range 40 {
		store := memory.NewStore()
		under := store.Locker()
		const n = 300
		var inside sync.WaitGroup
		inside.Add(n)
		c, err := holdfast.New(locktest.Scripted{Locker: under, OnAcquire: func(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
			_, _ = under.TryAcquire(ctx, req) // applied, but not answered before Shutdown
			inside.Done()
			<-ctx.Done()
			return holdfast.Lease{}, ctx.Err()
		}}, holdfast.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() { _, _ = c.TryLock(context.Background(), fmt.Sprint(i)) })
		}
		inside.Wait()
		if err := c.Shutdown(context.Background()); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		left := 0
		for i := range n {
			if locktest.IsHeld(t, store, fmt.Sprint(i)) {
				left++
			}
		}
		if left > 0 {
			t.Fatalf("round %d: Shutdown returned nil and left %d locks held", round, left)
		}
	}
}

// The error of Shutdown says what has not returned, also if no lock is held.
func TestShutdownErrorDescribesWhatIsLeft(t *testing.T) {
	wait := func(t *testing.T, c *holdfast.Client) {
		go func() { _, _ = c.Lock(context.Background(), "job") }()
		time.Sleep(7 * time.Second) // the first poll is made
	}
	const call = "a call to the backend has not returned: "
	for op, test := range map[string]struct {
		held bool // by another process
		use  func(t *testing.T, c *holdfast.Client)
		want string
	}{
		locktest.OpAcquire: {false, wait, call},
		locktest.OpInspect: {true, wait, call},
		locktest.OpRenew: {false, func(t *testing.T, c *holdfast.Client) {
			h := locktest.MustLock(t, c, "job")
			time.Sleep(11 * time.Second)
			locktest.Release(t, h)
		}, "a renewal "},
	} {
		locktest.Bubble(t, op, func(t *testing.T) {
			store := memory.NewStore()
			if test.held {
				locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
			}
			f := locktest.NewFaulty(t, store.Locker(), locktest.Each(op, locktest.Fault{Delay: time.Hour, IgnoreContext: true}))
			c := locktest.NewClient(t, f, holdfast.WithPollInterval(5*time.Second))
			test.use(t, c)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			start := time.Now()
			err := c.Shutdown(ctx)
			if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "holdfast: shutdown: "+test.want) ||
				time.Since(start) != 10*time.Second || f.Count(op) != 1 {
				t.Errorf("Shutdown took %v, with %d calls: %v", time.Since(start), f.Count(op), err)
			}
		})
	}
}

func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		other := locktest.NewClient(t, store.Locker())
		locktest.MustLock(t, other, "taken")
		c := locktest.NewClient(t, store.Locker())
		raw := locktest.MustLock(t, c, "raw")
		waited := make(chan error, 2)
		for _, name := range []string{"raw", "taken"} { // queued behind this process's own hold, and waiting for another's
			go func() { _, err := c.Lock(t.Context(), name); waited <- err }()
		}
		did := make(chan error, 1)
		stopped := false
		go func() {
			did <- c.Do(t.Context(), "did", func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(time.Minute) // renewed until it returns
				stopped = true
				return context.Cause(ctx)
			})
		}()
		time.Sleep(time.Second)
		if err := c.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if !stopped {
			t.Error("Shutdown did not wait for the function of Do")
		}
		for range 2 {
			if err := <-waited; !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("a waiter: %v", err)
			}
		}
		if err := <-did; !errors.Is(err, holdfast.ErrClosed) || errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Do: %v", err)
		}
		if !errors.Is(raw.Err(), holdfast.ErrClosed) {
			t.Errorf("Err: %v", raw.Err())
		}
		for _, name := range []string{"raw", "did"} {
			if locktest.IsHeld(t, store, name) {
				t.Errorf("%q is still held", name)
			}
		}
		if err := raw.Release(t.Context()); err != nil {
			t.Errorf("Release after Shutdown: %v", err)
		}
		if _, err := c.Lock(t.Context(), "x"); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Lock: %v", err)
		}
		if _, err := c.TryLock(t.Context(), "x"); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("TryLock: %v", err)
		}
		if err := c.Do(t.Context(), "x", func(context.Context) error { return nil }); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Do: %v", err)
		}
		if err := c.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown again: %v", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for range 20 { // a context that has ended does not hide the result
			if err := c.Shutdown(ended); err != nil {
				t.Fatalf("Shutdown again by an ended context: %v", err)
			}
		}
	})
}

// A Shutdown whose context has ended is no failure if nothing is left. It is one while a call of the hook lasts.
func TestShutdownWithAnEndedContextAndNothingLeft(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			block := make(chan struct{})
			c := locktest.FaultyClient(t, memory.New(), locktest.Each(locktest.OpRenew, locktest.Fault{Hang: true}),
				holdfast.WithHook(badHook{do: func(method string) context.Context {
					if hangs && method == "Overrun" {
						<-block
					}
					return nil
				}}))
			h := locktest.MustLock(t, c, "job")
			time.Sleep(time.Minute) // the lease is lost, and an overrun reported
			locktest.Release(t, h)
			synctest.Wait()
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			start := time.Now()
			err := c.Shutdown(ended)
			named := err != nil && errors.Is(err, context.Canceled) && strings.Contains(err.Error(), "telemetry.Hook has not returned")
			if hangs != named || !hangs && err != nil || time.Since(start) > 100*time.Millisecond {
				t.Errorf("a call of the hook lasts: %v; after %v: %v", hangs, time.Since(start), err)
			}
			close(block)
		})
	}
}

func TestShutdownThatRunsOutOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		under := store.Locker()
		f := locktest.NewFaulty(t, under, locktest.Each(locktest.OpRelease, locktest.Fault{Hang: true}))
		c := locktest.NewClient(t, f)
		locktest.MustLock(t, c, "job")
		block := make(chan struct{})
		done := make(chan error)
		go func() { done <- c.Do(t.Context(), "stuck", func(context.Context) error { <-block; return nil }) }()
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		start := time.Now()
		err := c.Shutdown(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "stuck") {
			t.Errorf("Shutdown: %v", err)
		}
		if d := time.Since(start); d > 25*time.Second {
			t.Errorf("Shutdown took %v", d)
		}
		if _, err := under.Inspect(t.Context(), "job"); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Shutdown gave up and did not close the Locker: %v", err)
		}
		renewals := f.Count(locktest.OpRenew)
		time.Sleep(31 * time.Second)
		if f.Count(locktest.OpRenew) != renewals || locktest.IsHeld(t, store, "stuck") || locktest.IsHeld(t, store, "job") {
			t.Error("what was left to expire is still renewed")
		}
		close(block)
		if err := <-done; !errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Do: %v", err)
		}
	})
}

// A caller that is canceled, or whose Client is shut down, returns soon whatever it waits for, and
// no lock stays held for longer than a TTL.
func TestCancellationAtEveryWait(t *testing.T) {
	faults := map[string]locktest.Fault{
		"slow": {Delay: 300 * time.Millisecond}, "refused": {Refuse: locktest.ErrInjected}, "lost": {Lose: locktest.ErrInjected},
		"late": {Late: 3 * time.Second},
	}
	for name, ft := range faults {
		for _, shut := range []bool{false, true} {
			for at := time.Duration(0); at < 12*time.Second; at += 137 * time.Millisecond {
				synctest.Test(t, func(t *testing.T) {
					store := memory.NewStore()
					check := locktest.NewExclusive(t)
					holder := locktest.NewClient(t, store.Locker())
					first := locktest.MustLock(t, holder, "job")
					check.Enter(first.Context(), "job", first.Token())
					time.AfterFunc(2*time.Second, func() { _ = first.Release(context.Background()) })
					c := locktest.FaultyClient(t, store.Locker(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
						if n%3 == 1 {
							return ft
						}
						return locktest.Fault{Delay: 50 * time.Millisecond}
					}, holdfast.WithTTL(6*time.Second))
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					time.AfterFunc(at, func() {
						if shut {
							_ = c.Shutdown(context.Background())
						} else {
							cancel()
						}
					})
					start := time.Now()
					err := c.Do(ctx, "job", func(ctx context.Context) error {
						token, _ := holdfast.TokenFromContext(ctx)
						check.Enter(ctx, "job", token)
						<-ctx.Done()
						return ctx.Err()
					})
					if d := time.Since(start) - at; d > 7*time.Second {
						t.Errorf("%s at %v, shutdown %v: returned %v later", name, at, shut, d)
					}
					if shut != errors.Is(err, holdfast.ErrClosed) && !errors.Is(err, context.Canceled) {
						t.Errorf("%s at %v: %v", name, at, err)
					}
					time.Sleep(9 * time.Second) // a late request, and the longest backoff of a cleanup
					next := locktest.NewClient(t, store.Locker())
					h, err := next.TryLock(t.Context(), "job")
					if err != nil {
						t.Errorf("%s at %v, shutdown %v: still held: %v", name, at, shut, err)
						return
					}
					check.Enter(h.Context(), "job", h.Token())
				})
			}
		}
	}
}

// Shutdown limits how many releases are under way at once.
func TestShutdownLimitsItsReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		counted := locktest.NewCallGauge(locktest.NewFaulty(t, store.Locker(),
			locktest.Each(locktest.OpRelease, locktest.Fault{Delay: 5 * time.Millisecond})), 0)
		c := locktest.NewClient(t, counted)
		for i := range 2000 {
			locktest.MustLock(t, c, fmt.Sprint(i))
		}
		locktest.ShutDown(t, c)
		if n := counted.Highest(driver.MethodRelease); n > 64 {
			t.Errorf("%d releases at once", n)
		}
		for i := range 2000 {
			if locktest.IsHeld(t, store, fmt.Sprint(i)) {
				t.Fatalf("lock %d is left held", i)
			}
		}
	})
}
