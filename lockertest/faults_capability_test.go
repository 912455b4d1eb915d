package lockertest

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// watcher wakes those without a position.
type watcher struct{ driver.Waker }

func (w watcher) Watch(name string, wake func()) (stop func()) {
	return w.Wake(name, "", func(driver.Wakeup) { wake() })
}

// watches makes a fault of waking those without a position.
func watches(do func(w *fixture, next watcher, name string, wake func()) (stop func())) func(*fixture, *faulty) {
	return replaces(driver.MethodWake, func(w *fixture, had driver.Capabilities, _ context.Context, call driver.Call) (a driver.Answer) {
		if call.Waiter != "" {
			a.Stop = had.Waker.Wake(call.Name, call.Waiter, call.Wake)
		} else {
			a.Stop = do(w, watcher{had.Waker}, call.Name, func() { call.Wake(driver.Wakeup{}) })
		}
		return a
	})
}

// batches makes a fault of the BatchRenewer.
func batches(do func(w *fixture, next driver.BatchRenewer, ctx context.Context, leases []driver.Lease) []error) func(*fixture, *faulty) {
	return replaces(driver.MethodRenewBatch, func(w *fixture, had driver.Capabilities, ctx context.Context, call driver.Call) driver.Answer {
		errs := do(w, had.BatchRenewer, ctx, call.Leases)
		return driver.Answer{Leases: call.Leases[:min(len(call.Leases), len(errs))], Errs: errs}
	})
}

// lists makes a fault of the Lister: change gets all records and those with the prefix, and returns
// the ones that List yields.
func lists(change func(w *fixture, prefix string, all, found []driver.Record) []driver.Record) func(*fixture, *faulty) {
	return replaces(driver.MethodList, func(w *fixture, had driver.Capabilities, ctx context.Context, call driver.Call) (a driver.Answer) {
		var all, found []driver.Record
		for r, err := range had.Lister.List(context.WithoutCancel(ctx), "") {
			if err != nil {
				break
			}
			all = append(all, r)
			if strings.HasPrefix(r.Name, call.Name) {
				found = append(found, r)
			}
		}
		for _, r := range change(w, call.Name, all, found) {
			if !call.Yield(r, nil) {
				break
			}
		}
		return a
	})
}

type dataFault struct {
	driver.DataStore
	write func(ctx context.Context, l driver.Lease, data []byte, at driver.DataRevision) error
	read  func(ctx context.Context, name string) ([]byte, driver.DataRevision, error)
}

func (d dataFault) WriteData(ctx context.Context, l driver.Lease, data []byte, at driver.DataRevision) error {
	if d.write != nil {
		return d.write(ctx, l, data, at)
	}
	return d.DataStore.WriteData(ctx, l, data, at)
}

func (d dataFault) ReadData(ctx context.Context, name string) ([]byte, driver.DataRevision, error) {
	if d.read != nil {
		return d.read(ctx, name)
	}
	return d.DataStore.ReadData(ctx, name)
}

func nothing() {}

func capabilityFaults() []fault {
	return slices.Concat(watcherFaults(), batchFaults(), inspectBatchFaults(), listerFaults(), dataStoreFaults())
}

func watcherFaults() []fault {
	effectOnly := func(_ *fixture, _ watcher, _ string, wake func()) func() {
		wake()
		return nothing
	}
	return []fault{
		{
			name: "watchers are never woken", says: "nothing woke the watcher", caught: []string{"watcher/wakes"},
			make: watches(func(*fixture, watcher, string, func()) func() { return nothing }),
		},
		{
			name: "releases do not wake", caught: []string{"watcher/wakes", "watcher/own Locker", "watcher/removal", "watcher/many",
				"watcher/odd names"},
			make: watches(effectOnly),
		},
		{
			name: "removals do not wake", caught: []string{"watcher/removal"},
			make: watches(func(w *fixture, next watcher, name string, wake func()) func() {
				return next.Watch(name, func() {
					if w.record(name).Token != 0 { // wake may call the memory driver, unlike others
						wake()
					}
				})
			}),
		},
		{
			name: "one of several is woken", caught: []string{"watcher/many"},
			make: watches(func(w *fixture, next watcher, name string, wake func()) func() {
				if w.count("watches of "+name) > 1 {
					return effectOnly(w, next, name, wake)
				}
				return next.Watch(name, wake)
			}),
		},
		{
			name: "watching waits for the backend", caught: []string{"watcher/no waiting"},
			make: watches(func(w *fixture, next watcher, name string, wake func()) func() {
				if w.noted("stalled "+name) != nil {
					time.Sleep(1100 * time.Millisecond)
				}
				return next.Watch(name, wake)
			}),
		},
		{
			name: "stop does nothing", says: "although it was stopped", caught: []string{"watcher/stop"},
			make: watches(func(_ *fixture, next watcher, name string, wake func()) func() {
				next.Watch(name, wake)
				return nothing
			}),
		},
		{
			name: "stop waits for the call of wake that is under way", caught: []string{"watcher/stop within wake"},
			make: watches(func(w *fixture, next watcher, name string, wake func()) func() {
				var calls atomic.Int64
				stop := next.Watch(name, func() {
					calls.Add(1)
					defer calls.Add(-1)
					wake()
				})
				return func() {
					for calls.Load() > 0 && w.noted("over") == nil { // until the end of the test
						time.Sleep(time.Millisecond)
					}
					stop()
				}
			}),
		},
		{
			name: "stop stops the others", caught: []string{"watcher/stop"},
			make: watches(func(w *fixture, next watcher, name string, wake func()) func() {
				stop := next.Watch(name, wake)
				if before, ok := w.note("stop of "+name, stop).(func()); ok {
					return func() { before(); stop() }
				}
				return func() {
					if other, ok := w.noted("stop of " + name).(func()); ok {
						other()
					}
					stop()
				}
			}),
		},
	}
}

