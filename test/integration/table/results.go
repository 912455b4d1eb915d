package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	_ "github.com/holdfast-go/holdfast/drivers/postgres"    // registers it
	_ "github.com/holdfast-go/holdfast/internal/alldrivers" // registers the others
)

// results are the tests in the output of go test -json.
type results struct {
	tests map[string]*result
	mode  string // of the suite: containers, endpoints or process
}

// result sums up all runs of one test.
type result struct {
	runs     int
	longest  time.Duration
	backends []string
}

// knownBackends are the names of subtests that name a backend: the schemes of the drivers.
func knownBackends() (all []string) {
	for _, d := range driver.Drivers() {
		all = append(all, d.Schemes[0])
	}
	return all
}

// event is one line of the output of go test -json.
type event struct {
	Action, Test, Output string
	Elapsed              float64
}

// readResults reads the output of any number of runs. A line that is not an event, such as a
// build error, is an error.
func readResults(output io.Reader) (results, error) {
	r := results{tests: map[string]*result{}, mode: "unknown"}
	var failed []error
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return r, fmt.Errorf("not the output of go test -json: %.100s", lines.Text())
		}
		switch e.Action {
		case "pass":
			r.addPass(e)
		case "fail":
			failed = append(failed, fmt.Errorf("%s failed", strings.TrimSpace("test "+e.Test)))
		case "output":
			if mode, ok := strings.CutPrefix(e.Output, "integration: mode "); ok {
				r.mode = strings.TrimSpace(mode)
			}
		}
	}
	return r, errors.Join(append(failed, lines.Err())...)
}

// addPass counts a run of a test. It also takes the time of subtests: a test whose subtests run
// in parallel takes almost no time itself.
func (r *results) addPass(e event) {
	if e.Test == "" {
		return
	}
	name, sub, isSub := strings.Cut(e.Test, "/")
	t := r.tests[name]
	if t == nil {
		t = &result{}
		r.tests[name] = t
	}
	t.longest = max(t.longest, time.Duration(e.Elapsed*float64(time.Second)))
	if !isSub {
		t.runs++
		return
	}
	backend, _, _ := strings.Cut(sub, "/")
	if slices.Contains(knownBackends(), backend) && !slices.Contains(t.backends, backend) {
		t.backends = append(t.backends, backend)
	}
}

// String returns a short form: "3 × 12 s" are three runs of at most twelve seconds.
func (r *result) String() string {
	return fmt.Sprintf("%d × %d s", r.runs, int((r.longest+time.Second-1)/time.Second))
}

// backendsOf returns the backends of a test, or a dash if it uses none.
func (r *result) backendsOf(s scenario) string {
	ran := r.backends
	if ran == nil {
		ran = s.usedBackends
	}
	var names []string
	for _, b := range knownBackends() {
		if slices.Contains(ran, b) {
			names = append(names, b)
		}
	}
	return cmp.Or(strings.Join(names, ", "), "–")
}
