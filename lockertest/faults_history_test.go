package lockertest

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// everyTenure makes a fault of the histories: change may alter each past holder.
func everyTenure(change func(w *fixture, t *driver.Tenure)) func(*fixture, *faulty) {
	return inspects(func(w *fixture, r *driver.Record) {
		for i := range r.History {
			change(w, &r.History[i])
		}
	})
}

func historyFaults() []fault {
	allEnds := []string{"history/expired", "history/broken", "history/released", "history/freed", "history/taken over", "history/own copy"}
	others := slices.DeleteFunc(slices.Clone(allEnds), func(name string) bool {
		return name == "history/released" ||
			name == "history/own copy"
	})
	return []fault{
		{
			name: "no history", says: "no history", caught: append(allEnds, "history/bounded", "history/no tenure"),
			make: inspects(func(_ *fixture, r *driver.Record) { r.History = nil }),
		},
		{
			name: "no end is known", says: `"unknown"`, caught: allEnds,
			make: everyTenure(func(_ *fixture, t *driver.Tenure) { t.End = driver.EndUnknown }),
		},
		{
			name: "every holder has released the lock", caught: others,
			make: everyTenure(func(_ *fixture, t *driver.Tenure) { t.End = driver.EndReleased }),
		},
		{
			name: "every lease has expired", caught: []string{"history/released", "history/broken", "history/freed"},
			make: everyTenure(func(_ *fixture, t *driver.Tenure) { t.End = driver.EndExpired }),
		},
		{
			name: "the history is in the order of the grants", says: "before token", caught: []string{"history/released", "history/bounded"},
			make: inspects(func(_ *fixture, r *driver.Record) { slices.Reverse(r.History) }),
		},
		{
			name: "the history has only the last holder", caught: []string{"history/released", "history/bounded"},
			make: inspects(func(_ *fixture, r *driver.Record) { r.History = r.History[:min(len(r.History), 1)] }),
		},
		{
			name: "the history is longer than the driver says", says: "want at most 4", caught: []string{"history/bounded"},
			make: func(_ *fixture, f *faulty) {
				f.info = func(i driver.Info) driver.Info { i.History = 4; return i }
			},
		},
		{
			name: "the history has the present holder", says: "before token", caught: []string{"history/no tenure", "history/released"},
			make: inspects(func(_ *fixture, r *driver.Record) {
				if r.State == driver.StateHeld {
					r.History = append([]driver.Tenure{{Owner: r.Owner, Token: r.Token, From: r.AcquiredAt}}, r.History...)
				}
			}),
		},
		{
			name: "the history lacks the last holder of a free lock", caught: []string{"history/released", "history/expired", "history/freed"},
			make: inspects(func(_ *fixture, r *driver.Record) {
				if r.State == driver.StateFree && len(r.History) > 0 {
					r.History = r.History[1:]
				}
			}),
		},
		{
			name: "another's owner is in the history", says: "the history has owner", caught: allEnds,
			make: everyTenure(func(_ *fixture, t *driver.Tenure) { t.Owner = "another" }),
		},
		{
			name: "a tenure begins when it is read", says: "was held from", caught: []string{"history/released"},
			make: everyTenure(func(w *fixture, t *driver.Tenure) { t.From = w.now() }),
		},
		{
			name: "a lease that expired was held until it is read", says: "lasted", caught: []string{"history/expired"},
			make: everyTenure(func(w *fixture, t *driver.Tenure) { t.Until = w.now() }),
		},
		{
			name: "a tenure has no end", says: "until when", caught: allEnds,
			make: everyTenure(func(_ *fixture, t *driver.Tenure) { t.Until = time.Time{} }),
		},
		{
			name: "records share their history", caught: []string{"history/own copy"},
			make: inspects(func(w *fixture, r *driver.Record) {
				if shared, ok := w.noted("history of " + r.Name).([]driver.Tenure); ok && len(shared) == len(r.History) {
					r.History = shared
				} else {
					w.note("history of "+r.Name, r.History)
				}
			}),
		},
	}
}
