//go:build unix

package endtoend

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/bench"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// newBackend returns a backend on the shared replica set with a collection of its own.
func newBackend(b *testing.B, collection string) *bench.Backend {
	b.Helper()
	database := mongotest.Collection(b).Database().Name() // dropped at the benchmark's end
	hosts, options, _ := strings.Cut(mongotest.URI(b), "/?")
	return bench.NewBackend(hosts + "/" + database + "?" + options + "&collection=" + collection)
}

func newClient(b *testing.B, backend *bench.Backend, opts ...holdfast.ClientOption) *holdfast.Client {
	b.Helper()
	client, err := backend.Client(b.Context(), opts...)
	if err != nil {
		b.Fatal(err)
	}
	locktest.ShutDownAtEnd(b, client)
	return client
}

// reportLatency adds quantiles to the metrics of a benchmark.
func reportLatency(b *testing.B, what string, s *bench.Samples) {
	b.ReportMetric(float64(s.Quantile(0.5).Microseconds())/1000, what+"-p50-ms")
	b.ReportMetric(float64(s.Quantile(0.9).Microseconds())/1000, what+"-p90-ms")
	b.ReportMetric(float64(s.Quantile(0.99).Microseconds())/1000, what+"-p99-ms")
}

// ratio returns a divided by the sum of the others.
func ratio(a time.Duration, others ...time.Duration) float64 {
	var sum time.Duration
	for _, d := range others {
		sum += d
	}
	return float64(a) / float64(max(sum, 1))
}

// BenchmarkHandOver hands one lock over between two clients. It compares the time from the start of
// a release until the waiter holds the lock with the time of an acquire and a release without
// waiters, measured alternately.
func BenchmarkHandOver(b *testing.B) {
	backend := newBackend(b, "handoff")
	clients := [2]*holdfast.Client{newClient(b, backend), newClient(b, backend)}
	for b.Loop() {
		var calls bench.Calls
		var times bench.Samples
		if err := bench.HandOvers(b.Context(), clients, "handed-over", 300, &times, func() error {
			return calls.Round(b.Context(), clients[0], "free")
		}); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(0, "ns/op") // the time of the loop is meaningless
		reportLatency(b, "acquire", &calls.Acquire)
		reportLatency(b, "renew", &calls.Renew)
		reportLatency(b, "release", &calls.Release)
		reportLatency(b, "handoff", &times)
		b.ReportMetric(ratio(times.Quantile(0.5), calls.Acquire.Quantile(0.5), calls.Release.Quantile(0.5)), "handoff/acquire+release")
	}
}
