//go:build unix

package scale

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/bench"
)

// BenchmarkFileHandOver hands one lock over between two processes that share a folder. It compares
// that with the time of an acquire and a release without waiters, measured alternately.
func BenchmarkFileHandOver(b *testing.B) {
	const rounds = 300
	backend := bench.NewBackend("file:" + b.TempDir())
	alone, p := newClient(b, backend), startPair(b, backend.URL(), "handed-over")
	for b.Loop() {
		var free bench.Calls
		var handOvers bench.Samples
		for range rounds {
			if err := free.Round(b.Context(), alone, "free"); err != nil {
				b.Fatal(err)
			}
			handOvers.Add(p.handOver(20 * time.Millisecond))
		}
		reportHandOvers(b, &handOvers, &free)
	}
}

// BenchmarkFileStandby has one process hold 2,000 names and another one campaign for them, with the
// default settings. It reports the processor time of each, in percent of one processor.
func BenchmarkFileStandby(b *testing.B) {
	const names = 2000
	window := min(durationFrom(b, envHold, 30*time.Second), 2*time.Minute)
	url := "file:" + b.TempDir()
	holder, standby := startWorker(b, "followers", url, 1), startWorker(b, "followers", url, 1)
	holder.send("manage", names)
	for held := int64(0); held < names; held = holder.expect("managed")[0] {
		time.Sleep(100 * time.Millisecond)
		holder.send("managed")
	}
	standby.send("manage", names)
	time.Sleep(15 * time.Second) // by then it has tried each name
	for b.Loop() {
		begin, holding, waiting := time.Now(), processCPU(holder.pid), processCPU(standby.pid)
		time.Sleep(window)
		took := time.Since(begin)
		percent := func(used time.Duration) float64 { return 100 * used.Seconds() / took.Seconds() }
		b.ReportMetric(0, "ns/op") // the time of the loop is meaningless
		b.ReportMetric(percent(processCPU(standby.pid)-waiting), "standby-cpu-%")
		b.ReportMetric(percent(processCPU(holder.pid)-holding), "holder-cpu-%")
	}
}
