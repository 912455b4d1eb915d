package sim_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/test/sim"
)

var (
	duration = flag.Duration("sim.duration", 0, "run schedules for this long")
	count    = flag.Uint64("sim.count", 30, "run so many schedules")
	seed     = flag.Uint64("sim.seed", 1, "the seed of the first schedule; 0 chooses one")
	stride   = flag.Uint64("sim.stride", 1, "the distance between seeds")
	planFile = flag.String("sim.plan", "", "run the plan in this file")
	trace    = flag.Bool("sim.trace", false, "print what happens")
	record   = flag.String("sim.record", "", "append lines to this file that say what has run")
	commit   = flag.String("sim.commit", "", "the commit that they name")
)

// Schedules of random faults keep every promise.
func TestSchedules(t *testing.T) {
	raiseStacks(t)
	begin := time.Now()
	part := begin // of the record
	if *seed == 0 {
		*seed = uint64(begin.UnixNano()) >> 10 * *stride
	}
	var schedules, grants, requests int
	noted := noted{Commit: *commit, Seed: *seed, Stride: *stride}
	defer func() { noted.append(t) }()
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
		noted.Schedules, noted.Violations, noted.Minutes = noted.Schedules+1, len(r.Violations), time.Since(part).Minutes()
		if noted.Schedules == 2000 { // a run that is killed loses no more
			noted.append(t)
			noted.Seed, noted.Schedules, part = *seed+(n+1)**stride, 0, time.Now()
		}
		for _, v := range r.Violations {
			t.Errorf("seed %d: %s: at %v: %s", p.Seed, v.Rule, v.At, v.Text)
		}
		if t.Failed() {
			t.Errorf("after %d schedules and %v; to see what happened: make -f tools/tools.mk sim-replay SEED=%d", schedules,
				time.Since(begin).Round(time.Millisecond), p.Seed)
			return
		}
	}
	fmt.Printf("%d schedules from seed %d, %d grants, %d requests in %v\n", schedules, *seed, grants, requests,
		time.Since(begin).Round(time.Millisecond))
}

// raiseStacks makes a schedule a tenth cheaper where the runtime begins a goroutine with a stack of average size (tools/sim.sh). The
// goroutines of a schedule rest with small stacks and work with large ones, and each would copy its stack twice. Some that wait with
// large ones raise the average.
func raiseStacks(t *testing.T) {
	if !strings.Contains(os.Getenv("GODEBUG"), "adaptivestackstart=1") {
		return
	}
	end := make(chan struct{})
	var wait func(depth int) byte
	wait = func(depth int) byte {
		var frame [4096]byte
		if frame[depth] = 1; depth > 0 {
			return frame[depth] + wait(depth-1)
		}
		<-end
		return frame[depth]
	}
	var waiting sync.WaitGroup
	for range 60 {
		waiting.Go(func() { wait(12) })
	}
	t.Cleanup(func() { close(end); waiting.Wait() })
}

// noted says what has run. Lines of many runs add up.
type noted struct {
	Commit     string  `json:"commit"`
	Seed       uint64  `json:"seed"` // the first one
	Stride     uint64  `json:"stride"`
	Schedules  int     `json:"schedules"`
	Minutes    float64 `json:"minutes"`
	Violations int     `json:"violations"`
}

// append writes a line.
func (n noted) append(t *testing.T) {
	if *record == "" || n.Schedules == 0 {
		return
	}
	line, err := json.Marshal(n)
	if err == nil {
		var f *os.File
		if f, err = os.OpenFile(*record, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			_, err = f.Write(append(line, '\n'))
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		t.Error(err)
	}
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
