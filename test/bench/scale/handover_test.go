//go:build unix

package scale

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/bench"
)

// pause is how long each lock is held before its release, so that the other process waits for it by then.
const pause = 50 * time.Millisecond

// BenchmarkHandOver hands a lock over between two processes, in each way in turn, and alternately
// acquires and releases a lock that nobody waits for. The time runs from before the release until
// the other process holds the lock.
//
// The holder has kept its lock for a pause before the release, and each command takes longer after a
// pause, since the servers and the processors were idle. So there are two comparisons: with an acquire
// and a release in quick succession, which favors those, and with an acquire and a release that each
// follow a pause, which favors the handoff: only its release follows one.
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
		times, freeTimes := series{}, series{}
		quickRatios, pausedRatios := series{}, series{}
		turns(b, 100*numberFrom(b, envRounds, 2), func(round int, way string) {
			if way == "poll" && round%10 != 0 {
				return // it takes the poll interval
			}
			var quick bench.Calls
			if err := quick.Round(b.Context(), alone, "free"); err != nil {
				b.Fatal(err)
			}
			paused := afterPauses(b, alone)
			p := pairs[way]
			p.waiter.send("lock", way)
			time.Sleep(pause) // a release before it waits would only make the result look better
			p.holder.send("release")
			released := p.holder.expect("released")[0]
			took := time.Duration(p.waiter.expect("grant")[3] - released)
			p.holder, p.waiter = p.waiter, p.holder
			free := quick.Acquire.Quantile(1) + quick.Release.Quantile(1)
			times.add(way, milliseconds(took))
			freeTimes.add(way, milliseconds(free))
			quickRatios.add(way, float64(took)/float64(free))
			pausedRatios.add(way, float64(took)/float64(paused))
		})
		b.ReportMetric(0, "ns/op") // the time of the loop is meaningless
		times.quantiles(b, "handoff-ms")
		freeTimes.quantiles(b, "acquire+release-ms")
		quickRatios.report(b, "handoff/acquire+release")
		pausedRatios.report(b, "handoff/acquire+release-after-pauses")
	}
}

// afterPauses returns the time of an acquire and a release that each follow a pause.
func afterPauses(b *testing.B, client *holdfast.Client) time.Duration {
	b.Helper()
	time.Sleep(pause)
	begin := time.Now()
	hold, err := client.TryLock(b.Context(), "free")
	acquire := time.Since(begin)
	if err != nil {
		b.Fatal(err)
	}
	time.Sleep(pause)
	begin = time.Now()
	if err := hold.Release(b.Context()); err != nil {
		b.Fatal(err)
	}
	return acquire + time.Since(begin)
}
