//go:build unix

package scalebench

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/bench"
)

// BenchmarkQueue hands one lock over between processes that all wait for it. Each releases the lock
// at once and then waits again. Before each measurement the same lock is acquired and released
// without waiters, for comparison.
func BenchmarkQueue(b *testing.B) {
	const stagger = 5 * time.Millisecond
	s := startServers(b)
	m := newMeter(s)
	count := numberFrom(b, envFollowers, 200)
	handOvers := max(500, 2*count)
	for b.Loop() {
		commands, times, ratios, cpu, early, longest := series{}, series{}, series{}, series{}, series{}, series{}
		turns(b, numberFrom(b, envRounds, 2), func(_ int, way string) {
			f := startFleet(b, s, way, count)
			defer f.end()
			alone := s.client(way)
			var calls bench.Calls
			for range 100 {
				if err := calls.Round(b.Context(), alone, "queued"); err != nil {
					b.Fatal(err)
				}
			}
			free := calls.Acquire.Quantile(0.5) + calls.Release.Quantile(0.5)
			hold, err := alone.Lock(b.Context(), "queued")
			if err != nil {
				b.Fatal(err)
			}
			for _, w := range f.workers {
				w.send("queue", "queued", stagger.Nanoseconds())
			}
			time.Sleep(stagger*clientsPerWorker + 2*time.Second) // until they wait
			before := m.read()
			if err := hold.Release(b.Context()); err != nil {
				b.Fatal(err)
			}
			served := f.grants(handOvers, 10*time.Minute)
			used := m.read().minus(before)
			more, unserved := f.stop()
			checkOrder(b, served)
			each := served[len(served)-1].granted.Sub(served[0].granted) / time.Duration(len(served)-1)
			all := slices.Concat(served, more, unserved)
			fifo := order(all)
			commands.add(way, float64(used.total())/float64(len(served)))
			cpu.add(way, milliseconds(used.cpu)/float64(len(served)))
			times.add(way, milliseconds(each))
			ratios.add(way, float64(each)/float64(free))
			early.add(way, 100*fifo.early)
			longest.add(way, float64(fifo.longest)/float64(count))
			b.Logf("%s: %d hand-overs, %.1f commands each, %v each, %.2f × acquire + release; %.1f %% out of order, longest wait %.2f × the waiters; %v", way,
				len(served), commands[way][len(commands[way])-1], each, float64(each)/float64(free), 100*fifo.early, float64(fifo.longest)/float64(count), used.commands)
		})
		b.ReportMetric(0, "ns/op") // the time of the loop is meaningless
		b.ReportMetric(float64(count), "waiters")
		b.ReportMetric(float64(handOvers*numberFrom(b, envRounds, 2)), "hand-overs")
		commands.report(b, "commands/hand-over")
		cpu.report(b, "server-cpu-ms/hand-over")
		times.report(b, "hand-over-ms")
		ratios.report(b, "hand-over/acquire+release")
		early.report(b, "out-of-order-%")
		longest.report(b, "longest-wait/waiters")
	}
}

// checkOrder fails the benchmark if a token was granted before a lower one.
func checkOrder(b *testing.B, served []grant) {
	b.Helper()
	for i, g := range served[1:] {
		if g.token == served[i].token || g.granted.Before(served[i].granted) {
			b.Errorf("token %d was granted at %v, token %d at %v", g.token, g.granted, served[i].token, served[i].granted)
		}
	}
}

// fairness says how far grants follow the order of arrival.
type fairness struct {
	early   float64 // the part of the grants that passed a waiter who had come clearly earlier
	longest int     // the most grants during one wait, its own included
}

// order compares the order of grants, which is that of all but for the unserved ones at its end,
// with the order of arrival. Arrivals within the tolerance of each other have no order.
func order(all []grant) fairness {
	const tolerance = 50 * time.Millisecond
	var f fairness
	served := slices.IndexFunc(all, func(g grant) bool { return g.token == 0 })
	if served < 0 {
		served = len(all)
	}
	early := 0
	for i, g := range all {
		if i < served && slices.ContainsFunc(all[i+1:], func(later grant) bool { return g.arrived.Sub(later.arrived) > tolerance }) {
			early++
		}
		during := 0
		for _, other := range all[:min(i+1, served)] {
			if other.granted.After(g.arrived) {
				during++
			}
		}
		f.longest = max(f.longest, during)
	}
	f.early = float64(early) / float64(max(served, 1))
	return f
}
