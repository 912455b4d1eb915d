package partitions

import (
	"slices"
	"testing"
	"time"
)

// BenchmarkPartitions distributes 256 partitions over 1, then 8, then 5 instances: first seven join
// at the same time, later two leave while one is disconnected. For each step it reports the time
// until the partitions are evenly distributed, and the number of moves and its minimum. The time of
// the last step includes the TTL of 15 s. The commands per minute are those of one idle instance:
// reads, and renewals of its 32 partitions and its membership, every 5 s.
func BenchmarkPartitions(b *testing.B) {
	const n, ttl = 256, 15 * time.Second
	var figures struct{ even1, even8, even5, moves8, least8, moves5, least5, reads, writes float64 }
	rounds := 0.0
	for b.Loop() {
		rounds++
		f := newFleet(b, n, ttl)
		f.join(1)
		figures.even1 += f.waitEven(30 * time.Second).Seconds()
		f.takeMoves()
		figures.least8 += float64(f.minMoves(nil, 7))
		f.join(7)
		figures.even8 += f.waitEven(60 * time.Second).Seconds()
		figures.moves8 += float64(f.takeMoves())
		one := f.live[0]
		reads, writes := one.reads.Load(), one.writes.Load()
		time.Sleep(30 * time.Second)
		figures.reads += 2 * float64(one.reads.Load()-reads)
		figures.writes += 2 * float64(one.writes.Load()-writes)
		gone := slices.Clone(f.live[:3])
		figures.least5 += float64(f.minMoves(gone, 0))
		f.disconnect(gone[0])
		begin := time.Now()
		f.leave(gone[1:]...)
		f.waitEven(ttl + 60*time.Second)
		figures.even5 += time.Since(begin).Seconds()
		figures.moves5 += float64(f.takeMoves())
		f.leave(f.live...)
	}
	b.ReportMetric(0, "ns/op") // the time of the loop is meaningless
	for unit, sum := range map[string]float64{
		"even-on-1-s": figures.even1, "even-on-8-s": figures.even8, "even-on-5-s": figures.even5,
		"moves-to-8": figures.moves8, "least-to-8": figures.least8, "moves-to-5": figures.moves5, "least-to-5": figures.least5,
		"idle-looks/min": figures.reads, "idle-renewals/min": figures.writes,
	} {
		b.ReportMetric(sum/rounds, unit)
	}
}
