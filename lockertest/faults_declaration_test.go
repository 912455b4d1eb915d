package lockertest

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// declarationFaults are of drivers that declare more than they keep.
func declarationFaults() []fault {
	const day = 24 * time.Hour
	free := func(change func(w *fixture, r *driver.Record)) func(*fixture, *faulty) {
		return inspects(func(w *fixture, r *driver.Record) {
			if r.State == driver.StateFree {
				change(w, r)
			}
		})
	}
	return []fault{
		{
			name: "GrantsSurvive, and a fail-over forgets the last grant", says: "after a fail-over another request",
			caught: []string{"failover/grants survive"},
			make: func(w *fixture, f *faulty) {
				f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					lease, err := f.Locker.TryAcquire(ctx, req)
					if err == nil {
						w.note("lost in a fail-over", req.Name)
					}
					return lease, err
				}
			},
		},
		{
			name: "ByServer, and a lease is judged by observation", says: "as if leases were judged by observation",
			caught: []string{"expiry/a new Locker"},
			make: func(w *fixture, f *faulty) {
				var mu sync.Mutex
				seen := map[string]time.Time{}
				f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					mu.Lock()
					defer mu.Unlock()
					r := w.record(req.Name)
					if seen[req.Name].IsZero() {
						seen[req.Name] = w.now()
					}
					if r.Token != 0 && w.now().Sub(seen[req.Name]) < 15*time.Second { // whose lease it is does not matter here
						return driver.Lease{}, heldErr(driver.Record{Name: r.Name, State: driver.StateHeld})
					}
					return f.Locker.TryAcquire(ctx, req)
				}
			},
		},
		{
			name: "Free.Token, and a free lock shows none", says: "is 0, want", caught: []string{"free/token", "free/stays"},
			make: free(func(_ *fixture, r *driver.Record) { r.Token = 0 }),
		},
		{
			name: "Free.Data, and they end with the lease", says: "the data of a lock that has expired are nil", caught: []string{"free/data"},
			make: free(func(w *fixture, r *driver.Record) {
				if len(r.History) == 0 || r.History[0].End == driver.EndExpired {
					r.Data = nil
				}
			}),
		},
		{
			name: "Free.Data, and the next holder does not find them", says: "held by the next", caught: []string{"free/data"},
			make: inspects(func(w *fixture, r *driver.Record) {
				if r.State == driver.StateHeld && len(r.History) > 0 {
					r.Data = nil
				}
			}),
		},
		{
			name: "RemovedAfter is 0, and a record is removed after a day", says: "after its release a lock is free with token 0",
			caught: []string{"free/stays"},
			make: free(func(w *fixture, r *driver.Record) {
				if len(r.History) > 0 && w.now().Sub(r.History[0].Until) > day {
					*r = driver.Record{Name: r.Name, State: driver.StateFree}
				}
			}),
		},
	}
}
