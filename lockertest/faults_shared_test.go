package lockertest

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// retried makes a fault of requests that are refused: where spoil changes the store, the request is sent again.
func retried(spoil func(w *fixture, req driver.Request, r driver.Record) bool) func(*fixture, *faulty) {
	return requests(func(w *fixture, f *faulty, ctx context.Context, req driver.Request) (driver.Lease, error) {
		lease, err := f.Locker.TryAcquire(ctx, req)
		if errors.Is(err, driver.ErrHeld) && spoil(w, req, w.record(req.Name)) {
			return f.Locker.TryAcquire(ctx, req)
		}
		return lease, err
	})
}

// sharedBreaks makes a fault of Break for shared locks.
func sharedBreaks(change func(r driver.Record, target driver.BreakTarget) driver.BreakTarget) func(*fixture, *faulty) {
	return breaks(func(w *fixture, _ *faulty, b *breakFault) {
		next := b.soon
		b.soon = func(ctx context.Context, name string, target driver.BreakTarget) error {
			if r := w.record(name); len(r.Holders) > 0 {
				target = change(r, target)
			}
			return next(ctx, name, target)
		}
	})
}

func sharedFaults() []fault {
	return slices.Concat(sharedGrantFaults(), sharedCallFaults())
}

func sharedGrantFaults() []fault {
	return []fault{
		{
			name: "a single reader keeps no writer out", says: "before the lease could end",
			caught: []string{"shared/a writer waits for all", "shared/one expires", "shared/one releases"},
			make: retried(func(w *fixture, req driver.Request, r driver.Record) bool {
				if one := req.Mode == driver.Exclusive && len(r.Holders) == 1; !one {
					return false
				}
				w.free(req.Name)
				return true
			}),
		},
		{
			name: "readers exclude each other", caught: []string{"shared/together", "shared/many"},
			make: asks(func(_ *fixture, req *driver.Request) { req.Mode = driver.Exclusive }),
		},
		{
			name: "readers ignore a writer", caught: []string{"shared/excluded"},
			make: retried(func(w *fixture, req driver.Request, r driver.Record) bool {
				if writer := req.Mode == driver.Shared && len(r.Holders) == 0; !writer {
					return false
				}
				w.free(req.Name)
				return true
			}),
		},
		{
			name: "a lock has five readers at most", says: "which should be granted", caught: []string{"shared/many"},
			make: requests(func(w *fixture, f *faulty, ctx context.Context, req driver.Request) (driver.Lease, error) {
				if r := w.record(req.Name); req.Mode == driver.Shared && len(r.Holders) >= 5 {
					return driver.Lease{}, heldErr(r)
				}
				return f.Locker.TryAcquire(ctx, req)
			}),
		},
		{
			name: "a reader's repeat is a new grant", says: "a repeat has token", caught: []string{"shared/repeat"},
			make: requests(func(w *fixture, f *faulty, ctx context.Context, req driver.Request) (driver.Lease, error) {
				if req.Mode == driver.Shared {
					_ = w.plain.Release(ctx, driver.Lease{Name: req.Name, ID: req.ID})
				}
				return f.Locker.TryAcquire(ctx, req)
			}),
		},
		{
			name: "holders change the mode", caught: []string{"shared/no change of the mode"},
			make: retried(func(w *fixture, req driver.Request, _ driver.Record) bool {
				return w.plain.Release(w.ctx, driver.Lease{Name: req.Name, ID: req.ID}) == nil
			}),
		},
		{
			name: "shared requests are corrected", says: "a shared request with data", caught: []string{"shared/arguments"},
			make: asks(func(_ *fixture, req *driver.Request) {
				if req.Mode == driver.Shared {
					req.Data, req.Owner = nil, req.Owner[:min(len(req.Owner), driver.MaxSharedOwner)]
				}
			}),
		},
		{
			name: "readers overtake a waiting writer", caught: []string{"shared/a writer is not overtaken"},
			make: retried(func(w *fixture, req driver.Request, r driver.Record) bool {
				if req.Mode == driver.Exclusive && req.QueueFor > 0 {
					w.note("writer "+req.Name, req.Waiter)
				}
				writer, waits := w.noted("writer " + req.Name).(driver.WaiterID)
				return req.Mode == driver.Shared && len(r.Holders) > 0 && waits && w.plain.Leave(w.ctx, writer, []string{req.Name}) == nil
			}),
		},
		{
			name: "nothing is reserved after readers", says: "before the writer that waits", caught: []string{"shared/a dead reader ends no turn"},
			make: retried(func(w *fixture, req driver.Request, r driver.Record) bool {
				if req.Mode == driver.Exclusive && req.QueueFor > 0 {
					w.note("writer "+req.Name, req.Waiter)
				}
				writer, waits := w.noted("writer " + req.Name).(driver.WaiterID)
				return req.Mode == driver.Shared && r.State == driver.StateFree && waits && w.plain.Leave(w.ctx, writer, []string{req.Name}) == nil
			}),
		},
		{
			name: "each reader has a turn of its own", says: "in the turn of the first", caught: []string{"shared/readers have one turn"},
			make: requests(func(_ *fixture, f *faulty, ctx context.Context, req driver.Request) (driver.Lease, error) {
				asked := req
				if req.QueueFor > 0 {
					asked.Mode = driver.Exclusive
				}
				lease, err := f.Locker.TryAcquire(ctx, asked)
				if err == nil {
					lease.Mode = req.Mode
				}
				return lease, err
			}),
		},
		{
			name: "readers in the queue are not woken", caught: []string{"shared/readers are woken"},
			make: queues(func(next driver.Waker, name string, waiter driver.WaiterID, wake func(driver.Wakeup)) func() {
				return next.Wake(name, waiter, func(up driver.Wakeup) {
					if up.Kind != driver.MayBeFree {
						wake(up)
					}
				})
			}),
		},
	}
}

