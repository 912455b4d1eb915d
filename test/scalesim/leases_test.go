package scalesim

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/leases"
)

// holding is what the leases of one process cost.
type holding struct {
	acquire, idle phase
	memory        int64 // of one lease
	goroutines    int
	standBy       phase // a second process that waits for all of them
	takeOver      phase // by the second process, after the first has crashed
}

func runLeases(tb testing.TB, n int) (out holding) {
	b := newBackend()
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("tenant-%07d", i)
	}
	begin := func() (*process, *leases.LeaseManager) {
		p := newProcess(tb, b, queued)
		m, err := leases.New(p.Client)
		if err != nil {
			tb.Fatal(err)
		}
		if err := m.Add(names...); err != nil {
			tb.Fatal(err)
		}
		return p, m
	}
	untilHeld := func(m *leases.LeaseManager) {
		for start := time.Now(); len(m.Leases()) < n; time.Sleep(100 * time.Millisecond) {
			if time.Since(start) > time.Hour {
				tb.Fatalf("%d of %d leases after an hour", len(m.Leases()), n)
			}
		}
	}
	before, goroutines := memoryUsed(), runtime.NumGoroutine()
	first, manager := begin()
	out.acquire = b.measure(func() { untilHeld(manager) })
	out.idle = b.measure(func() { time.Sleep(time.Minute) })
	out.memory, out.goroutines = (memoryUsed()-before)/int64(n), runtime.NumGoroutine()-goroutines
	second, follower := begin()
	time.Sleep(2 * time.Minute)
	out.standBy = b.measure(func() { time.Sleep(time.Minute) })
	first.crash()
	out.takeOver = b.measure(func() { untilHeld(follower) })
	first.end(tb)
	second.end(tb)
	tb.Logf("%d leases", n)
	tb.Log("acquire:", out.acquire)
	tb.Logf("idle: %v; %d bytes for each, with the store's record; %d goroutines", out.idle, out.memory, out.goroutines)
	tb.Log("stand by:", out.standBy)
	tb.Log("take over:", out.takeOver)
	return out
}

func TestLeasesOfOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := size(100_000, 2000)
		h := runLeases(t, n)
		// Each lease is renewed every 10 s, and a command renews up to batchSize leases.
		if most := int64(2*6*n/batchSize + 10); h.idle.used.commands() > most {
			t.Errorf("%d commands a minute for %d leases, more than %d", h.idle.used.commands(), n, most)
		}
		if h.goroutines > 10 {
			t.Errorf("%d goroutines for %d leases", h.goroutines, n)
		}
		if most := 45 * time.Second; h.takeOver.took > most {
			t.Errorf("%d leases of a crashed process have another holder after %v, later than %v", n, h.takeOver.took, most)
		}
	})
}
