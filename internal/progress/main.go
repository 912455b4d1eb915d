// Command progress shows the output of "go test -json" as it comes: each package when it
// ends, in whatever order, what failed with its output, and every half minute what runs:
//
//	go test -json ./... | go run ./internal/progress
//
// "go test" by itself prints packages in the order of their names, so that a slow one keeps
// all others from being seen. Exit code 1 says that a test failed or that nothing ran.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

const every = 30 * time.Second

func main() {
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	if err := show(os.Stdin, os.Stdout, ticks.C); err != nil {
		fmt.Fprintln(os.Stderr, "progress:", err)
		os.Exit(1) //nolint:gocritic // the ticker ends with the process
	}
}

// event is a line of "go test -json"; see go doc test2json.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

// show prints what comes from in until it ends.
func show(in io.Reader, out io.Writer, ticks <-chan time.Time) error {
	lines, failed := make(chan string), make(chan error, 1)
	go func() {
		defer close(lines)
		s := bufio.NewScanner(in)
		s.Buffer(nil, 1<<26)
		for s.Scan() {
			lines <- s.Text()
		}
		failed <- s.Err()
	}()
	r := run{out: out, begin: time.Now(), output: map[test][]string{}}
	for {
		select {
		case line, more := <-lines:
			if !more {
				return errors.Join(<-failed, r.result())
			}
			var e event
			if json.Unmarshal([]byte(line), &e) != nil {
				fmt.Fprintln(out, line) // not an event: a message of the go command
				continue
			}
			r.add(e)
		case <-ticks:
			r.still()
		}
	}
}

type test struct{ pkg, name string }

// run is a run of tests.
type run struct {
	out          io.Writer
	begin        time.Time
	running      []string // packages, in the order of their start
	output       map[test][]string
	ended, wrong int
}

func (r *run) add(e event) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "start":
		r.running = append(r.running, e.Package)
	case "output":
		r.output[t] = append(r.output[t], e.Output)
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "pass", "skip", "fail":
		if e.Action == "fail" || e.Test == "" {
			r.print(t)
		}
		delete(r.output, t)
		if e.Test == "" {
			r.end(e)
		}
	}
}

// print writes the output of a test that failed, or of a package: that has its verdict. The
// names of passed tests, which -json brings, are left out.
func (r *run) print(t test) {
	for _, line := range r.output[t] {
		if t.name == "" && (line == "PASS\n" || strings.HasPrefix(line, "coverage:")) {
			continue
		}
		if !strings.HasPrefix(line, "=== ") {
			fmt.Fprint(r.out, line)
		}
	}
}

func (r *run) end(e event) {
	r.running = slices.DeleteFunc(r.running, func(p string) bool { return p == e.Package })
	for t := range r.output { // of tests that a crash or a time limit cut off
		if t.pkg == e.Package {
			if e.Action == "fail" {
				r.print(t)
			}
			delete(r.output, t)
		}
	}
	r.ended++
	if e.Action == "fail" {
		r.wrong++
	}
}

// still says what is under way.
func (r *run) still() {
	after := time.Since(r.begin).Round(time.Second)
	if len(r.running) == 0 {
		fmt.Fprintf(r.out, "... %v: compiling\n", after)
		return
	}
	fmt.Fprintf(r.out, "... %v: %s\n", after, strings.Join(r.running, ", "))
}

func (r *run) result() error {
	switch {
	case r.wrong > 0:
		return fmt.Errorf("%d of %d packages failed", r.wrong, r.ended)
	case r.ended == 0:
		return errors.New("no package was tested")
	}
	return nil
}
