package bench

import (
	"math"
	"slices"
	"sync"
	"time"
)

// Samples are measured durations. It is safe for concurrent use.
type Samples struct {
	mu  sync.Mutex
	all []time.Duration
}

// Add adds a duration.
func (s *Samples) Add(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, d)
}

// Sorted returns a copy, the shortest first.
func (s *Samples) Sorted() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(slices.Values(s.all))
}

// Quantile returns the duration that a fraction q (0 to 1) of the samples does not exceed; 0 if
// there are no samples.
func (s *Samples) Quantile(q float64) time.Duration { return quantile(s.Sorted(), q) }

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// Latency is a summary of samples, in milliseconds.
type Latency struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50Ms"`
	P90   float64 `json:"p90Ms"`
	P99   float64 `json:"p99Ms"`

	// Percentiles is the whole distribution, for plots: 101 values, the percentiles 0 (the
	// shortest) to 100 (the longest).
	Percentiles []float64 `json:"percentilesMs"`
}

// Latency returns the summary, or nil if there are no samples.
func (s *Samples) Latency() *Latency {
	sorted := s.Sorted()
	if len(sorted) == 0 {
		return nil
	}
	l := &Latency{Count: len(sorted), P50: ms(quantile(sorted, 0.5)), P90: ms(quantile(sorted, 0.9)), P99: ms(quantile(sorted, 0.99))}
	for p := range 101 {
		l.Percentiles = append(l.Percentiles, ms(sorted[max((p*len(sorted)+99)/100, 1)-1]))
	}
	return l
}

// ms returns a duration in milliseconds.
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
