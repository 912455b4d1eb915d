package lockertest

import (
	"cmp"
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/driver"
)

// guarded runs functions before and after each call that takes a context, of a batch for each lock. before
// may replace the context or refuse the call. after may replace the error, but not those of a list.
func guarded(l driver.Locker, before func(ctx context.Context, name string) (context.Context, error),
	after func(name, id string, err error) error) driver.Locker {
	return driver.Intercept(l, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
		do := func(name, id string, call driver.Call) driver.Answer {
			ctx, err := before(ctx, name)
			a := driver.Answer{Err: err, Records: []driver.Record{{}}}
			if err == nil {
				a = next(ctx, call)
			}
			if len(a.Errs) > 0 {
				a.Err = a.Errs[0]
			}
			a.Err = after(name, id, a.Err)
			return a
		}
		var all driver.Answer
		switch call.Method {
		case driver.MethodWake, driver.MethodClose:
			return next(ctx, call)
		case driver.MethodList:
			if ctx, all.Err = before(ctx, call.Name); all.Err == nil {
				all = next(ctx, call)
			}
			return all
		case driver.MethodRenewBatch, driver.MethodReleaseBatch:
			all.Leases = call.Leases
			for _, l := range call.Leases {
				a := do(l.Name, l.ID.Reveal(), driver.Call{Method: call.Method, Leases: []driver.Lease{l}})
				all.Errs = append(all.Errs, a.Err)
			}
			return all
		case driver.MethodInspectBatch:
			for _, name := range call.Names {
				a := do(name, "", driver.Call{Method: call.Method, Waiter: call.Waiter, Names: []string{name}})
				all.Errs, all.Records = append(all.Errs, a.Err), append(all.Records, a.Records...)
			}
			return all
		}
		if call.Method == driver.MethodLeave {
			for _, name := range call.Names {
				all.Err = cmp.Or(all.Err, do(name, "", driver.Call{Method: call.Method, Waiter: call.Waiter, Names: []string{name}}).Err)
			}
			if op := (*driver.OpError)(nil); errors.As(all.Err, &op) {
				op.Name = "" // it is about several names
			}
			return all
		}
		of := call.Concerned()
		return do(of.Name, of.ID.Reveal(), call)
	})
}

// guard runs before in front of every method of a Locker and its capabilities.
func guard(f *faulty, before func(context.Context, string) (context.Context, error)) {
	f.Locker = guarded(f.Locker, before, func(_, _ string, err error) error { return err })
}

// fails makes a fault of the errors: change replaces each error.
func fails(change func(name, id string, err error) error) func(*fixture, *faulty) {
	return func(_ *fixture, f *faulty) {
		f.Locker = guarded(f.Locker, func(ctx context.Context, _ string) (context.Context, error) { return ctx, nil },
			func(name, id string, err error) error {
				if err != nil {
					return change(name, id, err)
				}
				return nil
			})
	}
}

// stallable makes a Locker without faults, whose store can be made to hang, and to refuse calls.
func stallable(w *fixture, f *faulty) {
	guard(f, func(ctx context.Context, name string) (context.Context, error) {
		return ctx, cmp.Or(w.wait(ctx, name), w.refusal(name))
	})
}
