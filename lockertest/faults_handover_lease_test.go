package lockertest

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/driver"
)

// successor returns the lease that followed the one with the ID in a handoff.
func (w *fixture) successor(id string) (driver.Lease, bool) {
	lease, ok := w.noted("successor of " + id).(driver.Lease)
	return lease, ok
}

// noteSuccessors remembers the handoffs.
func noteSuccessors() func(*fixture, *faulty) {
	return handOverChanges(func(w *fixture, _ *faulty, from driver.Lease, lease *driver.Lease, had bool) {
		if had && from.ID != lease.ID {
			w.note("successor of "+from.ID.Reveal(), *lease)
		}
	})
}

func handOverLeaseFaults() []fault {
	return []fault{
		{
			name: "the former lease can be renewed", says: "Renew of a lease that was handed over", caught: []string{"handoff/granted",
				"handoff/by name and ID"},
			make: func(w *fixture, f *faulty) {
				noteSuccessors()(w, f)
				f.renew = func(ctx context.Context, l driver.Lease) error {
					if _, over := w.successor(l.ID.Reveal()); over {
						return nil
					}
					return errOf(f.Locker.Renew(ctx, l))
				}
			},
		},
		{
			name: "the expired former lease can be renewed", says: "Renew of a lease that was handed over", caught: []string{"handoff/expired",
				"handoff/free"},
			make: func(w *fixture, f *faulty) {
				handOverChanges(func(w *fixture, _ *faulty, from driver.Lease, lease *driver.Lease, had bool) {
					w.note("successor of "+from.ID.Reveal(), *lease)
				})(w, f)
				f.renew = func(ctx context.Context, l driver.Lease) error {
					if _, over := w.successor(l.ID.Reveal()); over {
						return nil
					}
					return errOf(f.Locker.Renew(ctx, l))
				}
			},
		},
		{
			name: "a late release frees the next holder's lock", caught: []string{"handoff/granted", "handoff/context ends during",
				"handoff/one winner"},
			make: func(w *fixture, f *faulty) {
				noteSuccessors()(w, f)
				f.release = func(ctx context.Context, l driver.Lease) error {
					if next, over := w.successor(l.ID.Reveal()); over {
						l = next
					}
					return f.Locker.Release(ctx, l)
				}
			},
		},
		{
			name: "the next holder gets half the time", says: "before the lease could end", caught: []string{"handoff/whole TTL"},
			make: handsOverAsked(func(_ *fixture, _ *driver.Lease, req *driver.Request) { req.TTL /= 2 }),
		},
		{
			name: "the longer of two leases counts", says: "after its lease should have ended", caught: []string{"handoff/whole TTL"},
			make: handsOverAsked(func(w *fixture, _ *driver.Lease, req *driver.Request) {
				req.TTL = max(req.TTL, w.record(req.Name).Remaining)
			}),
		},
		{
			name: "a handoff clears the data", caught: []string{"handoff/data"},
			make: handsOverAsked(func(_ *fixture, _ *driver.Lease, req *driver.Request) {
				if req.Data == nil {
					req.Data = []byte{}
				}
			}),
		},
		{
			name: "a handoff brings no data", caught: []string{"handoff/data", "handoff/repeat"},
			make: handsOverAsked(func(_ *fixture, _ *driver.Lease, req *driver.Request) { req.Data = nil }),
		},
		{
			name: "a refused handoff leaves its data", says: "other's", caught: []string{"handoff/held"},
			make: func(w *fixture, f *faulty) {
				grants(func(w *fixture, req driver.Request, lease *driver.Lease) { w.note("holder of "+req.Name, *lease) })(w, f)
				handsOver(func(w *fixture, _ *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
					lease, err := next(ctx, from, req)
					if holder, ok := w.noted("holder of " + req.Name).(driver.Lease); ok && errors.Is(err, driver.ErrHeld) {
						_ = w.write(ctx, holder, req.Data)
					}
					return lease, err
				})(w, f)
			},
		},
	}
}

func handOverRepeatFaults() []fault {
	return []fault{
		{
			name: "a repeated handoff gets a new token", says: "the repeat got token", caught: []string{"handoff/repeat", "handoff/to itself"},
			make: handOverRepeats(func(w *fixture, _ *faulty, next handOver, ctx context.Context, from driver.Lease,
				req driver.Request) (driver.Lease, error) {
				w.free(req.Name)
				return next(ctx, from, req)
			}),
		},
		{
			name: "a repeated handoff is refused", says: "which should be granted", caught: []string{"handoff/repeat", "handoff/to itself",
				"handoff/repeat extends"},
			make: handOverRepeats(func(
				w *fixture, _ *faulty, _ handOver, _ context.Context, _ driver.Lease, req driver.Request,
			) (driver.Lease, error) {
				return driver.Lease{}, heldErr(w.record(req.Name))
			}),
		},
		{
			name: "a repeated handoff replaces the data", says: "second", caught: []string{"handoff/repeat"},
			make: handOverRepeats(func(w *fixture, _ *faulty, next handOver, ctx context.Context, from driver.Lease,
				req driver.Request) (driver.Lease, error) {
				lease, err := next(ctx, from, req)
				return lease, errors.Join(err, w.write(ctx, lease, req.Data))
			}),
		},
		{
			name: "a repeated handoff does not extend", says: "before the lease could end", caught: []string{"handoff/repeat extends"},
			make: handOverRepeats(func(
				w *fixture, _ *faulty, _ handOver, _ context.Context, _ driver.Lease, req driver.Request,
			) (driver.Lease, error) {
				return driver.Lease{Name: req.Name, ID: req.ID, Owner: req.Owner, Token: w.record(req.Name).Token, TTL: req.TTL}, nil
			}),
		},
		{
			name: "a handoff to itself ends the lease", says: "to itself got token", caught: []string{"handoff/to itself"},
			make: handsOver(func(
				w *fixture, f *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request,
			) (driver.Lease, error) {
				if from.ID == req.ID && w.holds(req.Name, req.ID.Reveal()) {
					w.free(req.Name)
				}
				return next(ctx, from, req)
			}),
		},
		{
			name: "a handoff with an unknown outcome gives the lock to a third", says: "which should be granted",
			caught: []string{"handoff/context ends during"},
			make: handsOver(func(
				_ *fixture, _ *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request,
			) (driver.Lease, error) {
				<-ctx.Done() // only the calls of the clause in caught get here
				req.ID = newID()
				_, _ = next(context.WithoutCancel(ctx), from, req)
				return driver.Lease{}, opErr(req.Name, ctx.Err())
			}),
		},
	}
}
