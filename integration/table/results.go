package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// results are what go test -json told.
type results struct {
	tests map[string]*result
	mode  string // of the environment: containers, endpoints, process
}

// result is what became of one test, in all its runs.
type result struct {
	runs     int
	longest  time.Duration
	backends []string
}

// known are names of subtests that are backends'.
var known = []string{"mongodb", "azblob", "file", "mem"}

// event is a line of go test -json.
type event struct {
	Action, Test, Output string
	Elapsed              float64
}

// read takes in the output of any number of runs. Lines that are no events, such as
// those of a build that failed, are an error.
func read(output io.Reader) (results, error) {
	r := results{tests: map[string]*result{}, mode: "as they were"}
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
			r.passed(e)
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

// passed counts a test, or the time of its subtest: a test whose subtests run in
// parallel has next to none of its own.
func (r *results) passed(e event) {
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
	if slices.Contains(known, backend) && !slices.Contains(t.backends, backend) {
		t.backends = append(t.backends, backend)
	}
}

// String is short: "3 × 12 s" are three runs of at most twelve seconds.
func (r *result) String() string {
	return fmt.Sprintf("%d × %d s", r.runs, int((r.longest+time.Second-1)/time.Second))
}

// where are the backends of a test.
func (r *result) where(s scenario) string {
	ran := r.backends
	if ran == nil {
		ran = s.uses
	}
	var names []string
	for _, b := range known {
		if slices.Contains(ran, b) {
			names = append(names, b)
		}
	}
	return strings.Join(names, ", ")
}
