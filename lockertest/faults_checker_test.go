package lockertest

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

type checkFault struct {
	check  func(ctx context.Context, report func(driver.Finding)) error
	remove func(ctx context.Context, name string) error
}

func (f checkFault) Check(ctx context.Context, report func(driver.Finding)) error {
	return f.check(ctx, report)
}

func (f checkFault) RemoveProbe(ctx context.Context, name string) error { return f.remove(ctx, name) }

// examines makes a fault of the Checker: change may replace its methods.
func examines(change func(w *fixture, f *checkFault)) func(*fixture, *faulty) {
	return func(w *fixture, f *faulty) {
		next := f.Locker.Capabilities().Checker
		c := &checkFault{next.Check, next.RemoveProbe}
		change(w, c)
		f.capabilities = func(a driver.Capabilities) driver.Capabilities {
			a.Checker = c
			return a
		}
	}
}

func checkerFaults() []fault {
	reports := func(found driver.Finding) func(*fixture, *faulty) {
		return examines(func(_ *fixture, f *checkFault) {
			f.check = func(_ context.Context, report func(driver.Finding)) error {
				report(found)
				return nil
			}
		})
	}
	return []fault{
		{name: "Check reports nothing", says: "reported nothing", caught: []string{"checker/Check"},
			make: examines(func(_ *fixture, f *checkFault) {
				f.check = func(context.Context, func(driver.Finding)) error { return nil }
			})},
		{name: "Check reports a finding without a detail", caught: []string{"checker/Check"}, make: reports(driver.Finding{Subject: "x"})},
		{name: "Check reports a fault without a remedy", says: "without a remedy", caught: []string{"checker/Check"},
			make: reports(driver.Finding{Subject: "x", Detail: "y", Level: driver.LevelWrong})},
		{name: "Check removes free records", caught: []string{"checker/Check"}, make: examines(func(w *fixture, f *checkFault) {
			check := f.check
			f.check = func(ctx context.Context, report func(driver.Finding)) error {
				for r, err := range w.plain.List(ctx, "") {
					if err == nil && r.State == driver.StateFree {
						w.store.Remove(r.Name)
					}
				}
				return check(ctx, report)
			}
		})},
		{name: "RemoveProbe does nothing", says: "has left a record", caught: []string{"checker/RemoveProbe"},
			make: examines(func(_ *fixture, f *checkFault) {
				f.remove = func(context.Context, string) error { return nil }
			})},
		{name: "RemoveProbe removes every record", caught: []string{"checker/keeps", "checker/RemoveProbe"},
			make: forgets(examines(func(w *fixture, f *checkFault) {
				// The clock stands still, so a token is given twice.
				f.remove = func(_ context.Context, name string) error {
					w.forget(name)
					return nil
				}
			}))},
	}
}
