package partbench

import (
	"slices"
	"testing"
	"time"
)

// BenchmarkPartitions spreads 256 partitions over 1, then 8, then 5 instances: seven
// join at once; two leave and one is cut off at once. It reports the time until the
// partitions are even, from when that begins, and the moves against the least
// possible; for the last step the TTL of 15 s is part of the time. The commands per minute
// are one instance's while nothing happens: reads of the group, and renewals of its 32
// partitions and its membership (every 5 s).
func BenchmarkPartitions(b *testing.B) {
	const n, ttl = 256, 15 * time.Second
	var figures struct{ even1, even8, even5, moves8, least8, moves5, least5, finds, writes float64 }
	rounds := 0.0
	for b.Loop() {
		rounds++
		f := newFleet(b, n, ttl)
		f.join(1)
		figures.even1 += f.untilEven(30 * time.Second).Seconds()
		f.takeMoves()
		figures.least8 += float64(f.leastMoves(nil, 7))
		f.join(7)
		figures.even8 += f.untilEven(60 * time.Second).Seconds()
		figures.moves8 += float64(f.takeMoves())
		one := f.live[0]
		finds, writes := one.finds.Load(), one.writes.Load()
		time.Sleep(30 * time.Second)
		figures.finds += 2 * float64(one.finds.Load()-finds)
		figures.writes += 2 * float64(one.writes.Load()-writes)
		gone := slices.Clone(f.live[:3])
		figures.least5 += float64(f.leastMoves(gone, 0))
		f.kill(gone[0])
		begin := time.Now()
		f.leave(gone[1:]...)
		f.untilEven(ttl + 60*time.Second)
		figures.even5 += time.Since(begin).Seconds()
		figures.moves5 += float64(f.takeMoves())
		f.leave(f.live...)
	}
	b.ReportMetric(0, "ns/op") // the loop's own time says nothing
	for unit, sum := range map[string]float64{
		"even-on-1-s": figures.even1, "even-on-8-s": figures.even8, "even-on-5-s": figures.even5,
		"moves-to-8": figures.moves8, "least-to-8": figures.least8, "moves-to-5": figures.moves5, "least-to-5": figures.least5,
		"idle-looks/min": figures.finds, "idle-renewals/min": figures.writes,
	} {
		b.ReportMetric(sum/rounds, unit)
	}
}
