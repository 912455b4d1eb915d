package lockertest

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/driver"
)

type breakFault struct {
	soon func(ctx context.Context, name string, target driver.BreakTarget) error
	now  func(ctx context.Context, name string, target driver.BreakTarget) error
}

func (b *breakFault) Break(ctx context.Context, name string, target driver.BreakTarget) error {
	return b.soon(ctx, name, target)
}

func (b *breakFault) BreakNow(ctx context.Context, name string, target driver.BreakTarget) error {
	return b.now(ctx, name, target)
}

// breaks makes a fault of the Breaker: change may replace its methods.
func breaks(change func(w *fixture, f *faulty, b *breakFault)) func(*fixture, *faulty) {
	return func(w *fixture, f *faulty) {
		next := f.Locker.Capabilities().Breaker
		b := &breakFault{next.Break, next.BreakNow}
		change(w, f, b)
		f.capabilities = func(a driver.Capabilities) driver.Capabilities {
			a.Breaker = b
			return a
		}
	}
}

func breakerFaults() []fault {
	return []fault{
		{
			name: "Break does nothing", says: "want ErrLost", caught: []string{"breaker/Break", "breaker/runs out", "breaker/expired"},
			make: breaks(func(_ *fixture, _ *faulty, b *breakFault) {
				b.soon = func(context.Context, string, driver.BreakTarget) error { return nil }
			}),
		},
		{
			name: "Break and BreakNow ignore the target", says: "want a *HeldError", caught: []string{"breaker/token"},
			make: breaks(func(_ *fixture, _ *faulty, b *breakFault) {
				soon, now := b.soon, b.now
				b.soon = func(ctx context.Context, name string, _ driver.BreakTarget) error {
					return soon(ctx, name, driver.BreakAnybody())
				}
				b.now = func(ctx context.Context, name string, _ driver.BreakTarget) error {
					return now(ctx, name, driver.BreakAnybody())
				}
			}),
		},
		{
			name: "no target is anybody", says: "Break without a target", caught: []string{"breaker/no target"},
			make: breaks(func(_ *fixture, _ *faulty, b *breakFault) {
				soon, now := b.soon, b.now
				anybody := func(target driver.BreakTarget) driver.BreakTarget {
					if target == (driver.BreakTarget{}) {
						return driver.BreakAnybody()
					}
					return target
				}
				b.soon = func(ctx context.Context, name string, t driver.BreakTarget) error { return soon(ctx, name, anybody(t)) }
				b.now = func(ctx context.Context, name string, t driver.BreakTarget) error { return now(ctx, name, anybody(t)) }
			}),
		},
		{
			name: "Break frees at once", caught: []string{"breaker/Break", "breaker/runs out"},
			make: breaks(func(_ *fixture, _ *faulty, b *breakFault) { b.soon = b.now }),
		},
		{
			name: "BreakNow waits for the lease's end", caught: []string{"breaker/BreakNow", "breaker/keeps the data"},
			make: breaks(func(_ *fixture, _ *faulty, b *breakFault) { b.now = b.soon }),
		},
		{
			name: "BreakNow leaves renewals possible", caught: []string{"breaker/BreakNow untaken"},
			make: breaks(func(w *fixture, f *faulty, b *breakFault) {
				next := b.now
				b.now = func(ctx context.Context, name string, target driver.BreakTarget) error {
					w.note("broken "+name, true)
					return next(ctx, name, target)
				}
				f.renew = func(ctx context.Context, l driver.Lease) error {
					if w.noted("broken "+l.Name) != nil {
						return nil
					}
					return errOf(f.Locker.Renew(ctx, l))
				}
			}),
		},
		{
			name: "an expired lease is not broken", caught: []string{"breaker/expired"},
			make: breaks(func(w *fixture, _ *faulty, b *breakFault) {
				next := b.soon
				b.soon = func(ctx context.Context, name string, target driver.BreakTarget) error {
					if w.record(name).State != driver.StateHeld {
						return nil
					}
					return next(ctx, name, target)
				}
			}),
		},
		{
			name: "an expired lease is anybody's target", caught: []string{"breaker/expired token"},
			make: breaks(func(w *fixture, _ *faulty, b *breakFault) {
				soon, now := b.soon, b.now
				anybody := func(name string, target driver.BreakTarget) driver.BreakTarget {
					if w.record(name).State != driver.StateHeld {
						return driver.BreakAnybody()
					}
					return target
				}
				b.soon = func(ctx context.Context, name string, t driver.BreakTarget) error {
					return soon(ctx, name, anybody(name, t))
				}
				b.now = func(ctx context.Context, name string, t driver.BreakTarget) error {
					return now(ctx, name, anybody(name, t))
				}
			}),
		},
		{
			name: "breaking a free lock is an error", caught: []string{"breaker/free"},
			make: breaks(func(w *fixture, _ *faulty, b *breakFault) {
				next := b.soon
				b.soon = func(ctx context.Context, name string, target driver.BreakTarget) error {
					if w.record(name).State == driver.StateFree {
						return opErr(name, errors.New("no such lease"))
					}
					return next(ctx, name, target)
				}
			}),
		},
		{
			name: "a broken lock stays broken", caught: []string{"breaker/Break", "breaker/runs out"},
			make: breaks(func(w *fixture, f *faulty, b *breakFault) {
				next := b.soon
				b.soon = func(ctx context.Context, name string, target driver.BreakTarget) error {
					w.note("broken "+name, true)
					return next(ctx, name, target)
				}
				f.renew = func(ctx context.Context, l driver.Lease) error {
					if w.noted("broken "+l.Name) != nil {
						return opErr(l.Name, driver.ErrLost)
					}
					return errOf(f.Locker.Renew(ctx, l))
				}
			}),
		},
		{
			name: "a broken lock's holder may repeat", caught: []string{"breaker/runs out"},
			make: breaks(func(w *fixture, f *faulty, _ *breakFault) {
				f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					if before, ok := w.noted("lease " + req.ID.Reveal()).(driver.Lease); ok {
						return before, nil
					}
					lease, err := f.Locker.TryAcquire(ctx, req)
					if err == nil {
						w.note("lease "+req.ID.Reveal(), lease)
					}
					return lease, err
				}
			}),
		},
		{
			name: "breaking is not shown", caught: []string{"breaker/Break"},
			make: inspects(func(_ *fixture, r *driver.Record) { r.Broken = false }),
		},
		{
			name: "breaking loses the data", caught: []string{"breaker/keeps the data"},
			make: breaks(func(w *fixture, _ *faulty, b *breakFault) {
				b.now = func(_ context.Context, name string, _ driver.BreakTarget) error {
					w.store.Remove(name)
					return nil
				}
			}),
		},
	}
}