func batchFaults() []fault {
	each := func(answer func(w *fixture, next driver.BatchRenewer, ctx context.Context, l driver.Lease) error) func(*fixture, *faulty) {
		return batches(func(w *fixture, next driver.BatchRenewer, ctx context.Context, leases []driver.Lease) []error {
			errs := make([]error, len(leases))
			for i, l := range leases {
				errs[i] = answer(w, next, ctx, l)
			}
			return errs
		})
	}
	one := func(next driver.BatchRenewer, ctx context.Context, l driver.Lease) error {
		return errOf(next.RenewBatch(ctx, []driver.Lease{l}))[0]
	}
	return []fault{
		{
			name: "batches do nothing", caught: []string{"batch/extends", "batch/mixed", "batch/context ended"},
			make: each(func(*fixture, driver.BatchRenewer, context.Context, driver.Lease) error { return nil }),
		},
		{
			name: "batches shorten", caught: []string{"batch/never shortens"},
			make: func(w *fixture, f *faulty) {
				each(func(w *fixture, next driver.BatchRenewer, ctx context.Context, l driver.Lease) error {
					w.note("end of "+l.Name, w.now().Add(l.TTL))
					return one(next, ctx, l)
				})(w, f)
				f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					shortened(w, req.Name)
					return f.Locker.TryAcquire(ctx, req)
				}
			},
		},
		{
			name: "batches refuse expired leases", caught: []string{"batch/expired but untaken"},
			make: each(func(w *fixture, next driver.BatchRenewer, ctx context.Context, l driver.Lease) error {
				if w.record(l.Name).State == driver.StateFree {
					return opErr(l.Name, driver.ErrLost)
				}
				return one(next, ctx, l)
			}),
		},
		{
			name: "batches answer out of order", caught: []string{"batch/mixed", "batch/many"},
			make: batches(func(_ *fixture, next driver.BatchRenewer, ctx context.Context, leases []driver.Lease) []error {
				_, errs := next.RenewBatch(ctx, leases)
				slices.Reverse(errs)
				return errs
			}),
		},
		{
			name: "one loss loses the batch", caught: []string{"batch/mixed", "batch/many"},
			make: batches(func(_ *fixture, next driver.BatchRenewer, ctx context.Context, leases []driver.Lease) []error {
				_, errs := next.RenewBatch(ctx, leases)
				if errors.Join(errs...) != nil {
					for i, l := range leases {
						errs[i] = opErr(l.Name, driver.ErrLost)
					}
				}
				return errs
			}),
		},
		{
			name: "a broken holder fails the batch", caught: []string{"batch/broken", "shared/broken in a batch"},
			make: batches(func(w *fixture, next driver.BatchRenewer, ctx context.Context, leases []driver.Lease) []error {
				_, errs := next.RenewBatch(ctx, leases)
				if slices.ContainsFunc(leases, func(l driver.Lease) bool { return w.record(l.Name).Broken }) {
					for i, l := range leases {
						errs[i] = opErr(l.Name, errors.New("inconsistent answers"))
					}
				}
				return errs
			}),
		},
		{
			name: "a batch ends at 500", says: "returned 500 results", caught: []string{"batch/many"},
			make: batches(func(_ *fixture, next driver.BatchRenewer, ctx context.Context, leases []driver.Lease) []error {
				return errOf(next.RenewBatch(ctx, leases[:min(len(leases), 500)]))
			}),
		},
		{
			name: "batches evaluate names as expressions", caught: []string{"batch/odd names"},
			make: each(func(_ *fixture, next driver.BatchRenewer, ctx context.Context, l driver.Lease) error {
				if strings.Contains(l.Name, "$") {
					return opErr(l.Name, driver.ErrLost)
				}
				return one(next, ctx, l)
			}),
		},
	}
}

