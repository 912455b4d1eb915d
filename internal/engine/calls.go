package engine

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
)

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
