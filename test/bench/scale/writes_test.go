//go:build unix

package scale

import (
	"context"
	"testing"
	"time"
)

// The phases of BenchmarkApplicationWrites.
const (
	alone     = iota // the application has the servers to itself
	connected        // the followers have connections and wait for nothing
	waiting          // the followers wait for a lock whose holder keeps it
	phases
)

// BenchmarkApplicationWrites measures what followers cost an application on the same servers. The
// application inserts documents as fast as it can, first without followers, then with their
// connections, then while they wait; in every other round the order is reversed.
func BenchmarkApplicationWrites(b *testing.B) {
	const phase, settling = 5 * time.Second, time.Second
	s := startServers(b)
	m := newMeter(s)
	app := startWorker(b, "application", s.URI(), 0)
	app.expect("ready")
	holder := s.client("poll")
	hold, err := holder.Lock(b.Context(), "led")
	if err != nil {
		b.Fatal(err)
	}
	defer hold.Release(context.WithoutCancel(b.Context()))
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
		rates, ratios, ofConnected, cpu, cpuRatio, cpuOfConnected := series{}, series{}, series{}, series{}, series{}, series{}
		turns(b, numberFrom(b, envRounds, 2), func(round int, way string) {
			var rate, seconds [phases]float64
			var f *fleet
			for i := range phases {
				p := i
				if round%2 == 1 {
					p = phases - 1 - i
				}
				switch {
				case p == alone && f != nil:
					f.end()
					time.Sleep(time.Second) // until the servers have ended the connections
				case p != alone && f == nil:
					f = startFleet(b, s.locks(way), count, clientsPerWorker)
				}
				if p == waiting {
					f.send("wait", "led")
					time.Sleep(5 * time.Second) // until they wait, and what they do first is over
				}
				rate[p], seconds[p] = measure()
				if p == waiting {
					f.stop()
				}
			}
			f.end()
			rates.add(way, rate[waiting])
			rates.add("alone", rate[alone])
			ratios.add(way, rate[waiting]/rate[alone])
			ofConnected.add(way, rate[waiting]/rate[connected])
			cpu.add(way, 1e6*seconds[waiting])
			cpu.add("alone", 1e6*seconds[alone])
			cpuRatio.add(way, seconds[waiting]/max(seconds[alone], 1e-9))
			cpuOfConnected.add(way, seconds[waiting]/max(seconds[connected], 1e-9))
			b.Logf("%s: %.0f inserts/s alone, %.0f with connections, %.0f with waiting: %.3f; servers' CPU per insert %.0f, %.0f, %.0f µs: %.3f",
				way,
				rate[alone], rate[connected], rate[waiting], rate[waiting]/rate[alone],
				1e6*seconds[alone], 1e6*seconds[connected], 1e6*seconds[waiting], seconds[waiting]/max(seconds[alone], 1e-9))
		})
		b.ReportMetric(float64(count), "followers")
		rates.report(b, "inserts/s")
		ratios.report(b, "inserts/alone")
		ofConnected.report(b, "inserts/connected")
		cpu.report(b, "server-cpu-µs/insert")
		cpuRatio.report(b, "server-cpu/alone")
		cpuOfConnected.report(b, "server-cpu/connected")
	}
}
