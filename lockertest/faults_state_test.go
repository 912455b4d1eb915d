package lockertest

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// remembers makes a fault of a Locker whose leases have a State: with lie, a call of a lease is answered by
// itself. old says that the lease's State is not the present one, and not empty.
func remembers(lie func(call driver.Call, lease driver.Lease, old bool) error) func(*fixture, *faulty) {
	return func(w *fixture, f *faulty) {
		key := func(l driver.Lease) string { return "state of " + l.ID.Reveal() }
		answered := func(l driver.Lease, err error) driver.Lease {
			if err == nil {
				l.State = driver.NewLeaseState(rand.Text())
				w.note(key(l), l.State)
			}
			return l
		}
		lied := func(call driver.Call, l driver.Lease) error {
			present, _ := w.noted(key(l)).(driver.LeaseState)
			return lie(call, l, !l.State.IsZero() && l.State.Content() != present.Content())
		}
		f.Locker = driver.Intercept(f.Locker, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			switch call.Method {
			case driver.MethodRenew, driver.MethodRelease, driver.MethodWriteData:
				if err := lied(call, call.Lease); errors.Is(err, errPretend) {
					return driver.Answer{Lease: call.Lease}
				} else if err != nil {
					return driver.Answer{Err: err}
				}
			case driver.MethodRenewBatch:
				a := next(ctx, call)
				a.Leases = slices.Clone(a.Leases)
				for i, l := range call.Leases {
					if err := lied(call, l); err != nil {
						a.Errs[i] = err
					}
					a.Leases[i] = answered(a.Leases[i], a.Errs[i])
				}
				return a
			}
			a := next(ctx, call)
			if call.Method == driver.MethodTryAcquire || call.Method == driver.MethodRenew {
				a.Lease = answered(a.Lease, a.Err)
			}
			return a
		})
	}
}

// errPretend stands for a success without an effect.
var errPretend = driver.Errorf("a success without an effect")

// renewals makes a fault of the leases that Renew and RenewBatch return.
func renewals(change func(*driver.Lease)) func(*fixture, *faulty) {
	return func(_ *fixture, f *faulty) {
		f.Locker = driver.Intercept(f.Locker, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			a := next(ctx, call)
			switch call.Method {
			case driver.MethodRenew:
				change(&a.Lease)
			case driver.MethodRenewBatch:
				a.Leases = slices.Clone(a.Leases)
				for i := range a.Leases {
					change(&a.Leases[i])
				}
			}
			return a
		})
	}
}

func stateFaults() []fault {
	of := func(methods ...driver.Method) func(driver.Call) bool {
		return func(c driver.Call) bool { return slices.Contains(methods, c.Method) }
	}
	renewal := of(driver.MethodRenew, driver.MethodRenewBatch)
	return []fault{
		{
			name: "an old State is a loss", says: "Renew by the holder", caught: []string{"state/old", "state/empty", "state/of another lease",
				"state/in a batch"},
			make: remembers(func(call driver.Call, l driver.Lease, old bool) error {
				if old && renewal(call) {
					return opErr(l.Name, driver.ErrLost)
				}
				return nil
			}),
		},
		{
			name: "an empty State is a loss", says: "Renew by the holder", caught: []string{"state/empty", "state/in a batch"},
			make: remembers(func(call driver.Call, l driver.Lease, _ bool) error {
				if l.State.IsZero() && renewal(call) {
					return opErr(l.Name, driver.ErrLost)
				}
				return nil
			}),
		},
		{
			name: "renewals believe their State", says: "Renew by the predecessor", caught: []string{"state/lost", "renew/stale"},
			make: remembers(func(call driver.Call, l driver.Lease, old bool) error {
				if !l.State.IsZero() && !old && call.Method == driver.MethodRenew {
					return errPretend
				}
				return nil
			}),
		},
		{
			name: "releases believe their State", says: "which should be granted", caught: []string{"state/old", "state/of another lease"},
			make: remembers(func(call driver.Call, _ driver.Lease, old bool) error {
				if old && call.Method == driver.MethodRelease {
					return errPretend
				}
				return nil
			}),
		},
		{
			name: "writes believe their State", says: "WriteData by the holder", caught: []string{"state/old"},
			make: remembers(func(call driver.Call, l driver.Lease, old bool) error {
				if old && call.Method == driver.MethodWriteData {
					return opErr(l.Name, driver.ErrConflict)
				}
				return nil
			}),
		},
		{
			name: "a renewal returns another token", says: "returned another lease", caught: []string{"state/kept", "renew/any Locker",
				"state/in a batch"},
			make: renewals(func(l *driver.Lease) { l.Token++ }),
		},
		{
			name: "a renewal returns no ID", says: "returned another lease", caught: []string{"state/kept", "state/in a batch"},
			make: renewals(func(l *driver.Lease) { l.ID = driver.LeaseID{} }),
		},
		{
			name: "a renewal returns nothing", says: "returned another lease", caught: []string{"state/kept", "renew/any Locker"},
			make: renewals(func(l *driver.Lease) { *l = driver.Lease{} }),
		},
		{
			name: "a batch returns no leases", says: "returned 0 leases", caught: []string{"batch/mixed"},
			make: func(_ *fixture, f *faulty) {
				f.Locker = driver.Intercept(f.Locker, func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
					a := next(ctx, call)
					a.Leases = nil
					return a
				})
			},
		},
	}
}
