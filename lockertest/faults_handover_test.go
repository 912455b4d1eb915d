package lockertest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// handOver is the one method of a HandOverer.
type handOver func(ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error)

type handOverFault struct{ do handOver }

func (h *handOverFault) HandOver(ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
	return h.do(ctx, from, req)
}

// handsOver makes a fault of the HandOverer: do replaces HandOver.
func handsOver(do func(w *fixture, f *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease,
	error)) func(*fixture, *faulty) {
	return func(w *fixture, f *faulty) {
		f.capabilities = func(a driver.Capabilities) driver.Capabilities {
			next := a.HandOverer.HandOver
			a.HandOverer = &handOverFault{func(ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
				return do(w, f, next, ctx, from, req)
			}}
			return a
		}
	}
}

// handsOverAsked makes a fault of the arguments: change may alter them.
func handsOverAsked(change func(w *fixture, from *driver.Lease, req *driver.Request)) func(*fixture, *faulty) {
	return handsOver(func(
		w *fixture, _ *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request,
	) (driver.Lease, error) {
		name, owner, ttl := req.Name, req.Owner, req.TTL
		change(w, &from, &req)
		lease, err := next(ctx, from, req)
		if err == nil {
			lease.Name, lease.Owner, lease.TTL = name, owner, ttl
		}
		return lease, err
	})
}

// holds reports whether a lease holds its lock, without the faults.
func (w *fixture) holds(name, id string) bool {
	return w.write(w.ctx, driver.Lease{Name: name, ID: driver.NewLeaseID(id)}, w.record(name).Data) == nil
}

// handOverRepeats makes a fault of repeats: do replaces HandOver if the request holds the lock already.
func handOverRepeats(do func(w *fixture, f *faulty, next handOver, ctx context.Context, from driver.Lease,
	req driver.Request) (driver.Lease, error)) func(*fixture, *faulty) {
	return handsOver(func(
		w *fixture, f *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request,
	) (driver.Lease, error) {
		if w.holds(req.Name, req.ID.Reveal()) {
			return do(w, f, next, ctx, from, req)
		}
		return next(ctx, from, req)
	})
}

// handOverChanges makes a fault of grants: change may alter each. had says whether from held the lock
// until then.
func handOverChanges(change func(w *fixture, f *faulty, from driver.Lease, lease *driver.Lease, had bool)) func(*fixture, *faulty) {
	return handsOver(func(
		w *fixture, f *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request,
	) (driver.Lease, error) {
		had := w.holds(from.Name, from.ID.Reveal())
		lease, err := next(ctx, from, req)
		if err == nil {
			change(w, f, from, &lease, had)
		}
		return lease, err
	})
}

func handOverFaults() []fault {
	return slices.Concat(handOverGrantFaults(), handOverLeaseFaults(), handOverRepeatFaults(), handOverInputFaults())
}