func listerFaults() []fault {
	return []fault{
		{
			name: "lists are unsorted", says: `after "lt-`, caught: []string{"lister/prefix and order"},
			make: lists(func(_ *fixture, _ string, _, found []driver.Record) []driver.Record {
				slices.Reverse(found)
				return found
			}),
		},
		{
			name: "lists are sorted as people sort", caught: []string{"lister/prefix and order"},
			make: lists(func(_ *fixture, _ string, _, found []driver.Record) []driver.Record {
				slices.SortStableFunc(found, func(a, b driver.Record) int {
					return strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name))
				})
				return found
			}),
		},
		{
			name: "prefixes are patterns", caught: []string{"lister/prefix and order"},
			make: lists(func(_ *fixture, prefix string, all, _ []driver.Record) []driver.Record {
				pattern, err := regexp.Compile("^" + prefix)
				return slices.DeleteFunc(all, func(r driver.Record) bool { return err != nil || !pattern.MatchString(r.Name) })
			}),
		},
		{
			name: "free locks are not listed", caught: []string{"lister/records"},
			make: lists(func(_ *fixture, _ string, _, found []driver.Record) []driver.Record {
				return slices.DeleteFunc(found, func(r driver.Record) bool { return r.State == driver.StateFree })
			}),
		},
		{
			name: "lists end early", caught: []string{"lister/early end", "lister/records", "name/distinct"},
			make: lists(func(_ *fixture, _ string, _, found []driver.Record) []driver.Record {
				return found[:min(len(found), 1)]
			}),
		},
		{
			name: "lists ignore the context", caught: []string{"context/ended before", "close/ErrClosed"},
			make: lists(func(_ *fixture, _ string, _, found []driver.Record) []driver.Record { return found }),
		},
	}
}

func dataStoreFaults() []fault {
	stores := func(change func(w *fixture, d *dataFault)) func(*fixture, *faulty) {
		return func(w *fixture, f *faulty) {
			f.capabilities = func(a driver.Capabilities) driver.Capabilities {
				d := dataFault{DataStore: a.DataStore}
				change(w, &d)
				a.DataStore = d
				return a
			}
		}
	}
	return []fault{
		{
			name: "only the data of held locks are read", caught: []string{"datastore/read"},
			make: stores(func(w *fixture, d *dataFault) {
				d.read = func(ctx context.Context, name string) ([]byte, driver.DataRevision, error) {
					if w.record(name).State != driver.StateHeld {
						return nil, driver.DataRevision{}, nil
					}
					return d.DataStore.ReadData(ctx, name)
				}
			}),
		},
		{
			name: "no data are an empty slice", says: "want nil", caught: []string{"datastore/read"},
			make: stores(func(_ *fixture, d *dataFault) {
				next := d.DataStore
				d.read = func(ctx context.Context, name string) ([]byte, driver.DataRevision, error) {
					data, at, err := next.ReadData(ctx, name)
					return append([]byte{}, data...), at, err
				}
			}),
		},
		{
			name: "writes are lost", caught: []string{"datastore/write"},
			make: stores(func(_ *fixture, d *dataFault) {
				d.write = func(context.Context, driver.Lease, []byte, driver.DataRevision) error { return nil }
			}),
		},
		{
			name: "anybody may write", says: "want ErrLost", caught: []string{"datastore/stale write"},
			make: stores(func(w *fixture, d *dataFault) {
				next := d.DataStore
				d.write = func(ctx context.Context, l driver.Lease, data []byte, at driver.DataRevision) error {
					if err := next.WriteData(ctx, l, data, at); !errors.Is(err, driver.ErrLost) {
						return err
					}
					w.free(l.Name)
					_, err := w.plain.TryAcquire(ctx, driver.Request{Name: l.Name, ID: newID(), TTL: time.Hour, Data: data})
					return err
				}
			}),
		},
		{
			name: "writes do not compare revisions", says: "want ErrConflict", caught: []string{"datastore/late write", "datastore/one of many"},
			make: stores(func(w *fixture, d *dataFault) {
				d.write = func(ctx context.Context, l driver.Lease, data []byte, _ driver.DataRevision) error {
					return w.write(ctx, l, data)
				}
			}),
		},
		{
			name: "writes compare the number of writes, not the holder", caught: []string{"datastore/late write"},
			make: stores(func(w *fixture, d *dataFault) {
				next := d.DataStore
				d.write = func(ctx context.Context, l driver.Lease, data []byte, at driver.DataRevision) error {
					if at.Token != 0 {
						at.Token = l.Token
					}
					return next.WriteData(ctx, l, data, at)
				}
			}),
		},
		{
			name: "comparing and writing are two steps", says: "want one", caught: []string{"datastore/one of many"},
			make: stores(func(w *fixture, d *dataFault) {
				next := d.DataStore
				d.write = func(ctx context.Context, l driver.Lease, data []byte, at driver.DataRevision) error {
					if _, now, err := next.ReadData(ctx, l.Name); err != nil || now != at {
						return next.WriteData(ctx, l, data, at) // which says why not
					}
					time.Sleep(20 * time.Millisecond)
					return w.write(ctx, l, data)
				}
			}),
		},
		{
			name: "a new holder's data have the last one's revision", caught: []string{"datastore/revision"},
			make: stores(func(w *fixture, d *dataFault) {
				next := d.DataStore
				d.read = func(ctx context.Context, name string) ([]byte, driver.DataRevision, error) {
					data, at, err := next.ReadData(ctx, name)
					if first, ok := w.noted("first revision of " + name).(uint64); ok && err == nil {
						at.Token = first
					} else if at.Token != 0 {
						w.note("first revision of "+name, at.Token)
					}
					return data, at, err
				}
			}),
		},
	}
}
