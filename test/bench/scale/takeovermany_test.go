//go:build unix

package scale

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/bench"
)

// BenchmarkTakeOverMany lets a holder crash for whose lock many processes wait. It measures the time
// from the expiry of the lease until one of them holds the lock, and counts the commands around
// that moment, those of idle waiting included.
func BenchmarkTakeOverMany(b *testing.B) {
	const ttl, crashes = 5 * time.Second, 6
	s := startServers(b)
	m := newMeter(s)
	count := numberFrom(b, envFollowers, 200)
	crashing := s.client("poll")
	for b.Loop() {
		all, times, commands := latencies{}, series{}, series{}
		for round := range numberFrom(b, envRounds, 2) {
			turns(b, 1, func(_ int, way string) {
				f := startFleet(b, s.locks(way), count, clientsPerWorker)
				defer f.end()
				for crash := range crashes {
					took, n := takeOver(b, m, f, crashing.Locker(), fmt.Sprint("crashed-", way, "-", round, "-", crash), ttl)
					all.add(way, took)
					times.add(way, milliseconds(took))
					commands.add(way, n)
				}
				b.Logf("%s: after %.0f ms, with %.0f commands", way, times[way][len(times[way])-crashes:], commands[way][len(commands[way])-crashes:])
			})
		}
		b.ReportMetric(float64(count), "waiters")
		all.report(b, "takeover")
		times.report(b, "takeover-ms")
		commands.report(b, "commands/takeover")
	}
}

// takeOver measures one crash: the time from the expiry until the grant, and the commands from a
// moment before the expiry until the others have noticed that they were not granted the lock.
func takeOver(b *testing.B, m *meter, f *fleet, crashing holdfast.Locker, name string, ttl time.Duration) (took time.Duration,
	commands float64) {
	b.Helper()
	const before, after = 100 * time.Millisecond, 250 * time.Millisecond
	crash, err := bench.NewCrash(b.Context(), crashing, name, ttl)
	if err != nil {
		b.Fatal(err)
	}
	f.send("wait", name)
	sleepUntil(crash.Expiry.Add(-before))
	first := m.read()
	g := f.grants(1, 2*ttl)[0]
	sleepUntil(g.granted.Add(after))
	used, end := m.read().minus(first), time.Now()
	if more, _ := f.stop(); len(more) > 0 && more[0].granted.Before(end) {
		b.Fatal("two waiters hold the lock")
	}
	return g.granted.Sub(crash.Expiry), float64(used.total())
}

func sleepUntil(t time.Time) { time.Sleep(time.Until(t)) }
