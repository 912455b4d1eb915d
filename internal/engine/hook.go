package engine

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/internal/event"
)

// guardedHook keeps the rules of a program's hook: a panic is logged and ends there, as does runtime.Goexit, so that
// it does not end a renewal, and a call that takes longer than slowHook is logged, since renewals wait for it. It does
// not embed telemetry.Ignore: a method that it does not forward must not compile.
type guardedHook struct {
	hook     telemetry.Hook
	logger   *slog.Logger
	now      func() time.Duration
	logged   atomic.Int64 // when a broken rule was last logged, or 0
	calls    atomic.Int64 // under way
	returned atomic.Int64 // calls that are not any more
}

const (
	slowHook        = time.Second
	hookLogInterval = time.Minute // between two messages: a hook is called for every operation
)

// guardHook returns a hook that keeps the rules; nil for nil.
func guardHook(hook telemetry.Hook, logger *slog.Logger, now func() time.Duration) telemetry.Hook {
	if hook == nil {
		return nil
	}
	return &guardedHook{hook: hook, logger: logger, now: now}
}

// call calls a method of the hook.
func (g *guardedHook) call(method string, fn func()) {
	g.begin(method, func() context.Context { fn(); return nil })
}

// begin calls a method of the hook that returns a context, and returns nil after a panic. The call has a goroutine
// of its own, because the hook may end that: the caller's renews all leases, or releases one.
func (g *guardedHook) begin(method string, fn func() context.Context) context.Context {
	g.calls.Add(1)
	defer func() {
		g.returned.Add(1)
		g.calls.Add(-1)
	}()
	var made context.Context
	done := make(chan struct{})
	go func() {
		defer close(done)                         // after a broken rule was logged: the program may close its log after Shutdown
		g.guarded(method, func() { made = fn() }) //nolint:fatcontext // of one call
	}()
	<-done
	return made
}

// stands waits until a call has been under way for a time in which none has returned, and then reports true. It reports false
// when ctx ends.
func (g *guardedHook) stands(ctx context.Context, long time.Duration) bool {
	const steps = 5
	ticks := time.NewTicker(long / steps)
	defer ticks.Stop()
	returned := g.returned.Load()
	for n := 0; n < steps; n++ {
		select {
		case <-ctx.Done():
			return false
		case <-ticks.C:
		}
		if now := g.returned.Load(); now != returned || g.calls.Load() == 0 {
			n, returned = -1, now
		}
	}
	return true
}

// guarded calls a method of the hook and logs a broken rule.
func (g *guardedHook) guarded(method string, fn func()) {
	start := g.now()
	event.CallUser(func() error { fn(); return nil }, func(r event.Result) {
		took := g.now() - start
		switch {
		case r.Panic != nil:
			g.log("holdfast: a telemetry hook panicked", method, slog.Any("panic", r.Panic))
		case r.Goexit:
			g.log("holdfast: a telemetry hook ended its goroutine", method, slog.Any("error", r.Err))
		case took > slowHook:
			g.log("holdfast: a telemetry hook is slow, and renewals wait for it", method, slog.Duration("took", took))
		}
	})
}

// log logs that the hook breaks a rule, now and then.
func (g *guardedHook) log(message, method string, attr slog.Attr) {
	last, now := g.logged.Load(), int64(max(g.now(), 1))
	if last != 0 && now-last < int64(hookLogInterval) || !g.logged.CompareAndSwap(last, now) {
		return
	}
	defer func() { _ = recover() }() // the logger itself may panic
	g.logger.LogAttrs(context.Background(), slog.LevelError, message, slog.String("method", method), attr)
}

// Begin implements [telemetry.Hook].
func (g *guardedHook) Begin(ctx context.Context, op telemetry.Operation) context.Context {
	if made := g.begin("Begin", func() context.Context { return g.hook.Begin(ctx, op) }); made != nil {
		return made
	}
	return ctx
}

// End implements [telemetry.Hook].
func (g *guardedHook) End(ctx context.Context, op telemetry.Operation, took time.Duration, err error) {
	g.call("End", func() { g.hook.End(ctx, op, took, err) })
}

// Lost implements [telemetry.Hook].
func (g *guardedHook) Lost(ctx context.Context, op telemetry.Operation, held time.Duration, cause error) {
	g.call("Lost", func() { g.hook.Lost(ctx, op, held, cause) })
}

// Overrun implements [telemetry.Hook].
func (g *guardedHook) Overrun(ctx context.Context, op telemetry.Operation) {
	g.call("Overrun", func() { g.hook.Overrun(ctx, op) })
}

// Renewed implements [telemetry.Hook].
func (g *guardedHook) Renewed(ctx context.Context, op telemetry.Operation, left time.Duration) {
	g.call("Renewed", func() { g.hook.Renewed(ctx, op, left) })
}

// Dropped implements [telemetry.Hook].
func (g *guardedHook) Dropped() { g.call("Dropped", g.hook.Dropped) }

// measuredMethods has what a hook calls the methods whose calls are reported.
var measuredMethods = map[driver.Method]string{
	driver.MethodTryAcquire: "acquire",
	driver.MethodRenew:      "renew", driver.MethodRenewBatch: "renew", driver.MethodRelease: "release", driver.MethodReleaseBatch: "release",
	driver.MethodInspect: "inspect", driver.MethodInspectBatch: "inspect",
	driver.MethodBreak: "break", driver.MethodBreakNow: "break_now",
	driver.MethodReadData: "read_data", driver.MethodWriteData: "write_data",
}

// measureCalls returns a Locker that reports its calls. A Client without a hook has none, so its calls cost
// nothing.
func measureCalls(l driver.Locker, hook telemetry.Hook, now func() time.Duration) driver.Locker {
	if hook == nil {
		return l
	}
	backend := l.Info().Backend
	return driver.Intercept(l, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
		method := measuredMethods[call.Method]
		if method == "" {
			return next(ctx, call)
		}
		op := telemetry.Operation{Kind: telemetry.Call, Name: call.Concerned().Name, Backend: backend, Method: method, Locks: 1}
		if call.Leases != nil || call.Names != nil {
			op.Locks = len(call.Leases) + len(call.Names)
		}
		ctx = hook.Begin(ctx, op)
		start, err := now(), errPanicked
		defer func() { hook.End(ctx, op, now()-start, err) }()
		a := next(ctx, call)
		if err = a.Err; err == nil {
			err = worst(a.Errs)
		}
		return a
	})
}

// worst returns the error of a call that has one for each lock: a failure rather than a definite answer.
func worst(errs []error) (worst error) {
	for _, err := range errs {
		if !driver.OutcomeKnown(err) {
			return err
		}
		if worst == nil {
			worst = err
		}
	}
	return worst
}
