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

// handsOver makes a fault of the HandOverer.
func handsOver(do func(w *world, f *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error)) func(*world, *faulty) {
	return func(w *world, f *faulty) {
		f.capabilities = func(a driver.Capabilities) driver.Capabilities {
			next := a.HandOverer.HandOver
			a.HandOverer = &handOverFault{func(ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
				return do(w, f, next, ctx, from, req)
			}}
			return a
		}
	}
}

// handsOverAsked makes a fault of the arguments: change sees them first.
func handsOverAsked(change func(w *world, from *driver.Lease, req *driver.Request)) func(*world, *faulty) {
	return handsOver(func(w *world, _ *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
		name, owner, ttl := req.Name, req.Owner, req.TTL
		change(w, &from, &req)
		lease, err := next(ctx, from, req)
		if err == nil {
			lease.Name, lease.Owner, lease.TTL = name, owner, ttl
		}
		return lease, err
	})
}

// holds asks past the faults whether a lease has its lock.
func (w *world) holds(name, id string) bool {
	return w.write(w.ctx, driver.Lease{Name: name, ID: driver.NewLeaseID(id)}, w.record(name).Data) == nil
}

// handOverRepeats makes a fault of the repeat by who has the lock already.
func handOverRepeats(do func(w *world, f *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error)) func(*world, *faulty) {
	return handsOver(func(w *world, f *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
		if w.holds(req.Name, req.ID.Reveal()) {
			return do(w, f, next, ctx, from, req)
		}
		return next(ctx, from, req)
	})
}

// handOverChanges makes a fault of a grant: change sees it, and whether from had the
// lock until then.
func handOverChanges(change func(w *world, f *faulty, from driver.Lease, lease *driver.Lease, had bool)) func(*world, *faulty) {
	return handsOver(func(w *world, f *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
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
			name: "a hand-over is an acquire", says: "HandOver of",
			caught: []string{
				"handover/granted", "handover/whole TTL", "handover/data", "handover/repeat", "handover/broken", "handover/odd names",
				"handover/by name and ID", "handover/one winner", "handover/nobody between",
			},
			make: handsOver(func(_ *world, f *faulty, _ handOver, ctx context.Context, _ driver.Lease, req driver.Request) (driver.Lease, error) {
				return f.Locker.TryAcquire(ctx, req)
			}),
		},
		{
			name: "whoever holds it is overruled", says: "which another holds",
			caught: []string{
				"handover/held", "handover/by name and ID", "handover/replace", "handover/to itself", "handover/IDs taken literally",
				"handover/one winner", "handover/against a release",
			},
			make: handsOver(func(w *world, _ *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
				if !w.holds(req.Name, req.ID.Reveal()) {
					w.free(req.Name)
				}
				return next(ctx, from, req)
			}),
		},
		{
			name: "a hand-over looks, then takes", says: "of 32 calls at once", caught: []string{"handover/one winner", "handover/against a release"},
			make: handsOver(func(w *world, _ *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
				if w.holds(from.Name, from.ID.Reveal()) && !w.holds(req.Name, req.ID.Reveal()) {
					time.Sleep(5 * time.Millisecond)
					w.free(req.Name)
				}
				return next(ctx, from, req)
			}),
		},
		{
			name: "a hand-over is a release and an acquire", says: "was not refused", caught: []string{"handover/nobody between", "race/exclusion"},
			make: handsOver(func(_ *world, f *faulty, _ handOver, ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
				if err := errors.Join(driver.ValidateHandOver(from, req, f.Limits()), f.Locker.Release(ctx, from)); err != nil {
					return driver.Lease{}, opErr(req.Name, err)
				}
				time.Sleep(time.Millisecond)
				return f.Locker.TryAcquire(ctx, req)
			}),
		},
		{
			name: "the token stays", says: "was granted to another ID before", caught: []string{"handover/granted", "handover/broken", "race/exclusion"},
			make: handOverChanges(func(_ *world, _ *faulty, from driver.Lease, lease *driver.Lease, had bool) {
				if had && from.ID != lease.ID && from.Token != 0 {
					lease.Token = from.Token
				}
			}),
		},
		{
			name: "the token is lower than the record's", says: "the token is", caught: []string{"handover/granted", "handover/replace"},
			make: handOverChanges(func(_ *world, _ *faulty, _ driver.Lease, lease *driver.Lease, _ bool) { lease.Token-- }),
		},
		{
			name: "the owner stays", says: "the owner is", caught: []string{"handover/granted"},
			make: handsOverAsked(func(_ *world, from *driver.Lease, req *driver.Request) { req.Owner = from.Owner }),
		},
		{
			name: "a free lock is not handed over", says: "which should be granted", caught: []string{"handover/free", "handover/expired"},
			make: handsOver(func(w *world, _ *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
				if !w.holds(from.Name, from.ID.Reveal()) && w.record(req.Name).State == driver.StateFree {
					return driver.Lease{}, opErr(req.Name, driver.ErrLost)
				}
				return next(ctx, from, req)
			}),
		},
		{
			name: "a broken lease is not handed over", says: "which should be granted", caught: []string{"handover/broken"},
			make: handsOver(func(w *world, _ *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
				if r := w.record(req.Name); r.Broken {
					return driver.Lease{}, heldErr(r)
				}
				return next(ctx, from, req)
			}),
		},
		{
			name: "Replace is ignored by a hand-over", says: "which should be granted", caught: []string{"handover/replace"},
			make: handsOverAsked(func(_ *world, _ *driver.Lease, req *driver.Request) { req.Replace = driver.Revision{} }),
		},
		{
			name: "a refused hand-over tells of the lease before", says: "the token is", caught: []string{"handover/held"},
			make: handsOver(func(_ *world, _ *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
				lease, err := next(ctx, from, req)
				var held *driver.HeldError
				if errors.As(err, &held) {
					held.Record.Token = from.Token
				}
				return lease, err
			}),
		},
		{
			name: "a refused hand-over is a loss", says: "want a *HeldError", caught: []string{"handover/held", "handover/one winner"},
			make: handsOver(func(_ *world, _ *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request) (driver.Lease, error) {
				lease, err := next(ctx, from, req)
				if errors.Is(err, driver.ErrHeld) {
					err = opErr(req.Name, driver.ErrLost)
				}
				return lease, err
			}),
		},
	}
}
