//go:build unix

package scale

import (
	"context"
	"testing"
	"time"
)

// BenchmarkIdleFollowers measures what followers of a lock cost whose holder keeps it: the commands that
// they send, and the servers' processor time. What the servers do without followers in the same time is
// subtracted. The servers' own count of commands has some that they send to themselves.
func BenchmarkIdleFollowers(b *testing.B) {
	const phase = 30 * time.Second
	s := startServers(b)
	m := newMeter(s)
	holder := s.client("poll")
	hold, err := holder.Lock(b.Context(), "led")
	if err != nil {
		b.Fatal(err)
	}
	defer hold.Release(context.WithoutCancel(b.Context()))
	count := numberFrom(b, envFollowers, 200)
	measure := func() (used counters, open int64) {
		before := m.read()
		time.Sleep(phase)
		after := m.read()
		return after.minus(before), after.open
	}
	for b.Loop() {
		commands, cpu, connected, connections := series{}, series{}, series{}, series{}
		turns(b, numberFrom(b, envRounds, 2), func(_ int, way string) {
			alone, before := measure()
			f := startFleet(b, s.locks(way), count, clientsPerWorker)
			time.Sleep(time.Second)
			idle, _ := measure() // connected, and waiting for nothing
			f.send("wait", "led")
			time.Sleep(12 * time.Second) // until what they do first is over
			sent := f.sent()
			used, open := measure()
			sent = f.sent() - sent
			f.end()
			each := float64(count) * phase.Minutes()
			commands.add(way, sent/each)
			cpu.add(way, milliseconds(used.cpu-idle.cpu)/each)
			connected.add(way, milliseconds(idle.cpu-alone.cpu)/each)
			connections.add(way, float64(open-before)/float64(count))
			b.Logf("%s: %.1f commands a minute and follower, servers' CPU %.1f ms (and %.1f ms for its %.1f connections); all: %v", way,
				commands[way][len(commands[way])-1],
				cpu[way][len(cpu[way])-1], connected[way][len(connected[way])-1], connections[way][len(connections[way])-1], used.commands)
		})
		b.ReportMetric(float64(count), "followers")
		commands.report(b, "commands/follower/min")
		cpu.report(b, "server-cpu-ms/follower/min")
		connected.report(b, "server-cpu-ms/connected-client/min")
		connections.report(b, "connections/follower")
	}
}
