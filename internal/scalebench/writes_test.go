//go:build unix

package scalebench

import (
	"context"
	"testing"
	"time"
)

// BenchmarkApplicationWrites measures what followers cost an application on the same servers. The
// application inserts documents as fast as it can. It has the servers to itself in one phase, and
// shares them with the followers of a held lock in the next one; the order of the two changes. The
// followers connect before their phase and end after it, so the other phase has none of their
// connections.
func BenchmarkApplicationWrites(b *testing.B) {
	const phase, settling = 6 * time.Second, time.Second
	s := startServers(b)
	m := newMeter(s)
	app := startWorker(b, "application", s.URI(), "", 0)
	app.expect("ready")
	holder := s.client("poll")
	hold, err := holder.Lock(b.Context(), "led")
	if err != nil {
		b.Fatal(err)
	}
	defer hold.Release(context.WithoutCancel(b.Context())) //nolint:errcheck // the servers end with the benchmark
	count := numberFrom(b, envFollowers, 200)
	measure := func() (perSecond, cpuPerInsert float64) {
		app.send("begin")
		time.Sleep(settling)
		before := m.read()
		began := time.Now()
		time.Sleep(phase)
		used := m.read().minus(before)
		took := time.Since(began)
		app.send("end")
		n := app.expect("inserted")
		perSecond = float64(n[0]) / time.Duration(n[1]).Seconds()
		return perSecond, used.cpu.Seconds() / (perSecond * took.Seconds())
	}
	for b.Loop() {
		rate, alone, cpu, cpuAlone, ratio, cpuRatio := series{}, series{}, series{}, series{}, series{}, series{}
		turns(b, numberFrom(b, envRounds, 2), func(round int, way string) {
			var perSecond, seconds [2]float64 // without followers, and with them
			for i := range 2 {
				with := (i + round) % 2
				var f *fleet
				if with == 1 {
					f = startFleet(b, s, way, count)
					f.send("wait", "led")
					time.Sleep(2 * time.Second) // until they wait
				}
				perSecond[with], seconds[with] = measure()
				if f != nil {
					f.end()
				}
			}
			rate.add(way, perSecond[1])
			alone.add(way, perSecond[0])
			cpu.add(way, 1e6*seconds[1])
			cpuAlone.add(way, 1e6*seconds[0])
			ratio.add(way, perSecond[1]/perSecond[0])
			cpuRatio.add(way, seconds[1]/max(seconds[0], 1e-9))
			b.Logf("%s: %.0f inserts/s against %.0f, ratio %.3f; servers' CPU per insert %.0f µs against %.0f, ratio %.3f", way,
				perSecond[1], perSecond[0], perSecond[1]/perSecond[0], 1e6*seconds[1], 1e6*seconds[0], seconds[1]/max(seconds[0], 1e-9))
		})
		b.ReportMetric(0, "ns/op") // the time of the loop is meaningless
		b.ReportMetric(float64(count), "followers")
		rate.report(b, "inserts/s")
		alone.report(b, "inserts/s-alone")
		ratio.report(b, "inserts/alone")
		cpu.report(b, "server-cpu-µs/insert")
		cpuAlone.report(b, "server-cpu-µs/insert-alone")
		cpuRatio.report(b, "server-cpu/alone")
	}
}
