// Package ratio compares two operations in one run. On a machine whose speed varies from
// second to second, only measurements taken close together can be compared.
package ratio

import (
	"math"
	"slices"
	"testing"
	"time"
)

// Result is the cost of an operation as a multiple of a baseline: the median over the pairs, and
// its 95 % confidence interval. The interval is computed from order statistics, so it is valid for
// every distribution.
type Result struct {
	Median, Low, High float64
	// Base and Ours are the median times of each.
	Base, Ours time.Duration
}

// Run measures pairs of calls of base and ours, with the pair's number as the argument. They take
// turns in coming first. A failed call ends the benchmark.
func Run(b *testing.B, pairs int, base, ours func(i int) error) Result {
	b.Helper()
	timed := func(call func(int) error, i int) time.Duration {
		start := time.Now()
		if err := call(i); err != nil {
			b.Fatal(err)
		}
		return time.Since(start)
	}
	var baseTimes, ourTimes []time.Duration
	for i := range pairs {
		var b, o time.Duration
		if i%2 == 0 {
			b = timed(base, i)
			o = timed(ours, i)
		} else {
			o = timed(ours, i)
			b = timed(base, i)
		}
		baseTimes, ourTimes = append(baseTimes, b), append(ourTimes, o)
	}
	return evaluate(baseTimes, ourTimes)
}

// Report adds the result to the metrics of the benchmark.
func (r Result) Report(b *testing.B) {
	b.Helper()
	b.ReportMetric(r.Median, "ratio")
	b.ReportMetric(r.Low, "ratio-low95")
	b.ReportMetric(r.High, "ratio-high95")
	b.ReportMetric(float64(r.Base.Microseconds()), "base-µs")
	b.ReportMetric(float64(r.Ours.Microseconds()), "ours-µs")
	b.ReportMetric(0, "ns/op") // the time of a pair is meaningless
}

func evaluate(base, ours []time.Duration) Result {
	ratios := make([]float64, len(base))
	for i := range base {
		ratios[i] = float64(ours[i]) / float64(max(base[i], 1))
	}
	slices.Sort(base)
	slices.Sort(ours)
	r := Result{Base: base[len(base)/2], Ours: ours[len(ours)/2]}
	r.Median, r.Low, r.High = Median(ratios)
	return r
}

// Median returns the median of at least one value, and its 95 % confidence interval from order
// statistics. With fewer than six values the interval is all of them, and less certain.
func Median(values []float64) (median, low, high float64) {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	// The rank of the true median in the sample is binomial, with n trials of
	// probability one half; this is its normal approximation, rounded outwards.
	half := int(math.Ceil(1.96 * math.Sqrt(float64(n)) / 2))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[max(n/2-half, 0)], sorted[min(n/2+half, n-1)]
}
