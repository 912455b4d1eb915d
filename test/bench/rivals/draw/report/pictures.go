package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"gonum.org/v1/plot/plotter"

	"github.com/holdfast-go/holdfast/test/bench/rivals/draw/internal/figure"
)

// pictures are the files beside the page, and the functions that draw them.
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
		var missingErr *missingError
		if errors.As(err, &missingErr) {
			fmt.Fprintf(log, "report: %s is unchanged: %s was not measured\n", p.file, missingErr.what)
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

// drawLeases draws the cost by the number of leases.
func drawLeases(measured results) ([]*figure.Panel, error) {
	r := &reader{results: measured}
	calls, cost := []figure.Line{{Name: "one by one: a call per lease every 5 s"}, {Name: "Holdfast: in batches"}},
		[]figure.Line{{Name: "heap and stacks, KiB per lease"}, {Name: "CPU of the process, % of one processor"}}
	for _, n := range leaseCounts {
		name, x := fmt.Sprint(benchLeases, n), float64(n)
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
	return logPanels(
		panel{"commands to MongoDB", "leases held, TTL 15 s", "commands per second", calls},
		panel{"cost to the process", "leases held, TTL 15 s", "", cost},
	)
}

// drawWaiting draws how long the next holder waits: p50, p90 and p99.
func drawWaiting(measured results) ([]*figure.Panel, error) {
	r := &reader{results: measured}
	handoffs := []figure.Range{
		r.quantileRange("lock from articles", benchHandoffArticle, "handoff"), r.quantileRange("a try every second", benchHandoffPolled,
			"handoff"),
		r.quantileRange("Holdfast, processes", benchTwo, processesHandoff), r.quantileRange("Holdfast, clients", benchHandoff, "handoff"),
	}
	takeovers := []figure.Range{r.quantileRange("lock from articles", benchTakeoverArticle, "takeover"),
		r.quantileRange("Holdfast", benchTakeover, "takeover")}
	if r.err != nil {
		return nil, r.err
	}
	return []*figure.Panel{
		figure.NewRanges("from a release to the next grant: p50, p90, p99", "milliseconds", handoffs...),
		figure.NewRanges("takeover after a crash, from the expiry: p50, p90, p99", "milliseconds", takeovers...),
	}, nil
}

func (r *reader) quantileRange(name, benchmark, unit string) figure.Range {
	return figure.Range{Name: name, Values: []float64{r.get(benchmark, unit+"-p50-ms"), r.get(benchmark, unit+"-p90-ms"),
		r.get(benchmark, unit+"-p99-ms")}}
}

type panel struct {
	title, x, y string
	lines       []figure.Line
}

// logPanels makes panels with two logarithmic axes.
func logPanels(all ...panel) ([]*figure.Panel, error) {
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