func sharedCallFaults() []fault {
	return []fault{
		{
			name: "readers are not renewed", caught: []string{"shared/renewed alone"},
			make: func(_ *fixture, f *faulty) {
				f.renew = func(ctx context.Context, l driver.Lease) error {
					if l.Mode == driver.Shared {
						return nil
					}
					return errOf(f.Locker.Renew(ctx, l))
				}
			},
		},
		{
			name: "only the latest holder is shown", caught: []string{"shared/together"},
			make: inspects(func(_ *fixture, r *driver.Record) { r.Holders = r.Holders[max(0, len(r.Holders)-1):] }),
		},
		{
			name: "the revision is that of the latest grant", says: "one of those before", caught: []string{"shared/revision"},
			make: inspects(func(_ *fixture, r *driver.Record) {
				if len(r.Holders) > 0 {
					r.Revision = driver.NewRevision(string(rune(r.Token)))
				}
			}),
		},
		{
			name: "readers have no history", caught: []string{"shared/history"},
			make: inspects(func(_ *fixture, r *driver.Record) {
				r.History = slices.DeleteFunc(r.History, func(t driver.Tenure) bool { return t.Mode == driver.Shared })
			}),
		},
		{
			name: "Break of one reader affects all", caught: []string{"shared/Break one"},
			make: sharedBreaks(func(driver.Record, driver.BreakTarget) driver.BreakTarget { return driver.BreakAnybody() }),
		},
		{
			name: "Break of all readers affects the latest", caught: []string{"shared/Break all"},
			make: sharedBreaks(func(r driver.Record, _ driver.BreakTarget) driver.BreakTarget { return driver.BreakToken(r.Token) }),
		},
		{
			name: "readers write the data", says: "WriteData by a reader", caught: []string{"shared/keeps the data"},
			make: func(_ *fixture, f *faulty) {
				f.capabilities = func(a driver.Capabilities) driver.Capabilities {
					next := a.DataStore
					a.DataStore = dataFault{next, func(ctx context.Context, l driver.Lease, data []byte, at driver.DataRevision) error {
						if l.Mode == driver.Shared {
							return nil
						}
						return next.WriteData(ctx, l, data, at)
					}, nil}
					return a
				}
			},
		},
		{
			name: "a batch renews one lease of each name", caught: []string{"shared/renewed in a batch"},
			make: batches(func(_ *fixture, next driver.BatchRenewer, ctx context.Context, leases []driver.Lease) []error {
				_, errs := next.RenewBatch(ctx, leases)
				for i, l := range leases {
					if slices.ContainsFunc(leases[:i], func(before driver.Lease) bool { return before.Name == l.Name }) {
						errs[i] = opErr(l.Name, driver.ErrLost)
					}
				}
				return errs
			}),
		},
		{
			name: "a batch releases one lease of each name", caught: []string{"shared/released in a batch"},
			make: releasesBatch(func(_ *fixture, next driver.Capabilities, ctx context.Context, leases []driver.Lease) []error {
				first := slices.Clone(leases)
				for i, l := range leases {
					if slices.ContainsFunc(leases[:i], func(before driver.Lease) bool { return before.Name == l.Name }) {
						first[i].ID = newID()
					}
				}
				return next.BatchReleaser.ReleaseBatch(ctx, first)
			}),
		},
	}
}
