package httpserver

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exposition"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// scrapeTimeout bounds the listing of one scrape. Prometheus itself waits for 10s by default.
const scrapeTimeout = 8 * time.Second

// LockMetrics are the metrics of the backend's locks. Each scrape lists them once; scrapes that come together share a listing.
type LockMetrics struct {
	limit   int // of locks with metrics of their own
	listing *Readiness
	latest  atomic.Pointer[lockview.Snapshot]
}

// NewLockMetrics makes the metrics of the locks whose names begin with prefix. At most limit locks have metrics of their own. The
// end of ctx ends a listing.
func NewLockMetrics(ctx context.Context, client *holdfast.Client, prefix string, limit int) *LockMetrics {
	m := &LockMetrics{limit: limit}
	m.listing = &Readiness{Context: ctx, Inspect: func(ctx context.Context) error {
		records, _, err := lockview.List(ctx, client, prefix) // a record that cannot be read hides no other
		if err == nil {
			m.latest.Store(&lockview.Snapshot{Records: records})
		}
		return err
	}}
	return m
}

// Wait waits for the end of the listing that is under way.
func (m *LockMetrics) Wait() { m.listing.Wait() }

// Families lists the locks.
func (m *LockMetrics) Families() []exposition.Family {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout) // the listing is also for scrapes that come meanwhile
	defer cancel()
	gauge := func(name, help string) exposition.Family {
		return exposition.Family{Name: name, Help: help, Type: exposition.Gauge}
	}
	listed := gauge("holdfast_locks_listed", "1 if the backend has listed its locks, 0 if that failed.")
	if m.listing.ask(ctx) != nil {
		listed.Add(0)
		return []exposition.Family{listed}
	}
	listed.Add(1)
	var (
		locks     = gauge("holdfast_locks", "Number of locks in a state.")
		omitted   = gauge("holdfast_locks_omitted", "Number of locks beyond --lock-metrics.")
		held      = gauge("holdfast_lock_held", "1 if the lock is held, 0 if it is free.")
		holders   = gauge("holdfast_lock_holders", "Number of holders: several if they share the lock.")
		age       = gauge("holdfast_lock_age_seconds", "Time since the lock was acquired.")
		remaining = gauge("holdfast_lock_remaining_seconds", "Time until the lease ends unless it is renewed.")
		waiters   = gauge("holdfast_lock_waiters", "Number of waiters with a position in the lock's queue.")
		token     = gauge("holdfast_lock_token", "Fencing token of the holder, or of the last one.")
	)
	s := m.latest.Load()
	counts := s.Count()
	for _, state := range lockview.States {
		locks.Add(float64(counts[state]), "state", state)
	}
	shown := s.Select(lockview.Selection{Sort: "held"})
	omitted.Add(float64(max(0, len(shown)-m.limit)))
	for _, r := range shown[:min(len(shown), m.limit)] {
		isHeld, count := 0.0, 0.0
		if r.State == driver.StateHeld {
			isHeld, count = 1, float64(max(1, len(r.Holders)))
			if !r.AcquiredAt.IsZero() {
				age.Add(max(0, time.Since(r.AcquiredAt).Seconds()), "lock", r.Name)
			}
			if r.RemainingKnown {
				remaining.Add(r.Remaining.Seconds(), "lock", r.Name)
			}
		}
		if slices.Contains([]driver.State{driver.StateHeld, driver.StateFree}, r.State) {
			held.Add(isHeld, "lock", r.Name)
			holders.Add(count, "lock", r.Name)
		}
		waiters.Add(float64(r.Waiters), "lock", r.Name)
		if r.Token != 0 {
			token.Add(float64(r.Token), "lock", r.Name)
		}
	}
	return []exposition.Family{listed, locks, omitted, held, holders, age, remaining, waiters, token}
}
