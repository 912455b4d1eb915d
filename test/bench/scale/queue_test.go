//go:build unix

package scale

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/bench"
)

// BenchmarkQueue hands one lock over between processes that all wait for it. Each releases the lock
// at once and then waits again. Before each measurement the same lock is acquired and released
// without waiters, for comparison.
func BenchmarkQueue(b *testing.B) {
	const step = 20 * time.Millisecond // between two arrivals at the beginning
	s := startServers(b)
	m := newMeter(s)
	count := numberFrom(b, envFollowers, 200)
	handOvers := max(500, 2*count)
	for b.Loop() {
		commands, times, ratios, cpu, passed, longest := series{}, series{}, series{}, series{}, series{}, series{}
		turns(b, numberFrom(b, envRounds, 2), func(round int, way string) {
			name := fmt.Sprint("queued-", way, "-", round)
			f := startFleet(b, s.locks(way), count, clientsPerWorker)
			defer f.end()
			alone := s.client(way)
			var calls bench.Calls
			for range 100 {
				if err := calls.Round(b.Context(), alone, name); err != nil {
					b.Fatal(err)
				}
			}
			free := calls.AcquireAndRelease()
			hold, err := alone.Lock(b.Context(), name)
			if err != nil {
				b.Fatal(err)
			}
			begin := time.Now()
			for i, w := range f.workers {
				w.send("queue", name, begin.Add(time.Duration(i*clientsPerWorker)*step).UnixNano(), step.Nanoseconds())
			}
			time.Sleep(time.Duration(count)*step + time.Second) // until they wait
			before := m.read()
			if err := hold.Release(b.Context()); err != nil {
				b.Fatal(err)
			}
			served := f.grants(handOvers, 10*time.Minute)
			used := m.read().minus(before)
			more, unserved := f.stop()
			checkOrder(b, served)
			each := betweenGrants(served)
			all := slices.Concat(served, more, unserved)
			fifo := order(all)
			commands.add(way, float64(used.total())/float64(len(served)))
			cpu.add(way, milliseconds(used.cpu)/float64(len(served)))
			times.add(way, milliseconds(each))
			ratios.add(way, float64(each)/float64(free))
			passed.add(way, 100*fifo.passed)
			longest.add(way, float64(fifo.longest)/float64(count))
			b.Logf("%s: %d handoffs, %.1f commands each, %v each, %.2f × acquire + release; %.1f %% of the waits passed by a later one, longest "+
				"wait %.2f × the waiters; %v", way,
				len(served), commands[way][len(commands[way])-1], each, float64(each)/float64(free), 100*fifo.passed,
				float64(fifo.longest)/float64(count), used.commands)
		})
		b.ReportMetric(float64(count), "waiters")
		b.ReportMetric(float64(handOvers*numberFrom(b, envRounds, 2)), "handoffs")
		commands.report(b, "commands/handoff")
		cpu.report(b, "server-cpu-ms/handoff")
		times.report(b, "handoff-ms")
		ratios.report(b, "handoff/acquire+release")
		passed.report(b, "passed-waits-%")
		longest.report(b, "longest-wait/waiters")
	}
}

// betweenGrants returns the mean time from one grant to the next.
func betweenGrants(served []grant) time.Duration {
	return served[len(served)-1].granted.Sub(served[0].granted) / time.Duration(len(served)-1)
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
	passed  float64 // the part of the waits during which a waiter was served who had come clearly later
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
	passed := 0
	for i, g := range all {
		before := all[:min(i+1, served)]
		if slices.ContainsFunc(before, func(other grant) bool { return other.arrived.Sub(g.arrived) > tolerance }) {
			passed++
		}
		during := 0
		for _, other := range before {
			if other.granted.After(g.arrived) {
				during++
			}
		}
		f.longest = max(f.longest, during)
	}
	f.passed = float64(passed) / float64(max(len(all), 1))
	return f
}
