package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"gonum.org/v1/plot/plotter"

	"github.com/holdfast-go/holdfast/bench/internal/figure"
)

// pictures are the files beside the page, and who draws them.
var pictures = []struct {
	file string
	draw func(results) ([]*figure.Panel, error)
}{
	{"performance-leases.svg", drawLeases},
	{"performance-waiting.svg", drawWaiting},
}

func drawAll(measured results, dir string, log io.Writer) error {
	for _, p := range pictures {
		panels, err := p.draw(measured)
		var absent *absentError
		if errors.As(err, &absent) {
			fmt.Fprintf(log, "report: %s stays as it was: %s was not measured\n", p.file, absent.what)
			continue
		}
		if err != nil {
			return err
		}
		var svg bytes.Buffer
		if err := figure.Draw(&svg, "svg", panels...); err != nil {
			return fmt.Errorf("%s: %w", p.file, err)
		}
		if err := os.WriteFile(filepath.Join(dir, p.file), svg.Bytes(), 0o644); err != nil { //nolint:gosec // a public picture
			return err
		}
	}
	return nil
}

// drawLeases draws what grows with the number of leases.
func drawLeases(measured results) ([]*figure.Panel, error) {
	r := &reader{results: measured}
	calls, cost := []figure.Line{{Name: "one by one: a call a lease every 5 s"}, {Name: "as they are: in batches"}}, []figure.Line{{Name: "heap and stacks, KiB a lease"}, {Name: "CPU of the process, % of one processor"}}
	for _, n := range leaseCounts {
		name, x := fmt.Sprint(held, n), float64(n)
		perSecond := r.get(name, "commands/s")
		for i, y := range []float64{perSecond * r.get(name, "one-by-one/batched"), perSecond} {
			calls[i].Points = append(calls[i].Points, plotter.XY{X: x, Y: max(y, 0.001)})
		}
		for i, y := range []float64{r.get(name, "bytes/lease") / 1024, r.get(name, "cpu-%")} {
			cost[i].Points = append(cost[i].Points, plotter.XY{X: x, Y: max(y, 0.001)})
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	return panels(
		panel{"commands to MongoDB", "leases held, TTL 15 s", "commands a second", calls},
		panel{"cost to the process", "leases held, TTL 15 s", "", cost},
	)
}

// drawWaiting draws how long the next holder waits, by p50, p90 and p99.
func drawWaiting(measured results) ([]*figure.Panel, error) {
	r := &reader{results: measured}
	handOvers := []figure.Range{
		r.between("the article's lock", article, "hand-over"), r.between("a try every second", polled, "hand-over"),
		r.between("Holdfast, processes", processes, "hand-over"), r.between("Holdfast, clients", passing, "hand-over"),
	}
	takeOvers := []figure.Range{r.between("the article's lock", crashed, "take-over"), r.between("Holdfast", crash, "take-over")}
	if r.err != nil {
		return nil, r.err
	}
	return []*figure.Panel{
		figure.NewRanges("hand-over after a release: p50, p90, p99", "milliseconds", handOvers...),
		figure.NewRanges("take-over after a crash, from the expiry: p50, p90, p99", "milliseconds", takeOvers...),
	}, nil
}

func (r *reader) between(name, benchmark, unit string) figure.Range {
	return figure.Range{Name: name, Values: []float64{r.get(benchmark, unit+"-p50-ms"), r.get(benchmark, unit+"-p90-ms"), r.get(benchmark, unit+"-p99-ms")}}
}

type panel struct {
	title, x, y string
	lines       []figure.Line
}

// panels are logarithmic both ways.
func panels(all ...panel) ([]*figure.Panel, error) {
	var out []*figure.Panel
	for _, p := range all {
		drawn, err := figure.NewPanel(p.title, p.x, p.y, p.lines...)
		if err != nil {
			return nil, err
		}
		figure.LogAxis(&drawn.X)
		figure.LogAxis(&drawn.Y)
		out = append(out, drawn)
	}
	return out, nil
}
