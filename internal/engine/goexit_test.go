package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/leases"
	"github.com/holdfast-go/holdfast/partitions"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// goexits is one function that a program gives, which ends its goroutine each time, as t.FailNow does.
type goexits struct {
	options func(exit func()) []holdfast.ClientOption
	// use runs on a goroutine of its own; nil does nothing.
	use func(ctx context.Context, t *testing.T, c *holdfast.Client, exit func())

	unseen bool // nothing can be logged, or the goroutine is the caller's own
	kept   bool // the lease of "job" is kept
}

func exitTask(exit func()) func(context.Context) error {
	return func(context.Context) error { exit(); return nil }
}

// goexitTable has all functions that programs give, but those of drivers.
var goexitTable = map[string]goexits{
	"Do": {use: func(ctx context.Context, _ *testing.T, c *holdfast.Client, exit func()) {
		_ = c.Do(ctx, "job", exitTask(exit))
	}},
	"TryDo": {use: func(ctx context.Context, _ *testing.T, c *holdfast.Client, exit func()) {
		_ = c.TryDo(ctx, "job", exitTask(exit))
	}},
	"DoAll": {use: func(ctx context.Context, _ *testing.T, c *holdfast.Client, exit func()) {
		_ = c.DoAll(ctx, []string{"job", "job 2"}, exitTask(exit))
	}},
	"UpdateData": {unseen: true, use: func(_ context.Context, t *testing.T, c *holdfast.Client, exit func()) {
		h := locktest.MustLock(t, c, "job")
		defer func() { _ = h.Release(t.Context()) }()
		defer func() { _ = h.WriteData(t.Context(), []byte("it can be written again")) }()
		_ = h.UpdateData(t.Context(), func([]byte) ([]byte, error) { exit(); return nil, nil })
	}},
	"Run": {use: func(ctx context.Context, t *testing.T, c *holdfast.Client, exit func()) {
		_ = locktest.NewRunner(t, c).Run(ctx, exitTask(exit))
	}},
	"Run that restarts": {use: func(ctx context.Context, t *testing.T, c *holdfast.Client, exit func()) {
		r := locktest.NewRunner(t, c, holdfast.WithRestart(holdfast.Backoff{Initial: time.Second, Max: time.Minute}))
		_ = r.Run(ctx, exitTask(exit))
	}},
	"RunTaskOnLeader": {use: func(ctx context.Context, t *testing.T, c *holdfast.Client, exit func()) {
		_, _ = locktest.NewRunner(t, c).RunTaskOnLeader(ctx, exitTask(exit))
	}},
	"health check": {use: func(ctx context.Context, t *testing.T, c *holdfast.Client, exit func()) {
		_ = locktest.NewRunner(t, c, holdfast.WithHealthCheck(time.Minute, exitTask(exit))).Run(ctx, exitTask(exit))
	}},
	"LeaseManager": {kept: true, use: func(ctx context.Context, t *testing.T, c *holdfast.Client, exit func()) {
		m := locktest.NewManager(t, c, leases.WithFunc(func(context.Context, string) error { exit(); return nil }))
		locktest.MustAdd(t, m, "job")
		<-ctx.Done()
	}},
	"Partitions": {use: func(ctx context.Context, t *testing.T, c *holdfast.Client, exit func()) {
		p, err := partitions.New(c, "job", 1, func(context.Context, int) error { exit(); return nil })
		if err != nil {
			t.Error(err)
			return
		}
		_ = p.Run(ctx)
	}},
	"observer": {options: func(exit func()) []holdfast.ClientOption {
		return []holdfast.ClientOption{holdfast.WithObserver(func(holdfast.Event) { exit() })}
	}, use: acquireAndRelease},
	"overrun hook": {options: func(exit func()) []holdfast.ClientOption {
		return []holdfast.ClientOption{holdfast.WithOverrunHook(func(holdfast.Event) { exit() })}
	}},
	"telemetry hook": {options: func(exit func()) []holdfast.ClientOption {
		return []holdfast.ClientOption{holdfast.WithHook(goexitHook{exit: exit})}
	}, use: acquireAndRelease},
	"log handler": {unseen: true, options: func(exit func()) []holdfast.ClientOption {
		return []holdfast.ClientOption{holdfast.WithLogger(slog.New(goexitHandler{slog.DiscardHandler, exit}))}
	}, use: acquireAndRelease},
	"log handler, called for a hook": {unseen: true, options: func(exit func()) []holdfast.ClientOption {
		return []holdfast.ClientOption{holdfast.WithLogger(slog.New(goexitHandler{slog.DiscardHandler, exit})),
			holdfast.WithHook(goexitHook{exit: func() { panic("hook") }})}
	}, use: acquireAndRelease},
}

func acquireAndRelease(_ context.Context, t *testing.T, c *holdfast.Client, _ func()) {
	_ = locktest.MustLock(t, c, "job").Release(t.Context())
}

