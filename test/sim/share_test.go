package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/test/history"
)

// Members of Partitions that are woken have the partitions of one that leaves within a second, also where waiters of a lock
// have a queue. Where nothing wakes them, they have them at their next poll, every 5 s.
func TestPartitionsOfAMemberThatLeaves(t *testing.T) {
	const count, leaves = 8, time.Minute
	for seed := range uint64(40) {
		woken, within := seed%2 == 0, time.Second
		if !woken {
			within = 7 * time.Second // with the jitter of a fifth
		}
		p := Plan{Seed: seed, Duration: 2 * time.Minute, Backend: Mongo, Members: make([]Clock, 3), Latency: 5 * time.Millisecond,
			WakesAll: woken, Faults: []Fault{{Kind: Stop, At: leaves, For: time.Minute}}}
		for range 3 {
			p.Processes = append(p.Processes, Process{TTL: 30 * time.Second, Wake: Hints, Does: []Actor{{Kind: Shares, Name: "group", N: count}}})
		}
		w, r := run(t, p, nil)
		for _, v := range r.Violations {
			t.Errorf("seed %d: %s: at %v: %s", seed, v.Rule, v.At, v.Text)
		}
		moved := 0
		for i := range count {
			lines := w.lines[partitionName("group", i)]
			left := slices.IndexFunc(lines, func(l history.Line) bool {
				return l.Kind == history.Live && l.Client == 1 && l.At >= leaves-time.Millisecond
			})
			if left < 0 {
				continue
			}
			moved++
			next := slices.IndexFunc(lines, func(l history.Line) bool { return l.Kind == history.Live && l.Client != 1 && l.At >= leaves })
			if next < 0 || lines[next].At-leaves > within {
				t.Errorf("seed %d: partition %d of the member that left is not held after %v", seed, i, within)
			}
		}
		if moved == 0 {
			t.Errorf("seed %d: the member that left had no partition", seed)
		}
	}
}