func handOverGrantFaults() []fault {
	return []fault{
		{
			name: "a handoff is an acquire", says: "HandOver of",
			caught: []string{
				"handoff/granted", "handoff/whole TTL", "handoff/data", "handoff/repeat", "handoff/broken", "handoff/odd names",
				"handoff/by name and ID", "handoff/one winner", "handoff/one step",
			},
			make: handsOver(func(_ *fixture, f *faulty, _ handOver, ctx context.Context, _ driver.Lease, req driver.Request) (driver.Lease, error) {
				return f.Locker.TryAcquire(ctx, req)
			}),
		},
		{
			name: "a handoff ignores the holder", says: "which another holds",
			caught: []string{
				"handoff/held", "handoff/by name and ID", "handoff/replace", "handoff/to itself", "handoff/IDs taken literally",
				"handoff/one winner", "handoff/against a release",
			},
			make: handsOver(func(
				w *fixture, _ *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request,
			) (driver.Lease, error) {
				if !w.holds(req.Name, req.ID.Reveal()) {
					w.free(req.Name)
				}
				return next(ctx, from, req)
			}),
		},
		{
			name: "a handoff checks, then takes", says: "of 32 calls at once", caught: []string{"handoff/one winner", "handoff/against a release"},
			make: handsOver(func(
				w *fixture, _ *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request,
			) (driver.Lease, error) {
				if w.holds(from.Name, from.ID.Reveal()) && !w.holds(req.Name, req.ID.Reveal()) {
					time.Sleep(5 * time.Millisecond)
					w.free(req.Name)
				}
				return next(ctx, from, req)
			}),
		},
		{
			name: "a handoff is a release and an acquire", says: "was not refused", caught: []string{"handoff/one step", "race/exclusion"},
			make: handsOver(func(
				_ *fixture, f *faulty, _ handOver, ctx context.Context, from driver.Lease, req driver.Request,
			) (driver.Lease, error) {
				if err := errors.Join(driver.ValidateHandOver(from, req, f.Info()), f.Locker.Release(ctx, from)); err != nil {
					return driver.Lease{}, opErr(req.Name, err)
				}
				time.Sleep(time.Millisecond)
				return f.Locker.TryAcquire(ctx, req)
			}),
		},
		{
			name: "the token stays", says: "was granted to another ID before", caught: []string{"handoff/granted", "handoff/broken",
				"race/exclusion"},
			make: handOverChanges(func(_ *fixture, _ *faulty, from driver.Lease, lease *driver.Lease, had bool) {
				if had && from.ID != lease.ID && from.Token != 0 {
					lease.Token = from.Token
				}
			}),
		},
		{
			name: "the token is lower than the record's", says: "the token is", caught: []string{"handoff/granted", "handoff/replace"},
			make: handOverChanges(func(_ *fixture, _ *faulty, _ driver.Lease, lease *driver.Lease, _ bool) { lease.Token-- }),
		},
		{
			name: "the owner stays", says: "the owner is", caught: []string{"handoff/granted"},
			make: handsOverAsked(func(_ *fixture, from *driver.Lease, req *driver.Request) { req.Owner = from.Owner }),
		},
		{
			name: "a free lock is not handed over", says: "which should be granted", caught: []string{"handoff/free", "handoff/expired"},
			make: handsOver(func(
				w *fixture, _ *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request,
			) (driver.Lease, error) {
				if !w.holds(from.Name, from.ID.Reveal()) && w.record(req.Name).State == driver.StateFree {
					return driver.Lease{}, opErr(req.Name, driver.ErrLost)
				}
				return next(ctx, from, req)
			}),
		},
		{
			name: "a broken lease is not handed over", says: "which should be granted", caught: []string{"handoff/broken"},
			make: handsOver(func(
				w *fixture, _ *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request,
			) (driver.Lease, error) {
				if r := w.record(req.Name); r.Broken {
					return driver.Lease{}, heldErr(r)
				}
				return next(ctx, from, req)
			}),
		},
		{
			name: "Replace is ignored by a handoff", says: "which should be granted", caught: []string{"handoff/replace"},
			make: handsOverAsked(func(_ *fixture, _ *driver.Lease, req *driver.Request) { req.Replace = driver.Revision{} }),
		},
		{
			name: "a refused handoff reports the former lease", says: "the token is", caught: []string{"handoff/held"},
			make: handsOver(func(
				_ *fixture, _ *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request,
			) (driver.Lease, error) {
				lease, err := next(ctx, from, req)
				var held *driver.HeldError
				if errors.As(err, &held) {
					held.Record.Token = from.Token
				}
				return lease, err
			}),
		},
		{
			name: "a refused handoff is a loss", says: "want a *HeldError", caught: []string{"handoff/held", "handoff/one winner"},
			make: handsOver(func(
				_ *fixture, _ *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request,
			) (driver.Lease, error) {
				lease, err := next(ctx, from, req)
				if errors.Is(err, driver.ErrHeld) {
					err = opErr(req.Name, driver.ErrLost)
				}
				return lease, err
			}),
		},
	}
}