// A function of the program that ends its goroutine, however often, is logged and is not called again at once. It
// costs no lock its renewal or its loss, and Shutdown returns.
func TestFunctionsMayEndTheirGoroutine(t *testing.T) {
	for name, test := range goexitTable {
		locktest.Bubble(t, name, func(t *testing.T) {
			store := memory.NewStore()
			var calls atomic.Int64
			exit := func() {
				if calls.Add(1) > 1000 {
					time.Sleep(time.Hour) // so that a loop without a backoff ends
				}
				runtime.Goexit()
			}
			logger, log := locktest.NewLog()
			opts := []holdfast.ClientOption{holdfast.WithLogger(logger)}
			if test.options != nil {
				opts = append(opts, test.options(exit)...)
			}
			c := locktest.FaultyClient(t, store.Locker(),
				locktest.Named(locktest.OpRenew, "lost", locktest.Fault{Refuse: locktest.ErrInjected}), opts...)
			kept, lost := locktest.MustLock(t, c, "kept"), locktest.MustLock(t, c, "lost")
			ctx, cancel := context.WithCancel(t.Context())
			var using sync.WaitGroup
			if test.use != nil {
				using.Go(func() { test.use(ctx, t, c, exit) })
			}
			time.Sleep(10 * time.Minute)
			if n := calls.Load(); n < 1 || n > 200 { // a hook is called for each renewal
				t.Errorf("called %d times in 10 minutes", n)
			}
			if held := locktest.IsHeld(t, store, "job"); held != test.kept {
				t.Errorf("held: %v", held)
			}
			if seen := strings.Contains(log.String(), "ended its goroutine"); seen == test.unseen {
				t.Errorf("logged: %v\n%s", seen, log.String())
			}
			if kept.Err() != nil || lost.Context().Err() == nil {
				t.Errorf("another lock is not renewed: %v; the context after a loss: %v", kept.Err(), lost.Context().Err())
			}
			cancel()
			using.Wait()
			_, _ = kept.Release(t.Context()), lost.Release(t.Context())
			locktest.ShutDown(t, c)
			if locktest.IsHeld(t, store, "job") || locktest.IsHeld(t, store, "kept") {
				t.Error("still held")
			}
		})
	}
}

// A function that panics on a goroutine of the library ends the program. Its lease is released before, and the program's
// output shows where it panicked.
func TestPanicOfAFunctionReleasesItsLease(t *testing.T) {
	const mark = "HOLDFAST_TEST_FUNCTION_PANIC"
	if what := os.Getenv(mark); what != "" {
		locker := driver.Intercept(memory.New(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			answer := next(ctx, call)
			if call.Method == driver.MethodRelease || call.Method == driver.MethodReleaseBatch {
				fmt.Println("released")
			}
			return answer
		})
		c := locktest.NewClient(t, locker)
		if what == "LeaseManager" {
			locktest.MustAdd(t, locktest.NewManager(t, c, leases.WithFunc(func(context.Context, string) error { panicHere(); return nil })), "job")
		} else if p, err := partitions.New(c, "group", 1, func(context.Context, int) error { panicHere(); return nil }); err == nil {
			go func() { _ = p.Run(t.Context()) }()
		}
		time.Sleep(time.Minute)
		return
	}
	for _, what := range []string{"LeaseManager", "Partitions"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), mark+"="+what)
		out, err := cmd.CombinedOutput()
		if text := string(out); err == nil || !strings.Contains(text, "released\n") || !strings.Contains(text, "panic: boom") ||
			!strings.Contains(text, "panicHere") {
			t.Errorf("%s: %v\n%s", what, err, text)
		}
	}
}

func panicHere() { panic("boom") }

// A function that ends its goroutine when its hold has ended is not called again.
func TestFunctionEndsItsGoroutineAfterItsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		c := locktest.NewClient(t, store.Locker())
		var calls atomic.Int64
		m := locktest.NewManager(t, c, leases.WithFunc(func(ctx context.Context, _ string) error {
			calls.Add(1)
			<-ctx.Done()
			runtime.Goexit()
			return nil
		}))
		locktest.MustAdd(t, m, "job")
		time.Sleep(time.Minute)
		if err := m.Remove(t.Context(), "job"); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if n := calls.Load(); n != 1 || locktest.IsHeld(t, store, "job") {
			t.Errorf("%d calls, held: %v", n, locktest.IsHeld(t, store, "job"))
		}
	})
}

// goexitHook ends the goroutine of every call.
type goexitHook struct {
	telemetry.Ignore
	exit func()
}

func (h goexitHook) Begin(ctx context.Context, _ telemetry.Operation) context.Context {
	h.exit()
	return ctx
}
func (h goexitHook) Lost(context.Context, telemetry.Operation, time.Duration, error) { h.exit() }

// goexitHandler is a log handler that ends the goroutine of every call.
type goexitHandler struct {
	slog.Handler
	exit func()
}

func (goexitHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h goexitHandler) Handle(context.Context, slog.Record) error { h.exit(); return nil }
