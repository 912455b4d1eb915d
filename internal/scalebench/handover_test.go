//go:build unix

package scalebench

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/bench"
)

// BenchmarkHandOver hands a lock over between two processes, in each way in turn, and alternately
// acquires and releases a lock that nobody waits for. The time runs from before the release until
// the other process holds the lock.
func BenchmarkHandOver(b *testing.B) {
	s := startServers(b)
	alone := s.client("poll")
	type pair struct{ holder, waiter *worker }
	pairs := map[string]*pair{}
	for _, way := range ways() {
		p := &pair{startWorker(b, "followers", s.locks(), way, 1), startWorker(b, "followers", s.locks(), way, 1)}
		p.holder.expect("ready")
		p.waiter.expect("ready")
		p.holder.send("lock", way)
		p.holder.expect("grant")
		pairs[way] = p
	}
	for b.Loop() {
		times, ratios, free := series{}, series{}, series{}
		turns(b, 100*numberFrom(b, envRounds, 2), func(round int, way string) {
			if way == "poll" && round%10 != 0 {
				return // it takes the poll interval
			}
			var calls bench.Calls
			if err := calls.Round(b.Context(), alone, "free"); err != nil {
				b.Fatal(err)
			}
			p := pairs[way]
			p.waiter.send("lock", way)
			time.Sleep(50 * time.Millisecond) // until it waits: a release before that would only make the result look better
			p.holder.send("release")
			released := p.holder.expect("released")[0]
			took := time.Duration(p.waiter.expect("grant")[3] - released)
			p.holder, p.waiter = p.waiter, p.holder
			apart := calls.Acquire.Quantile(1) + calls.Release.Quantile(1)
			times.add(way, milliseconds(took))
			free.add(way, milliseconds(apart))
			ratios.add(way, float64(took)/float64(apart))
		})
		b.ReportMetric(0, "ns/op") // the time of the loop is meaningless
		times.quantiles(b, "handoff-ms")
		free.quantiles(b, "acquire+release-ms")
		ratios.report(b, "handoff/acquire+release")
	}
}
