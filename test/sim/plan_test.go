package sim_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/sim"
)

// A seed always gives the same plan, which survives being stored. All kinds of faults and actors
// occur.
func TestDraw(t *testing.T) {
	kinds, most := map[string]bool{}, 0
	for seed := range uint64(500) {
		p := sim.Draw(seed)
		if !reflect.DeepEqual(p, sim.Draw(seed)) {
			t.Fatalf("seed %d: two plans differ", seed)
		}
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var back sim.Plan
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if again, _ := json.Marshal(back); string(again) != string(text) {
			t.Fatalf("seed %d: %s\nis stored as\n%s", seed, text, again)
		}
		for _, f := range p.Faults {
			kinds[f.Kind] = true
			if f.At+f.For > p.Heal {
				t.Errorf("seed %d: %v lasts beyond %v", seed, f, p.Heal)
			}
			if f.OfProcess() && f.Process >= len(p.Processes) {
				t.Errorf("seed %d: %v of %d processes", seed, f, len(p.Processes))
			}
		}
		most = max(most, len(p.Processes))
		for _, pr := range p.Processes {
			for _, a := range pr.Does {
				kinds[a.Kind] = true
			}
		}
	}
	if most <= driver.LongQueue {
		t.Errorf("no plan has more than %d processes", most)
	}
	for _, kind := range []string{
		sim.Cut, sim.Slow, sim.Lossy, sim.Crash, sim.Pause, sim.Stop, sim.Deaf, sim.Babble, sim.FailOver, sim.Lag, sim.StepClock,
		sim.Break, sim.BreakNow, sim.Delete, sim.Locks, sim.Leads, sim.Ticks, sim.Leases, sim.Shares,
		sim.Reads, sim.Many, sim.Deny,
	} {
		if !kinds[kind] {
			t.Errorf("%q does not occur", kind)
		}
	}
}
