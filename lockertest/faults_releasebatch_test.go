package lockertest

import (
	"context"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// releasesBatch makes a fault of the BatchReleaser.
func releasesBatch(do func(w *fixture, next driver.Capabilities, ctx context.Context, leases []driver.Lease) []error) func(*fixture,
	*faulty) {
	return replaces(driver.MethodReleaseBatch, func(w *fixture, had driver.Capabilities, ctx context.Context, call driver.Call) driver.Answer {
		return driver.Answer{Errs: do(w, had, ctx, call.Leases)}
	})
}

func releaseBatchFaults() []fault {
	each := func(do func(w *fixture, next driver.Capabilities, ctx context.Context, l driver.Lease) error) func(*fixture, *faulty) {
		return releasesBatch(func(w *fixture, next driver.Capabilities, ctx context.Context, leases []driver.Lease) []error {
			errs := make([]error, len(leases))
			for i, l := range leases {
				errs[i] = do(w, next, ctx, l)
			}
			return errs
		})
	}
	one := func(next driver.Capabilities, ctx context.Context, l driver.Lease) error {
		return next.BatchReleaser.ReleaseBatch(ctx, []driver.Lease{l})[0]
	}
	return []fault{
		{
			name:   "a batch of releases frees others' locks",
			caught: []string{"release batch/mixed", "release batch/many", "release batch/late and doubled", "release batch/race"},
			make: each(func(_ *fixture, next driver.Capabilities, ctx context.Context, l driver.Lease) error {
				if err := one(next, ctx, l); err != nil {
					return err
				}
				return next.Breaker.BreakNow(ctx, l.Name, driver.BreakAnybody())
			}),
		},
		{
			name: "a batch of releases matches names and IDs apart", caught: []string{"release batch/mixed"},
			make: releasesBatch(func(w *fixture, next driver.Capabilities, ctx context.Context, leases []driver.Lease) []error {
				for _, name := range leases {
					for _, id := range leases {
						if w.holds(name.Name, id.ID.Reveal()) {
							w.free(name.Name)
						}
					}
				}
				return next.BatchReleaser.ReleaseBatch(ctx, leases)
			}),
		},
		{
			name: "a batch of releases does nothing", caught: []string{"release batch/frees", "release batch/context ended"},
			make: each(func(*fixture, driver.Capabilities, context.Context, driver.Lease) error { return nil }),
		},
		{
			name: "a batch of releases deletes the records", caught: []string{"release batch/frees"},
			make: each(func(w *fixture, next driver.Capabilities, ctx context.Context, l driver.Lease) error {
				err := one(next, ctx, l)
				w.store.Remove(l.Name)
				return err
			}),
		},
		{
			name: "a lost lease is an error of a batch of releases", caught: []string{"release batch/mixed", "release batch/many"},
			make: each(func(w *fixture, next driver.Capabilities, ctx context.Context, l driver.Lease) error {
				if l.Name != "" && !w.holds(l.Name, l.ID.Reveal()) {
					return opErr(l.Name, driver.ErrLost)
				}
				return one(next, ctx, l)
			}),
		},
		{
			name: "a batch of releases answers out of order", caught: []string{"release batch/mixed"},
			make: releasesBatch(func(_ *fixture, next driver.Capabilities, ctx context.Context, leases []driver.Lease) []error {
				errs := next.BatchReleaser.ReleaseBatch(ctx, leases)
				slices.Reverse(errs)
				return errs
			}),
		},
		{
			name: "a batch of releases ends at 500", says: "returned 500 results", caught: []string{"release batch/many"},
			make: releasesBatch(func(_ *fixture, next driver.Capabilities, ctx context.Context, leases []driver.Lease) []error {
				return next.BatchReleaser.ReleaseBatch(ctx, leases[:min(len(leases), 500)])
			}),
		},
		{
			name: "a batch of releases wakes nobody", says: "no call of wake", caught: []string{"release batch/wakes"},
			make: func(w *fixture, f *faulty) {
				releasesBatch(func(_ *fixture, next driver.Capabilities, ctx context.Context, leases []driver.Lease) []error {
					for _, l := range leases {
						w.note("in a batch "+l.Name, true)
					}
					return next.BatchReleaser.ReleaseBatch(ctx, leases)
				})(w, f)
				queues(func(next driver.Waker, name string, waiter driver.WaiterID, wake func(driver.Wakeup)) func() {
					return next.Wake(name, waiter, func(up driver.Wakeup) {
						if w.noted("in a batch "+name) == nil {
							wake(up)
						}
					})
				})(w, f)
			},
		},
	}
}
