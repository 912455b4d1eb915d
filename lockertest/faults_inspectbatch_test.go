package lockertest

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// inspector reads for one waiter.
type inspector struct {
	next   driver.BatchInspector
	waiter driver.WaiterID
}

func (i inspector) InspectBatch(ctx context.Context, names []string) ([]driver.Record, []error) {
	return i.next.InspectBatch(ctx, i.waiter, names)
}

// inspectsBatch makes a fault of the BatchInspector: do replaces InspectBatch.
func inspectsBatch(do func(w *fixture, next inspector, ctx context.Context, names []string) ([]driver.Record, []error)) func(*fixture,
	*faulty) {
	return replaces(driver.MethodInspectBatch, func(w *fixture, had driver.Capabilities, ctx context.Context, call driver.Call) driver.Answer {
		records, errs := do(w, inspector{had.BatchInspector, call.Waiter}, ctx, call.Names)
		return driver.Answer{Records: records, Errs: errs}
	})
}

// inspectsEach makes a fault of each record from the BatchInspector.
func inspectsEach(change func(w *fixture, r *driver.Record)) func(*fixture, *faulty) {
	return inspectsBatch(func(w *fixture, next inspector, ctx context.Context, names []string) ([]driver.Record, []error) {
		records, errs := next.InspectBatch(ctx, names)
		for i := range records {
			if errs[i] == nil {
				change(w, &records[i])
			}
		}
		return records, errs
	})
}

// showsReleasesLate makes a fault of reads: until a release has returned, they return the record of before. The release waits for one.
func showsReleasesLate(w *fixture, f *faulty) {
	type before struct {
		record driver.Record
		read   func()
	}
	inspectsEach(func(w *fixture, r *driver.Record) {
		if old, ok := w.noted("before the release of " + r.Name).(before); ok {
			*r = old.record
			old.read()
		}
	})(w, f)
	f.release = func(ctx context.Context, l driver.Lease) error {
		ctx, read := context.WithCancel(ctx)
		w.note("before the release of "+l.Name, before{w.record(l.Name), read})
		defer w.note("before the release of "+l.Name, nil)
		err := f.Locker.Release(context.WithoutCancel(ctx), l)
		<-ctx.Done()
		return err
	}
}

func inspectBatchFaults() []fault {
	return []fault{
		{
			name: "reads show a release after the wake-up", says: "still showed the lock as held", caught: []string{"watcher/reads"},
			make: showsReleasesLate,
		},
		{
			name: "batches answer out of order", says: "the record's Name is", caught: []string{"inspectbatch/order", "inspectbatch/many"},
			make: inspectsBatch(func(_ *fixture, next inspector, ctx context.Context, names []string) ([]driver.Record, []error) {
				records, errs := next.InspectBatch(ctx, names)
				slices.Reverse(records)
				return records, errs
			}),
		},
		{
			name: "batches answer once for a name that occurs twice", caught: []string{"inspectbatch/order"},
			make: inspectsBatch(func(_ *fixture, next inspector, ctx context.Context, names []string) ([]driver.Record, []error) {
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
			name: "a batch ends at 1,000", says: "returned 1000 records", caught: []string{"inspectbatch/many"},
			make: inspectsBatch(func(_ *fixture, next inspector, ctx context.Context, names []string) ([]driver.Record, []error) {
				return next.InspectBatch(ctx, names[:min(len(names), 1000)])
			}),
		},
		{
			name: "names that are not on the first page count as free", caught: []string{"inspectbatch/many"},
			make: inspectsBatch(func(_ *fixture, next inspector, ctx context.Context, names []string) ([]driver.Record, []error) {
				records, errs := next.InspectBatch(ctx, names)
				for i := min(len(names), 101); i < len(names); i++ {
					records[i] = driver.Record{Name: names[i], State: driver.StateFree}
				}
				return records, errs
			}),
		},
		{
			name: "a name without a record is an error", caught: []string{"inspectbatch/as Inspect", "inspectbatch/order"},
			make: inspectsBatch(func(_ *fixture, next inspector, ctx context.Context, names []string) ([]driver.Record, []error) {
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
			name: "batches do not report whether a lock is held", caught: []string{"inspectbatch/as Inspect", "inspectbatch/order"},
			make: inspectsEach(func(_ *fixture, r *driver.Record) { *r = driver.Record{Name: r.Name} }),
		},
		{
			name: "batches do not report that a lock is broken", says: "Broken", caught: []string{"inspectbatch/as Inspect"},
			make: inspectsEach(func(_ *fixture, r *driver.Record) { r.Broken = false }),
		},
		{
			name: "batches report the token of the former holder", says: "token", caught: []string{"inspectbatch/as Inspect"},
			make: inspectsEach(func(_ *fixture, r *driver.Record) { r.Token = max(r.Token, 1) - 1 }),
		},
		{
			name: "batches report half the remaining time", says: "remain of", caught: []string{"inspectbatch/as Inspect"},
			make: inspectsEach(func(_ *fixture, r *driver.Record) { r.Remaining /= 2 }),
		},
		{
			name: "batches have the data", says: "want none", caught: []string{"inspectbatch/as Inspect"},
			make: inspectsEach(func(w *fixture, r *driver.Record) { r.Data = w.record(r.Name).Data }),
		},
		{
			name: "batches do not report that a lease has ended", caught: []string{"inspectbatch/expired"},
			make: inspectsEach(func(_ *fixture, r *driver.Record) {
				if r.Token != 0 {
					r.State = driver.StateHeld
				}
			}),
		},
		{
			name: "batches treat names as patterns", caught: []string{"inspectbatch/odd names"},
			make: inspectsBatch(func(_ *fixture, next inspector, ctx context.Context, names []string) ([]driver.Record, []error) {
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
			name: "batch reads ignore the context", caught: []string{"inspectbatch/context ended", "context/ended before"},
			make: inspectsBatch(func(_ *fixture, next inspector, ctx context.Context, names []string) ([]driver.Record, []error) {
				return next.InspectBatch(context.WithoutCancel(ctx), names)
			}),
		},
	}
}
