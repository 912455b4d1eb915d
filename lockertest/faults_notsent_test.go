package lockertest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// notSentFaults are of drivers that say of a request that was sent that it was not.
func notSentFaults() []fault {
	unsent := func(name string, err error) error {
		return &driver.OpError{Op: "try", Backend: "memory", Name: name, Err: err, NotSent: true}
	}
	return []fault{
		{
			name: "a request whose answer is lost counts as not sent", says: "another request for that lock then got error",
			caught: []string{"not sent/fail-over", "not sent/context ends", "not sent/hanging backend"},
			make: func(w *fixture, f *faulty) {
				f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > 2*time.Second { // it is the suite that wants the lock
						return f.Locker.TryAcquire(ctx, req)
					}
					if _, err := f.Locker.TryAcquire(w.ctx, req); err != nil {
						return driver.Lease{}, err
					}
					return driver.Lease{}, unsent(req.Name, errors.New("connection reset"))
				}
			},
		},
		{
			name: "a request without an answer in time counts as not sent", says: "a little later the lock is held",
			caught: []string{"not sent/hanging backend", "not sent/context ends"},
			make: func(w *fixture, f *faulty) {
				f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > 2*time.Second {
						return f.Locker.TryAcquire(ctx, req)
					}
					<-ctx.Done()
					time.AfterFunc(50*time.Millisecond, func() { _, _ = w.plain.TryAcquire(w.ctx, req) })
					return driver.Lease{}, unsent(req.Name, ctx.Err())
				}
			},
		},
	}
}
