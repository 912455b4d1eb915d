//go:build unix

package scalebench

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/bench"
)

// BenchmarkTakeOver lets a holder crash for whose lock many processes wait. It measures the time
// from the expiry of the lease until one of them holds the lock, and counts the commands around
// that moment beyond those of waiting.
func BenchmarkTakeOver(b *testing.B) {
	// Waiters read the record once when three quarters of the lease are over. After that, and
	// before the expiry, there is time to count what waiting alone costs.
	const ttl, window, crashes = 10 * time.Second, 250 * time.Millisecond, 6
	s := startServers(b)
	m := newMeter(s)
	count := numberFrom(b, envFollowers, 200)
	crashing := s.client("poll")
	for b.Loop() {
		times, commands := series{}, series{}
		for round := range numberFrom(b, envRounds, 2) {
			turns(b, 1, func(_ int, way string) {
				f := startFleet(b, s, way, count)
				defer f.end()
				for crash := range crashes {
					took, n := takeOver(b, m, f, crashing.Locker(), fmt.Sprint("crashed-", way, "-", round, "-", crash), ttl, window)
					times.add(way, milliseconds(took))
					commands.add(way, n)
				}
				b.Logf("%s: after %.0f ms, with %.0f commands", way, times[way][len(times[way])-crashes:], commands[way][len(commands[way])-crashes:])
			})
		}
		b.ReportMetric(0, "ns/op") // the time of the loop is meaningless
		b.ReportMetric(float64(count), "waiters")
		times.quantiles(b, "take-over-ms")
		times.report(b, "take-over-ms")
		commands.report(b, "commands/take-over")
	}
}

// takeOver measures one crash: the time from the expiry, and the commands from a window before the
// expiry until a window after the grant. Those of as long a time of waiting are subtracted.
func takeOver(b *testing.B, m *meter, f *fleet, crashing holdfast.Locker, name string, ttl, window time.Duration) (took time.Duration, commands float64) {
	b.Helper()
	crash, err := bench.NewCrash(b.Context(), crashing, name, ttl)
	if err != nil {
		b.Fatal(err)
	}
	f.send("wait", name)
	sleepUntil(crash.Expiry.Add(-4 * window))
	first, from := m.read(), time.Now()
	sleepUntil(crash.Expiry.Add(-window))
	second, between := m.read(), time.Now()
	g := f.grants(1, 2*ttl)[0]
	sleepUntil(g.granted.Add(window))
	third, to := m.read(), time.Now()
	if more, _ := f.stop(); len(more) > 0 && more[0].granted.Before(to) {
		b.Fatal("two waiters hold the lock")
	}
	waiting := float64(second.minus(first).total()) / between.Sub(from).Seconds()
	return g.granted.Sub(crash.Expiry), float64(third.minus(second).total()) - waiting*to.Sub(between).Seconds()
}

func sleepUntil(t time.Time) { time.Sleep(time.Until(t)) }
