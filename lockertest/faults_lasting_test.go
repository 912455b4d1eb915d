package lockertest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// refuses makes a fault of calls about a lock that the store refuses. answer is what such a call returns instead, and plain is
// the Locker of a store that refuses nothing.
func refuses(answer func(w *fixture, plain driver.Locker, call driver.Call, refusal error) driver.Answer) func(*fixture, *faulty) {
	return func(w *fixture, f *faulty) {
		plain := f.Locker
		stallable(w, f)
		f.Locker = driver.Intercept(f.Locker, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			name := call.Concerned().Name
			if len(call.Names) > 0 {
				name = call.Names[0]
			}
			if refusal := w.refusal(name); refusal != nil {
				if a := answer(w, plain, call, refusal); a.Err != nil || a.Lease != (driver.Lease{}) {
					return a
				}
			}
			return next(ctx, call)
		})
	}
}

func lastingFaults() []fault {
	both := []string{"lasting/denied", "lasting/damaged"}
	return []fault{
		{
			name: "a refused renewal counts as a loss", says: "Renew of a lock (held: true)", caught: both,
			make: refuses(func(_ *fixture, _ driver.Locker, call driver.Call, _ error) (a driver.Answer) {
				if call.Method == driver.MethodRenew {
					a.Err = opErr(call.Lease.Name, driver.ErrLost)
				}
				return a
			}),
		},
		{
			name: "a refused request takes the lock", says: "the lock is ", caught: both,
			make: refuses(func(w *fixture, plain driver.Locker, call driver.Call, refusal error) (a driver.Answer) {
				if call.Method == driver.MethodTryAcquire && w.record(call.Request.Name).State == driver.StateFree {
					_, _ = plain.TryAcquire(w.ctx, call.Request)
					a.Err = refusal
				}
				return a
			}),
		},
		{
			name: "a refused request takes a position", says: "which should be granted", caught: both,
			make: refuses(func(w *fixture, plain driver.Locker, call driver.Call, refusal error) (a driver.Answer) {
				if call.Method == driver.MethodTryAcquire && w.record(call.Request.Name).State == driver.StateHeld {
					_, _ = plain.TryAcquire(w.ctx, call.Request)
					a.Err = refusal
				}
				return a
			}),
		},
		{
			name: "a refusal leaves the outcome unknown", says: "got error", caught: both,
			make: refuses(func(_ *fixture, _ driver.Locker, call driver.Call, _ error) (a driver.Answer) {
				if call.Method == driver.MethodTryAcquire {
					a.Err = opErr(call.Request.Name, errors.New("not now"))
				}
				return a
			}),
		},
		{
			name: "a refused request is sent again and again", says: "returned after", caught: both,
			make: refuses(func(_ *fixture, _ driver.Locker, call driver.Call, _ error) (a driver.Answer) {
				if call.Method == driver.MethodTryAcquire {
					time.Sleep(1100 * time.Millisecond) // the suite's patience is a second here
				}
				return a
			}),
		},
		{
			name: "a lock that was refused once stays refused", says: "Inspect of", caught: both,
			make: func(w *fixture, f *faulty) {
				stallable(w, f)
				guard(f, func(ctx context.Context, name string) (context.Context, error) {
					if err := w.refusal(name); err != nil {
						w.note("was refused "+name, err)
					}
					err, _ := w.noted("was refused " + name).(error)
					return ctx, err
				})
			},
		},
		{
			name: "a damaged record counts as a free lock", says: "TryAcquire of a lock (held: true), damaged", caught: both[1:],
			make: refuses(func(w *fixture, plain driver.Locker, call driver.Call, _ error) (a driver.Answer) {
				if call.Method == driver.MethodTryAcquire {
					w.free(call.Request.Name)
					a.Lease, a.Err = plain.TryAcquire(w.ctx, call.Request)
				}
				return a
			}),
		},
		{
			name: "a damaged record is not shown", says: "Inspect of a lock (held: true), damaged", caught: both[1:],
			make: func(w *fixture, f *faulty) {
				stallable(w, f)
				f.inspect = func(_ context.Context, name string) (driver.Record, error) { return w.record(name), nil }
			},
		},
		{
			name: "a record that is refused is not listed", says: "List of a lock (held: true)", caught: both,
			make: func(w *fixture, f *faulty) {
				stallable(w, f)
				f.Locker = driver.Intercept(f.Locker, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
					if call.Method == driver.MethodList && w.refusal(call.Name) != nil {
						return driver.Answer{}
					}
					return next(ctx, call)
				})
			},
		},
		{
			name: "a damaged record fails its batch", says: "beside a damaged record", caught: both[1:],
			make: refuses(func(_ *fixture, _ driver.Locker, call driver.Call, refusal error) (a driver.Answer) {
				if call.Method == driver.MethodInspectBatch {
					a.Err = refusal
				}
				return a
			}),
		},
	}
}
