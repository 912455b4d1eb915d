package lockertest

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

type lookFault struct {
	look func(ctx context.Context, names []string) ([]driver.Record, []error)
}

func (l *lookFault) InspectBatch(ctx context.Context, names []string) ([]driver.Record, []error) {
	return l.look(ctx, names)
}

// looks makes a fault of the BatchInspector.
func looks(do func(w *world, next driver.BatchInspector, ctx context.Context, names []string) ([]driver.Record, []error)) func(*world, *faulty) {
	return func(w *world, f *faulty) {
		f.capabilities = func(a driver.Capabilities) driver.Capabilities {
			next := a.BatchInspector
			a.BatchInspector = &lookFault{func(ctx context.Context, names []string) ([]driver.Record, []error) {
				return do(w, next, ctx, names)
			}}
			return a
		}
	}
}

// looksAt makes a fault of each record that the BatchInspector tells.
func looksAt(change func(w *world, r *driver.Record)) func(*world, *faulty) {
	return looks(func(w *world, next driver.BatchInspector, ctx context.Context, names []string) ([]driver.Record, []error) {
		records, errs := next.InspectBatch(ctx, names)
		for i := range records {
			if errs[i] == nil {
				change(w, &records[i])
			}
		}
		return records, errs
	})
}

func lookFaults() []fault {
	return []fault{
		{
			name: "looks answer out of order", says: "the record's Name is", caught: []string{"look/order", "look/many"},
			make: looks(func(_ *world, next driver.BatchInspector, ctx context.Context, names []string) ([]driver.Record, []error) {
				records, errs := next.InspectBatch(ctx, names)
				slices.Reverse(records)
				return records, errs
			}),
		},
		{
			name: "looks see a name that occurs twice once", caught: []string{"look/order"},
			make: looks(func(_ *world, next driver.BatchInspector, ctx context.Context, names []string) ([]driver.Record, []error) {
				records, errs := next.InspectBatch(ctx, names)
				for i, name := range names {
					if slices.Contains(names[:i], name) {
						records[i] = driver.Record{Name: name, State: driver.StateFree}
					}
				}
				return records, errs
			}),
		},
		{
			name: "a look ends at 1,000", says: "returned 1000 records", caught: []string{"look/many"},
			make: looks(func(_ *world, next driver.BatchInspector, ctx context.Context, names []string) ([]driver.Record, []error) {
				return next.InspectBatch(ctx, names[:min(len(names), 1000)])
			}),
		},
		{
			name: "looks take what a first page lacks for free", caught: []string{"look/many"},
			make: looks(func(_ *world, next driver.BatchInspector, ctx context.Context, names []string) ([]driver.Record, []error) {
				records, errs := next.InspectBatch(ctx, names)
				for i := min(len(names), 101); i < len(names); i++ {
					records[i] = driver.Record{Name: names[i], State: driver.StateFree}
				}
				return records, errs
			}),
		},
		{
			name: "looks without a record fail", caught: []string{"look/as Inspect", "look/order"},
			make: looks(func(_ *world, next driver.BatchInspector, ctx context.Context, names []string) ([]driver.Record, []error) {
				records, errs := next.InspectBatch(ctx, names)
				for i, r := range records {
					if errs[i] == nil && r.Token == 0 {
						records[i], errs[i] = driver.Record{}, opErr(names[i], driver.ErrLost)
					}
				}
				return records, errs
			}),
		},
		{
			name: "looks do not tell whether a lock is held", caught: []string{"look/as Inspect", "look/order"},
			make: looksAt(func(_ *world, r *driver.Record) { *r = driver.Record{Name: r.Name} }),
		},
		{
			name: "looks do not see that a lock is broken", says: "Broken", caught: []string{"look/as Inspect"},
			make: looksAt(func(_ *world, r *driver.Record) { r.Broken = false }),
		},
		{
			name: "looks tell the predecessor's token", says: "token", caught: []string{"look/as Inspect"},
			make: looksAt(func(_ *world, r *driver.Record) { r.Token = max(r.Token, 1) - 1 }),
		},
		{
			name: "looks tell half the remaining time", says: "remain of", caught: []string{"look/as Inspect"},
			make: looksAt(func(_ *world, r *driver.Record) { r.Remaining /= 2 }),
		},
		{
			name: "looks carry the data", says: "want none", caught: []string{"look/as Inspect"},
			make: looksAt(func(w *world, r *driver.Record) { r.Data = w.record(r.Name).Data }),
		},
		{
			name: "looks do not see that a lease has ended", caught: []string{"look/expired"},
			make: looksAt(func(_ *world, r *driver.Record) {
				if r.Token != 0 {
					r.State = driver.StateHeld
				}
			}),
		},
		{
			name: "looks take names for patterns", caught: []string{"look/odd names"},
			make: looks(func(_ *world, next driver.BatchInspector, ctx context.Context, names []string) ([]driver.Record, []error) {
				records, errs := next.InspectBatch(ctx, names)
				for i, name := range names {
					if strings.HasSuffix(name, "*") {
						records[i].State = driver.StateHeld
					}
				}
				return records, errs
			}),
		},
		{
			name: "looks ignore the context", caught: []string{"look/context ended", "context/ended before"},
			make: looks(func(_ *world, next driver.BatchInspector, ctx context.Context, names []string) ([]driver.Record, []error) {
				return next.InspectBatch(context.WithoutCancel(ctx), names)
			}),
		},
	}
}
