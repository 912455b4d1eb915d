package lockertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// inspects makes a fault of the records from Inspect and in errors: change may alter each.
func inspects(change func(w *fixture, r *driver.Record)) func(*fixture, *faulty) {
	return func(w *fixture, f *faulty) {
		f.inspect = func(ctx context.Context, name string) (driver.Record, error) {
			r, err := f.Locker.Inspect(ctx, name)
			if err == nil {
				change(w, &r)
			}
			return r, err
		}
		f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
			lease, err := f.Locker.TryAcquire(ctx, req)
			var held *driver.HeldError
			if errors.As(err, &held) {
				change(w, &held.Record)
			}
			return lease, err
		}
	}
}

func recordFaults() []fault {
	return []fault{
		{
			name: "ReadAt is missing", says: "but no ReadAt", caught: []string{"inspect/ReadAt"},
			make: inspects(func(_ *fixture, r *driver.Record) { r.ReadAt = time.Time{} }),
		},
		{
			name: "ReadAt stands still", says: "was read at", caught: []string{"inspect/ReadAt"},
			make: inspects(func(w *fixture, r *driver.Record) { r.ReadAt = time.Unix(1, 0) }),
		},
		{
			name: "Backend is not what the errors say", says: `Info.Backend is "store"`, caught: []string{"info/backend"},
			make: func(_ *fixture, f *faulty) {
				f.info = func(i driver.Info) driver.Info { i.Backend = "store"; return i }
			},
		},
		{
			name: "a name without a record has an unknown state", caught: []string{"inspect/no record"},
			make: inspects(func(_ *fixture, r *driver.Record) {
				if r.Token == 0 {
					r.State = driver.StateUnknown
				}
			}),
		},
		{
			name: "a name without a record has a past", says: "has a past", caught: []string{"inspect/no record"},
			make: inspects(func(w *fixture, r *driver.Record) { r.AcquiredAt = w.now() }),
		},
		{
			name: "an unknown time left is shown as zero", says: "granted just now", caught: []string{"inspect/held", "acquire/held"},
			make: inspects(func(_ *fixture, r *driver.Record) { r.Remaining = 0 }),
		},
		{
			name: "an unknown time left has a value", says: "RemainingKnown false", caught: []string{"inspect/held"},
			make: inspects(func(_ *fixture, r *driver.Record) { r.RemainingKnown = false }),
		},
		{
			name: "a negative time left", says: "not negative", caught: []string{"inspect/held"},
			make: inspects(func(_ *fixture, r *driver.Record) { r.Remaining -= 24 * time.Hour }),
		},
		{
			name: "more is left than the TTL", says: "left of a TTL", caught: []string{"inspect/held"},
			make: inspects(func(_ *fixture, r *driver.Record) { r.Remaining *= 2 }),
		},
		{
			name: "a released lock is shown as held", caught: []string{"inspect/released", "release/keeps token and data"},
			make: inspects(func(_ *fixture, r *driver.Record) {
				if r.Token != 0 {
					r.State = driver.StateHeld
				}
			}),
		},
		{
			name: "an expired lock is shown as held", caught: []string{"expiry/inspect"},
			make: inspects(func(_ *fixture, r *driver.Record) { r.State = driver.StateHeld }),
		},
		{
			name: "a held lock is shown as free", caught: []string{"inspect/held", "name/distinct"},
			make: inspects(func(_ *fixture, r *driver.Record) {
				r.State, r.Remaining, r.RemainingKnown = driver.StateFree, 0, false
			}),
		},
		{
			name: "the predecessor is shown as owner", caught: []string{"inspect/successor"},
			make: inspects(func(w *fixture, r *driver.Record) {
				if before, ok := w.note("first owner of "+r.Name, r.Owner).(string); ok {
					r.Owner = before
					w.note("first owner of "+r.Name, before)
				} else if r.State == driver.StateHeld {
					r.Owner = "predecessor"
				}
			}),
		},
		{
			name: "a wrong token is shown", caught: []string{"inspect/held", "inspect/released", "inspect/successor"},
			make: inspects(func(_ *fixture, r *driver.Record) { r.Token++ }),
		},
		{
			name: "the revision never changes", caught: []string{"inspect/revision", "acquire/replace"},
			make: inspects(func(_ *fixture, r *driver.Record) { r.Revision = driver.NewRevision("r") }),
		},
		{
			name: "the revision counts grants and renewals", caught: []string{"inspect/revision after a removal"},
			make: func(w *fixture, f *faulty) {
				key := func(name string) string { return fmt.Sprint("changes of ", name, w.noted("removed "+name)) }
				grants(func(w *fixture, req driver.Request, _ *driver.Lease) { w.count(key(req.Name)) })(w, f)
				f.renew = func(ctx context.Context, l driver.Lease) error {
					w.count(key(l.Name))
					return errOf(f.Locker.Renew(ctx, l))
				}
				inspects(func(w *fixture, r *driver.Record) { r.Revision = driver.NewRevision(fmt.Sprint(w.noted(key(r.Name)))) })(w, f)
			},
		},
		{
			name: "the revision changes with each Inspect", caught: []string{"acquire/replace"},
			make: inspects(func(w *fixture, r *driver.Record) {
				r.Revision = driver.NewRevision(time.Duration(w.count("inspects")).String())
			}),
		},
		{
			name: "Inspect leaves out the data", caught: []string{"inspect/held", "data/kept or replaced"},
			make: inspects(func(_ *fixture, r *driver.Record) { r.Data = nil }),
		},
		{
			name: "records share their data", caught: []string{"data/own copy"},
			make: inspects(func(w *fixture, r *driver.Record) {
				if shared, ok := w.noted("data of " + r.Name).([]byte); ok {
					r.Data = shared
				} else {
					w.note("data of "+r.Name, r.Data)
				}
			}),
		},
		{
			name: "a record without a name", says: "the record's Name", caught: []string{"inspect/held", "acquire/held"},
			make: inspects(func(_ *fixture, r *driver.Record) { r.Name = "" }),
		},
		{
			name: "renewed before acquired", says: "before it was acquired", caught: []string{"inspect/held"},
			make: inspects(func(_ *fixture, r *driver.Record) { r.RenewedAt = r.AcquiredAt.Add(-time.Second) }),
		},
		{
			name: "the predecessor's record is in the HeldError", caught: []string{"acquire/held"},
			make: inspects(func(_ *fixture, r *driver.Record) { r.Owner, r.Token = "another", 1 }),
		},
		{
			name: "limits that change", caught: []string{"info/sane"},
			make: func(w *fixture, f *faulty) {
				f.info = func(i driver.Info) driver.Info {
					i.Limits.MaxName -= w.count("limits")
					return i
				}
			},
		},
		{
			name: "a queue without turns", says: "Info.Turn is 0", caught: []string{"info/sane"},
			make: func(_ *fixture, f *faulty) {
				f.info = func(i driver.Info) driver.Info { i.Turn = 0; return i }
			},
		},
		{
			name: "limits that do not fit together", caught: []string{"info/sane"},
			make: func(_ *fixture, f *faulty) {
				f.info = func(i driver.Info) driver.Info {
					i.Limits.Poll = 0
					return i
				}
			},
		},
	}
}
