// Command replay runs one schedule of the simulator so that every run is the same, prints what
// happens, and can look for a shorter schedule that still fails.
//
//	go run ./replay -seed 7
//	go run ./replay -seed 7 -shrink
//	go run ./replay -plan plan.json
//
// The simulator is built for WebAssembly (GOOS=wasip1) and run in wazero, whose clocks are virtual
// and whose randomness has a seed. A program for WebAssembly has one thread, so nothing else decides
// which goroutine runs when.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/holdfast-go/holdfast/test/sim"
)

var (
	seed     = flag.Uint64("seed", 1, "the seed of the schedule")
	planFile = flag.String("plan", "", "a file with a plan, instead of a seed")
	shrink   = flag.Bool("shrink", false, "look for a shorter plan that still fails, and print it")
	variants = flag.Int("variants", 1, "how many orders of goroutines to try until one fails")
	overlay  = flag.String("overlay", "", "an overlay for go build, to plant a fault")
	dir      = flag.String("cache", ".cache/sim", "the folder for what is built")
	tail     = flag.Int("tail", 0, "print only so many lines at the end; 0 prints all")
	twice    = flag.Bool("twice", false, "run twice and compare the traces")
)

func main() {
	flag.Parse()
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	plan := sim.Draw(*seed)
	if *planFile != "" {
		text, err := os.ReadFile(*planFile)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, &plan); err != nil {
			return fmt.Errorf("%s: %w", *planFile, err)
		}
	}
	m, err := build(ctx, *dir, *overlay)
	if err != nil {
		return err
	}
	defer m.close(ctx)
	var variant uint64
	out, err := m.run(ctx, plan, variant, true)
	for err == nil && !out.failed() && int(variant)+1 < *variants {
		variant++
		out, err = m.run(ctx, plan, variant, true)
	}
	if err != nil {
		return err
	}
	if *twice {
		again, err := m.run(ctx, plan, variant, true)
		if err != nil {
			return err
		}
		if !bytes.Equal(out.text, again.text) {
			return fmt.Errorf("seed %d: two runs differ after %d equal bytes of %d", plan.Seed, equalBytes(out.text, again.text), len(out.text))
		}
		fmt.Fprintf(os.Stderr, "two runs: the same %d bytes\n", len(out.text))
	}
	if *shrink && out.failed() {
		if plan, err = shorten(ctx, m, plan, variant, out.rules()); err != nil {
			return err
		}
		if out, err = m.run(ctx, plan, variant, true); err != nil {
			return err
		}
		fmt.Println(describe(plan))
	}
	_, _ = os.Stdout.Write(lastLines(out.text, *tail))
	if out.failed() {
		return fmt.Errorf("the schedule fails: %s", strings.Join(out.rules(), ", "))
	}
	return nil
}

// lastLines returns the last n lines; all if n is 0.
func lastLines(text []byte, n int) []byte {
	lines := bytes.SplitAfter(text, []byte("\n"))
	if n == 0 || n >= len(lines) {
		return text
	}
	return bytes.Join(lines[len(lines)-n:], nil)
}

func equalBytes(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
