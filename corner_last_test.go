package holdfast_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

type panicking struct{ slog.Handler }

func (panicking) Enabled(context.Context, slog.Level) bool  { return true }
func (panicking) Handle(context.Context, slog.Record) error { panic("handler") }

// A log handler that panics is an observer that panics: it must not end the program.
func TestCorner_PanickingLogHandler(t *testing.T) {
	const mark = "HOLDFAST_TEST_PANIC"
	if os.Getenv(mark) != "" {
		c, err := holdfast.New(memory.New(), holdfast.WithLogger(slog.New(panicking{slog.DiscardHandler})))
		if err != nil {
			t.Fatal(err)
		}
		mustLock(t, c, "job")
		_ = c.Shutdown(t.Context())
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCorner_PanickingLogHandler$")
	cmd.Env = append(os.Environ(), mark+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the program ended: %v\n%.300s", err, out)
	}
}

// Shutdown by Do's own function with its own context, as on SIGTERM in the function.
func TestCorner_ShutdownWithOwnContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := newClient(t, store.Locker())
		var shut error
		_ = c.Do(t.Context(), "job", func(ctx context.Context) error { shut = c.Shutdown(ctx); return nil })
		time.Sleep(time.Second)
		if isHeld(t, store, "job") {
			t.Errorf("the function has returned, and the lock is left to expire (Shutdown: %v)", shut)
		}
	})
}

// Do for a name from within Do for that name waits for itself.
func TestCorner_Reentry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, memory.New())
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		_ = c.Do(ctx, "job", func(ctx context.Context) error {
			return c.Do(ctx, "job", func(context.Context) error { return nil })
		})
		if d := time.Since(start); d >= time.Hour {
			t.Errorf("waited %v for itself", d)
		}
	})
}

// ErrHeld without a record is an outcome that is known: nothing to clean up or to warn of.
func TestCorner_BareErrHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		f := newFaulty(t, memory.New(), func(op string, _ int, _ holdfast.Lease) fault {
			return map[string]fault{opAcquire: {refuse: &driver.OpError{Op: "acquire", Backend: "x", Name: "job", Err: holdfast.ErrHeld}}}[op]
		})
		c := newClient(t, f, holdfast.WithObserver(seen.observe))
		if _, err := c.TryLock(t.Context(), "job"); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("err = %v", err)
		}
		time.Sleep(time.Minute)
		if f.count(opRelease) > 0 || seen.count(holdfast.EventError) > 0 {
			t.Errorf("%d releases, told %v", f.count(opRelease), seen.types())
		}
	})
}

// Held: ending a runner or a hold from hooks, observers and health checks does not hang.
func TestCorner_EndFromWithin(t *testing.T) {
	run := func(name string, opts func(end func()) []holdfast.RunnerOption, end func(r *holdfast.LeaderAwareRunner), faults func(string, int, holdfast.Lease) fault, work task) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.NewStore()
				c := newClient(t, newFaulty(t, store.Locker(), faults))
				var r *holdfast.LeaderAwareRunner
				var once sync.Once
				took := time.Duration(-1)
				r = newRunner(t, c, opts(func() {
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
	run("Close, health check while leading", health, stop, nil, untilEnd)
	run("Close, health check while campaigning", campaigning, stop, nil, untilEnd)
	run("Close, observer", observer, stop, nil, untilEnd)
	run("Close, overrun hook", hook, stop, refuse(opRenew), slow)
	run("StepDown, health check", health, down, nil, untilEnd)
	run("StepDown, observer", observer, down, nil, untilEnd)
	run("StepDown, overrun hook", hook, down, refuse(opRenew), slow)
}
