// Command progress prints the results of "go test -json" as they arrive: each package when it
// ends, failed tests with their output, and every half minute the packages that are running:
//
//	go test -json ./... | go run ./internal/progress
//
// "go test" without -json prints packages in the order of their names, so a slow package delays
// the results of all that follow. The exit code is 1 if a test failed or no package was tested.
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

const reportEvery = 30 * time.Second

func main() {
	ticks := time.NewTicker(reportEvery)
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

// show prints the events of in until in ends.
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
	r := testRun{out: out, begin: time.Now(), output: map[test][]string{}}
	for {
		select {
		case line, more := <-lines:
			if !more {
				return errors.Join(<-failed, r.result())
			}
			var e event
			if json.Unmarshal([]byte(line), &e) != nil {
				fmt.Fprintln(out, line) // a message of the go command
				continue
			}
			r.add(e)
		case <-ticks:
			r.printRunning()
		}
	}
}

// test identifies a test, or a package if the name is empty.
type test struct{ pkg, name string }

// testRun is the state of a run of "go test".
type testRun struct {
	out           io.Writer
	begin         time.Time
	running       []string // packages, in the order of their start
	output        map[test][]string
	ended, failed int // packages
}

func (r *testRun) add(e event) {
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

// print writes the output of a failed test, or of a package, which includes its result. It leaves
// out the lines that only -json adds.
func (r *testRun) print(t test) {
	for _, line := range r.output[t] {
		if t.name == "" && (line == "PASS\n" || strings.HasPrefix(line, "coverage:")) {
			continue
		}
		if !strings.HasPrefix(line, "=== ") {
			fmt.Fprint(r.out, line)
		}
	}
}

// end handles the end of a package.
func (r *testRun) end(e event) {
	r.running = slices.DeleteFunc(r.running, func(p string) bool { return p == e.Package })
	for t := range r.output { // tests that a crash or a time limit ended
		if t.pkg == e.Package {
			if e.Action == "fail" {
				r.print(t)
			}
			delete(r.output, t)
		}
	}
	r.ended++
	if e.Action == "fail" {
		r.failed++
	}
}

// printRunning writes which packages are running.
func (r *testRun) printRunning() {
	after := time.Since(r.begin).Round(time.Second)
	if len(r.running) == 0 {
		fmt.Fprintf(r.out, "... %v: compiling\n", after)
		return
	}
	fmt.Fprintf(r.out, "... %v: %s\n", after, strings.Join(r.running, ", "))
}

func (r *testRun) result() error {
	switch {
	case r.failed > 0:
		return fmt.Errorf("%d of %d packages failed", r.failed, r.ended)
	case r.ended == 0:
		return errors.New("no package was tested")
	}
	return nil
}
