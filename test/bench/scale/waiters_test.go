//go:build unix

package scale

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/bench"
)

// BenchmarkWaiters hands one lock over between 1,000 waiters in 10 processes. They do no work while
// they hold it. Each waiter must get it, with rising tokens. The time of a handoff is compared with that of an acquire and a release
// without waiters, before it.
func BenchmarkWaiters(b *testing.B) {
	const processes, waitersEach = 10, 100
	each := max(numberFrom(b, envGrants, 1000)/(processes*waitersEach), 1)
	backend := newBackend(b)
	alone := newClient(b, backend)
	for b.Loop() {
		var calls bench.Calls
		for range 300 {
			if err := calls.Round(b.Context(), alone, "free"); err != nil {
				b.Fatal(err)
			}
		}
		free := calls.AcquireAndRelease()
		f := startFleet(b, backend.URL(), processes, 1)
		commands := f.sent()
		f.send("crowd", "crowded", waitersEach, each)
		served := f.grants(processes*waitersEach*each, 10*time.Minute)
		commands = f.sent() - commands
		f.stop() // fails if a release failed
		f.end()
		checkOrder(b, served)
		took := betweenGrants(served)
		var longest time.Duration
		row, longestRow := 0, 0
		for i, g := range served {
			longest = max(longest, g.granted.Sub(g.arrived))
			if i > 0 && g.process != served[i-1].process {
				row = 0
			}
			row++
			longestRow = max(longestRow, row)
		}
		b.ReportMetric(0, "ns/op") // the time of the loop is meaningless
		b.ReportMetric(float64(len(served)), "handoffs")
		b.ReportMetric(milliseconds(took), "handoff-ms")
		b.ReportMetric(milliseconds(free), "acquire+release-ms")
		b.ReportMetric(float64(took)/float64(free), "handoff/acquire+release")
		b.ReportMetric(commands/float64(len(served)), "commands/handoff")
		b.ReportMetric(longest.Seconds(), "longest-wait-s")
		b.ReportMetric(float64(longestRow), "in-a-row")
	}
}
