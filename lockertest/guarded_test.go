package lockertest

import (
	"context"
	"iter"

	"github.com/holdfast-go/holdfast/driver"
)

// guarded runs functions before and after each call that takes a context. before may replace the
// context or refuse the call. after may replace the error.
type guarded struct {
	driver.Locker
	before func(ctx context.Context, name string) (context.Context, error)
	after  func(name, id string, err error) error
}

// guard runs before in front of every method of a Locker and its capabilities.
func guard(f *faulty, before func(context.Context, string) (context.Context, error)) {
	f.Locker = &guarded{f.Locker, before, func(_, _ string, err error) error { return err }}
}

// fails makes a fault of the errors: change replaces each error.
func fails(change func(name, id string, err error) error) func(*fixture, *faulty) {
	return func(_ *fixture, f *faulty) {
		f.Locker = &guarded{f.Locker, func(ctx context.Context, _ string) (context.Context, error) { return ctx, nil },
			func(name, id string, err error) error {
				if err != nil {
					return change(name, id, err)
				}
				return nil
			}}
	}
}

// stallable makes a Locker without faults, whose store can be made to hang.
func stallable(w *fixture, f *faulty) {
	guard(f, func(ctx context.Context, name string) (context.Context, error) { return ctx, w.wait(ctx, name) })
}

func (g *guarded) do(ctx context.Context, name, id string, call func(context.Context) error) error {
	ctx, err := g.before(ctx, name)
	if err == nil {
		err = call(ctx)
	}
	return g.after(name, id, err)
}

func (g *guarded) TryAcquire(ctx context.Context, req driver.Request) (lease driver.Lease, err error) {
	err = g.do(ctx, req.Name, req.ID.Reveal(), func(ctx context.Context) error {
		lease, err = g.Locker.TryAcquire(ctx, req)
		return err
	})
	return lease, err
}

func (g *guarded) Renew(ctx context.Context, l driver.Lease) error {
	return g.do(ctx, l.Name, l.ID.Reveal(), func(ctx context.Context) error { return g.Locker.Renew(ctx, l) })
}

func (g *guarded) Release(ctx context.Context, l driver.Lease) error {
	return g.do(ctx, l.Name, l.ID.Reveal(), func(ctx context.Context) error { return g.Locker.Release(ctx, l) })
}

func (g *guarded) Inspect(ctx context.Context, name string) (r driver.Record, err error) {
	err = g.do(ctx, name, "", func(ctx context.Context) error {
		r, err = g.Locker.Inspect(ctx, name)
		return err
	})
	return r, err
}

func (g *guarded) Capabilities() driver.Capabilities {
	a := g.Locker.Capabilities()
	return driver.Capabilities{
		Watcher:        a.Watcher,
		Queue:          a.Queue,
		HandOverer:     guardedHandOverer{a.HandOverer, g},
		BatchRenewer:   guardedBatchRenewer{a.BatchRenewer, g},
		BatchInspector: guardedBatchInspector{a.BatchInspector, g},
		Lister:         guardedLister{a.Lister, g},
		Breaker:        guardedBreaker{a.Breaker, g},
		DataStore:      guardedDataStore{a.DataStore, g},
		History:        a.History,
		Checker:        guardedChecker{a.Checker, g},
	}
}

type guardedHandOverer struct {
	driver.HandOverer
	g *guarded
}

func (h guardedHandOverer) HandOver(ctx context.Context, from driver.Lease, req driver.Request) (lease driver.Lease, err error) {
	err = h.g.do(ctx, req.Name, req.ID.Reveal(), func(ctx context.Context) error {
		lease, err = h.HandOverer.HandOver(ctx, from, req)
		return err
	})
	return lease, err
}

type guardedBatchRenewer struct {
	driver.BatchRenewer
	g *guarded
}

func (b guardedBatchRenewer) RenewBatch(ctx context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	for i, l := range leases {
		errs[i] = b.g.do(ctx, l.Name, l.ID.Reveal(), func(ctx context.Context) error {
			return b.BatchRenewer.RenewBatch(ctx, []driver.Lease{l})[0]
		})
	}
	return errs
}

type guardedBatchInspector struct {
	driver.BatchInspector
	g *guarded
}

func (b guardedBatchInspector) InspectBatch(ctx context.Context, names []string) ([]driver.Record, []error) {
	records, errs := make([]driver.Record, len(names)), make([]error, len(names))
	for i, name := range names {
		errs[i] = b.g.do(ctx, name, "", func(ctx context.Context) error {
			one, errs := b.BatchInspector.InspectBatch(ctx, []string{name})
			records[i] = one[0]
			return errs[0]
		})
	}
	return records, errs
}

type guardedLister struct {
	driver.Lister
	g *guarded
}

func (l guardedLister) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		ctx, err := l.g.before(ctx, prefix)
		if err != nil {
			yield(driver.Record{}, err)
			return
		}
		for r, err := range l.Lister.List(ctx, prefix) {
			if !yield(r, err) {
				return
			}
		}
	}
}

type guardedBreaker struct {
	driver.Breaker
	g *guarded
}

func (b guardedBreaker) Break(ctx context.Context, name string, token uint64) error {
	return b.g.do(ctx, name, "", func(ctx context.Context) error { return b.Breaker.Break(ctx, name, token) })
}

func (b guardedBreaker) BreakNow(ctx context.Context, name string, token uint64) error {
	return b.g.do(ctx, name, "", func(ctx context.Context) error { return b.Breaker.BreakNow(ctx, name, token) })
}

type guardedChecker struct {
	driver.Checker
	g *guarded
}

func (c guardedChecker) Check(ctx context.Context, report func(driver.Finding)) error {
	return c.g.do(ctx, "", "", func(ctx context.Context) error { return c.Checker.Check(ctx, report) })
}

func (c guardedChecker) RemoveProbe(ctx context.Context, name string) error {
	return c.g.do(ctx, name, "", func(ctx context.Context) error { return c.Checker.RemoveProbe(ctx, name) })
}

type guardedDataStore struct {
	driver.DataStore
	g *guarded
}

func (d guardedDataStore) ReadData(ctx context.Context, name string) (data []byte, at driver.DataRevision, err error) {
	err = d.g.do(ctx, name, "", func(ctx context.Context) error {
		data, at, err = d.DataStore.ReadData(ctx, name)
		return err
	})
	return data, at, err
}

func (d guardedDataStore) WriteData(ctx context.Context, l driver.Lease, data []byte, at driver.DataRevision) error {
	return d.g.do(ctx, l.Name, l.ID.Reveal(), func(ctx context.Context) error { return d.DataStore.WriteData(ctx, l, data, at) })
}
