package httpserver

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// scrapeTimeout bounds the listing of one scrape. Prometheus itself waits for 10s by default.
const scrapeTimeout = 8 * time.Second

var (
	descListed    = prom.NewDesc("holdfast_locks_listed", "1 if the backend has listed its locks, 0 if that failed.", nil, nil)
	descLocks     = prom.NewDesc("holdfast_locks", "Number of locks in a state.", []string{"state"}, nil)
	descOmitted   = prom.NewDesc("holdfast_locks_omitted", "Number of locks beyond --lock-metrics.", nil, nil)
	descHeld      = prom.NewDesc("holdfast_lock_held", "1 if the lock is held, 0 if it is free.", []string{"lock"}, nil)
	descHolders   = prom.NewDesc("holdfast_lock_holders", "Number of holders: several if they share the lock.", []string{"lock"}, nil)
	descAge       = prom.NewDesc("holdfast_lock_age_seconds", "Time since the lock was acquired.", []string{"lock"}, nil)
	descRemaining = prom.NewDesc("holdfast_lock_remaining_seconds", "Time until the lease ends unless it is renewed.", []string{"lock"}, nil)
	descWaiters   = prom.NewDesc("holdfast_lock_waiters", "Number of waiters with a position in the lock's queue.", []string{"lock"}, nil)
	descToken     = prom.NewDesc("holdfast_lock_token", "Fencing token of the holder, or of the last one.", []string{"lock"}, nil)
)

// LockMetrics are the metrics of the backend's locks. Each scrape lists them once; scrapes that come together share a listing.
type LockMetrics struct {
	limit   int // of locks with metrics of their own
	listing *Readiness
	latest  atomic.Pointer[lockview.Snapshot]
}

// NewLockMetrics makes the metrics of the locks whose names begin with prefix. At most limit locks have metrics of their own.
func NewLockMetrics(client *holdfast.Client, prefix string, limit int) *LockMetrics {
	m := &LockMetrics{limit: limit}
	m.listing = &Readiness{Inspect: func(ctx context.Context) error {
		records, _, err := lockview.List(ctx, client, prefix) // a record that cannot be read hides no other
		if err == nil {
			m.latest.Store(&lockview.Snapshot{Records: records})
		}
		return err
	}}
	return m
}

// Describe is empty, so that a collector without locks is allowed.
func (m *LockMetrics) Describe(chan<- *prom.Desc) {}

// Collect lists the locks.
func (m *LockMetrics) Collect(out chan<- prom.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	gauge := func(desc *prom.Desc, value float64, labels ...string) {
		// A name in a store that anybody may write to may not be UTF-8, which no label can have.
		if metric, err := prom.NewConstMetric(desc, prom.GaugeValue, value, labels...); err == nil {
			out <- metric
		}
	}
	if m.listing.ask(ctx) != nil {
		gauge(descListed, 0)
		return
	}
	gauge(descListed, 1)
	s := m.latest.Load()
	counts := s.Count()
	for _, state := range lockview.States {
		gauge(descLocks, float64(counts[state]), state)
	}
	shown := s.Select(lockview.Selection{Sort: "held"})
	gauge(descOmitted, float64(max(0, len(shown)-m.limit)))
	for _, r := range shown[:min(len(shown), m.limit)] {
		held, holders := 0.0, 0.0
		if r.State == driver.StateHeld {
			held, holders = 1, float64(max(1, len(r.Holders)))
			if !r.AcquiredAt.IsZero() {
				gauge(descAge, max(0, time.Since(r.AcquiredAt).Seconds()), r.Name)
			}
			if r.RemainingKnown {
				gauge(descRemaining, r.Remaining.Seconds(), r.Name)
			}
		}
		if slices.Contains([]driver.State{driver.StateHeld, driver.StateFree}, r.State) {
			gauge(descHeld, held, r.Name)
			gauge(descHolders, holders, r.Name)
		}
		gauge(descWaiters, float64(r.Waiters), r.Name)
		if r.Token != 0 {
			gauge(descToken, float64(r.Token), r.Name)
		}
	}
}
