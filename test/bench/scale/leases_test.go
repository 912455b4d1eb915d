//go:build unix

package scale

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/bench"
)

// BenchmarkLeases holds leases with a TTL of 15 s in one process. None is lost. It reports the
// commands to the servers, compared with a renewal of each lease by itself, and the cost in the
// process.
func BenchmarkLeases(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			backend := newBackend(b)
			holding := durationFrom(b, envHold, 15*time.Second)
			if n < 10000 {
				holding = min(holding, time.Minute)
			}
			for b.Loop() {
				held, err := bench.HoldLeases(b.Context(), backend, "lease-", n, 15*time.Second, holding)
				if err != nil {
					b.Fatal(err)
				}
				if held.Lost > 0 {
					b.Errorf("%d of %d leases were lost", held.Lost, n)
				}
				b.ReportMetric(0, "ns/op") // the time of the loop is meaningless
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
