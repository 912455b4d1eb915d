package sim_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/sim"
)

var (
	duration = flag.Duration("sim.duration", 0, "run schedules for this long")
	count    = flag.Uint64("sim.count", 30, "run so many schedules")
	seed     = flag.Uint64("sim.seed", 1, "the seed of the first schedule; 0 chooses one")
	stride   = flag.Uint64("sim.stride", 1, "the distance between seeds")
	planFile = flag.String("sim.plan", "", "run the plan in this file")
	trace    = flag.Bool("sim.trace", false, "print what happens")
)

// Schedules of random faults keep every promise.
func TestSchedules(t *testing.T) {
	begin := time.Now()
	if *seed == 0 {
		*seed = uint64(begin.UnixNano()) >> 10 * *stride
	}
	var schedules, grants, requests int
	for n := uint64(0); *duration == 0 && n < *count || time.Since(begin) < *duration; n++ {
		p := sim.Draw(*seed + n**stride)
		if *planFile != "" {
			p = load(t, *planFile)
		}
		var out io.Writer
		if *trace {
			out = os.Stdout
			text, _ := json.Marshal(p)
			fmt.Printf("%s\n", text)
		}
		r := sim.Run(t, p, out)
		schedules, grants, requests = schedules+1, grants+r.Grants, requests+r.Requests
		for _, v := range r.Violations {
			t.Errorf("seed %d: %s: at %v: %s", p.Seed, v.Rule, v.At, v.Text)
		}
		if t.Failed() {
			t.Errorf("after %d schedules and %v; to see what happened: make sim-replay SEED=%d", schedules, time.Since(begin).Round(time.Millisecond), p.Seed)
			return
		}
	}
	fmt.Printf("%d schedules from seed %d, %d grants, %d requests in %v\n", schedules, *seed, grants, requests, time.Since(begin).Round(time.Millisecond))
}

func load(t *testing.T, path string) (p sim.Plan) {
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}
