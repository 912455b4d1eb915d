package lockertest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// successor is the lease that followed the one with that ID by a hand-over.
func (w *world) successor(id string) (driver.Lease, bool) {
	lease, ok := w.noted("successor of " + id).(driver.Lease)
	return lease, ok
}

// noteSuccessors makes hand-overs that are remembered.
func noteSuccessors() func(*world, *faulty) {
	return handOverChanges(func(w *world, _ *faulty, from driver.Lease, lease *driver.Lease, had bool) {
		if had && from.ID != lease.ID {
			w.note("successor of "+from.ID.Reveal(), *lease)
		}
	})
}

func handOverLeaseFaults() []fault {
	return []fault{
		{
			name: "the lease before goes on", says: "Renew of a lease that was handed over", caught: []string{"handover/granted", "handover/by name and ID"},
			make: func(w *world, f *faulty) {
				noteSuccessors()(w, f)
				f.renew = func(ctx context.Context, l driver.Lease) error {
					if _, over := w.successor(l.ID.Reveal()); over {
						return nil
					}
					return f.Locker.Renew(ctx, l)
				}
			},
		},
		{
			name: "the expired lease before goes on", says: "Renew of a lease that was handed over", caught: []string{"handover/expired", "handover/free"},
			make: func(w *world, f *faulty) {
				handOverChanges(func(w *world, _ *faulty, from driver.Lease, lease *driver.Lease, had bool) {
					w.note("successor of "+from.ID.Reveal(), *lease)
				})(w, f)
				f.renew = func(ctx context.Context, l driver.Lease) error {
					if _, over := w.successor(l.ID.Reveal()); over {
						return nil
					}
					return f.Locker.Renew(ctx, l)
				}
			},
		},
		{
			name: "a late release frees the next holder's lock", caught: []string{"handover/granted", "handover/context ends during", "handover/one winner"},
			make: func(w *world, f *faulty) {
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
			name: "the next holder gets half the time", says: "before the lease could end", caught: []string{"handover/whole TTL"},
			make: handsOverAsked(func(_ *world, _ *driver.Lease, req *driver.Request) { req.TTL /= 2 }),
		},
		{
			name: "the longer of two leases goes on", says: "after its lease should have ended", caught: []string{"handover/whole TTL"},
			make: handsOverAsked(func(w *world, _ *driver.Lease, req *driver.Request) {
				req.TTL = max(req.TTL, w.record(req.Name).Remaining)
			}),
		},
		{
			name: "a hand-over clears the data", caught: []string{"handover/data"},
			make: handsOverAsked(func(_ *world, _ *driver.Lease, req *driver.Request) {
				if req.Data == nil {
					req.Data = []byte{}
				}
			}),
		},
		{
			name: "a hand-over brings no data", caught: []string{"handover/data", "handover/repeat"},
			make: handsOverAsked(func(_ *world, _ *driver.Lease, req *driver.Request) { req.Data = nil }),
		},
		{
			name: "a refused hand-over leaves its data", says: "other's", caught: []string{"handover/held"},
			make: func(w *world, f *faulty) {
				grants(func(w *world, req driver.Request, lease *driver.Lease) { w.note("holder of "+req.Name, *lease) })(w, f)
				handsOver(func(w *world, _ *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
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
			name: "a repeated hand-over gets a new token", says: "the repeat got token", caught: []string{"handover/repeat", "handover/to itself"},
			make: handOverRepeats(func(w *world, _ *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
				w.free(req.Name)
				return next(ctx, from, req)
			}),
		},
		{
			name: "a repeated hand-over is refused", says: "which should be granted", caught: []string{"handover/repeat", "handover/to itself", "handover/repeat extends"},
			make: handOverRepeats(func(w *world, _ *faulty, _ handOver, _ context.Context, _ driver.Lease, req driver.Request) (driver.Lease, error) {
				return driver.Lease{}, heldErr(w.record(req.Name))
			}),
		},
		{
			name: "a repeated hand-over replaces the data", says: "second", caught: []string{"handover/repeat"},
			make: handOverRepeats(func(w *world, _ *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
				lease, err := next(ctx, from, req)
				return lease, errors.Join(err, w.write(ctx, lease, req.Data))
			}),
		},
		{
			name: "a repeated hand-over does not extend", says: "before the lease could end", caught: []string{"handover/repeat extends"},
			make: handOverRepeats(func(w *world, _ *faulty, _ handOver, _ context.Context, _ driver.Lease, req driver.Request) (driver.Lease, error) {
				return driver.Lease{Name: req.Name, ID: req.ID, Owner: req.Owner, Token: w.record(req.Name).Token, TTL: req.TTL}, nil
			}),
		},
		{
			name: "a lease that follows itself is over", says: "to itself got token", caught: []string{"handover/to itself"},
			make: handsOver(func(w *world, f *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
				if from.ID == req.ID && w.holds(req.Name, req.ID.Reveal()) {
					w.free(req.Name)
				}
				return next(ctx, from, req)
			}),
		},
		{
			name: "a hand-over in doubt leaves the lock to a third", says: "which should be granted", caught: []string{"handover/context ends during"},
			make: handsOver(func(_ *world, _ *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
				<-ctx.Done() // of the clause that is named: the others' calls do not get here
				req.ID = newID()
				_, _ = next(context.WithoutCancel(ctx), from, req)
				return driver.Lease{}, opErr(req.Name, ctx.Err())
			}),
		},
	}
}

func handOverInputFaults() []fault {
	return []fault{
		{
			name: "the name of the lease before is ignored", says: "want an *InvalidError about from.Name", caught: []string{"handover/arguments"},
			make: handsOverAsked(func(_ *world, from *driver.Lease, req *driver.Request) { from.Name = req.Name }),
		},
		{
			name: "a lease before without an ID is a stranger", says: "want an *InvalidError about from.ID", caught: []string{"handover/arguments"},
			make: handsOverAsked(func(_ *world, from *driver.Lease, _ *driver.Request) {
				if from.ID.IsZero() {
					from.ID = newID()
				}
			}),
		},
		{
			name: "what is refused as invalid is done", says: "after requests that are not valid", caught: []string{"handover/arguments"},
			make: handsOver(func(w *world, _ *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
				lease, err := next(ctx, from, req)
				if errors.Is(err, driver.ErrInvalid) {
					_ = w.plain.Release(ctx, from)
				}
				return lease, err
			}),
		},
		{
			name: "hand-overs compare the token", says: "which should be granted", caught: []string{"handover/by name and ID"},
			make: handsOverAsked(func(w *world, from *driver.Lease, req *driver.Request) {
				if from.Token != w.record(req.Name).Token && !from.ID.IsZero() {
					from.ID = newID()
				}
			}),
		},
		{
			name: "the token proves who is handed over", says: "which another holds", caught: []string{"handover/by name and ID"},
			make: handsOverAsked(func(w *world, from *driver.Lease, req *driver.Request) {
				if from.Token == w.record(req.Name).Token {
					w.free(req.Name)
				}
			}),
		},
		{
			name: "hand-overs ignore case", caught: []string{"handover/odd names"},
			make: handsOverAsked(func(_ *world, from *driver.Lease, req *driver.Request) {
				from.Name, req.Name = strings.ToLower(from.Name), strings.ToLower(req.Name)
			}),
		},
		{
			name: "the ID of the lease before is an expression", says: "want ErrHeld", caught: []string{"handover/IDs taken literally"},
			make: handsOverAsked(func(w *world, from *driver.Lease, req *driver.Request) {
				if strings.HasPrefix(from.ID.Reveal(), "$") {
					w.free(req.Name)
				}
			}),
		},
		{
			name: "the ID of the lease before is in errors", says: "shows the lease ID: ", caught: []string{"handover/held"},
			make: handsOver(func(_ *world, _ *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
				lease, err := next(ctx, from, req)
				if err != nil {
					err = opErr(req.Name, fmt.Errorf("from %s: %w", from.ID.Reveal(), err))
				}
				return lease, err
			}),
		},
		{
			name: "hand-overs ignore the context", says: "HandOver", caught: []string{"context/ended before"},
			make: handsOver(func(_ *world, _ *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
				return next(context.WithoutCancel(ctx), from, req)
			}),
		},
		{
			name: "a closed Locker hands over", says: "HandOver after Close", caught: []string{"close/ErrClosed"},
			make: handsOver(func(w *world, _ *faulty, _ handOver, ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
				return w.plain.HandOver(ctx, from, req)
			}),
		},
	}
}
