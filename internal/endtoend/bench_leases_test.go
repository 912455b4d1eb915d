//go:build unix

package endtoend

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/bench"
)

// Benchmarks that take minutes at their full size are short without these variables.
const (
	envHold      = "HOLDFAST_BENCH_HOLD"      // how long leases are held, such as 5m
	envHandOvers = "HOLDFAST_BENCH_HANDOVERS" // how often the waiters' lock passes on
	envArticle   = "HOLDFAST_BENCH_ARTICLE"   // not empty: the article's take-over too, in 3 minutes
)

func durationFrom(b *testing.B, env string, short time.Duration) time.Duration {
	b.Helper()
	value := os.Getenv(env)
	if value == "" {
		return short
	}
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		b.Fatalf("%s=%q: want a duration", env, value)
	}
	return d
}

// BenchmarkLeases holds leases with a TTL of 15 s in one process: that none is lost,
// what that asks of the servers, against a renewal of each at a time, and what it costs
// the process.
func BenchmarkLeases(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			backend := locksOf(b, "leases")
			holding := durationFrom(b, envHold, 15*time.Second)
			if n < 10000 {
				holding = min(holding, time.Minute)
			}
			for b.Loop() {
				held, err := bench.Hold(b.Context(), backend, "lease-", n, 15*time.Second, holding)
				if err != nil {
					b.Fatal(err)
				}
				if held.Lost > 0 {
					b.Errorf("%d of %d leases were lost", held.Lost, n)
				}
				b.ReportMetric(0, "ns/op") // the loop's own time says nothing
				b.ReportMetric(held.Holding/1000, "held-s")
				b.ReportMetric(float64(held.Lost), "lost")
				b.ReportMetric(held.Acquiring, "acquiring-ms")
				b.ReportMetric(held.Calls, "commands/s")
				b.ReportMetric(held.OneByOne/held.Calls, "one-by-one/batched")
				b.ReportMetric(held.CPU, "cpu-%")
				b.ReportMetric(held.Bytes, "bytes/lease")
				b.ReportMetric(float64(held.Goroutines), "goroutines")
			}
		})
	}
}
