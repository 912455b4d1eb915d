// Command plot draws the results of "holdfast bench --json": the distribution of the latencies,
// and the cost of holding leases by their number:
//
//	holdfast bench --json --leases 100,1000 | go -C test/bench/rivals run ./draw/plot >bench.svg
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"github.com/holdfast-go/holdfast/cmd/bench"
	"github.com/holdfast-go/holdfast/test/bench/rivals/draw/internal/figure"
)

func main() {
	format := flag.String("format", "svg", "format of the picture: svg or png")
	flag.Parse()
	if err := run(os.Stdin, os.Stdout, *format); err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

// run reads a report and draws it.
func run(in io.Reader, out io.Writer, format string) error {
	var r bench.Report
	if err := json.NewDecoder(in).Decode(&r); err != nil {
		return fmt.Errorf("read the output of holdfast bench --json: %w", err)
	}
	if r.Backend == "" {
		return errors.New(`the input is not the output of holdfast bench --json: "backend" is missing`)
	}
	var panels []*figure.Panel
	for _, draw := range []func(*bench.Report) (*figure.Panel, error){latencies, leases} {
		p, err := draw(&r)
		if err != nil {
			return err
		}
		if p != nil {
			panels = append(panels, p)
		}
	}
	return figure.Draw(out, format, panels...)
}

// latencies draws, for each kind of call, the share of calls that took no longer than a duration.
// It returns nil if none was measured.
func latencies(r *bench.Report) (*figure.Panel, error) {
	rows := r.Rows()
	if len(rows) == 0 {
		return nil, nil //nolint:nilnil // a part that was not measured has no panel
	}
	var lines []figure.Line
	for _, row := range rows {
		if len(row.Percentiles) == 0 {
			return nil, fmt.Errorf("%s: \"percentilesMs\" is missing; an older holdfast does not write it", row.Name)
		}
		line := figure.Line{Name: row.Name}
		for percent, ms := range row.Percentiles {
			line.Points = append(line.Points, plotter.XY{X: math.Max(ms, 0.001), Y: float64(percent) / 100})
		}
		lines = append(lines, line)
	}
	p, err := figure.NewPanel(r.Backend+": latencies", "milliseconds", "share of calls that took no longer", lines...)
	if err != nil {
		return nil, err
	}
	figure.LogAxis(&p.X)
	p.Y.Min, p.Y.Max = 0, 1
	p.Y.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0 %"}, {Value: 0.25}, {Value: 0.5, Label: "50 %"}, {Value: 0.75},
		{Value: 0.9, Label: "90 %"}, {Value: 1, Label: "100 %"}}
	return p, nil
}

// leases draws the cost by the number of leases. It returns nil if none were held.
func leases(r *bench.Report) (*figure.Panel, error) {
	if len(r.Leases) == 0 {
		return nil, nil //nolint:nilnil // a part that was not measured has no panel
	}
	lines := []figure.Line{{Name: r.Counted + " per second"}, {Name: "one call per lease every third of the TTL, per second"},
		{Name: "CPU, % of one processor"}}
	for _, h := range r.Leases {
		for i, y := range []float64{h.Calls, h.OneByOne, h.CPU} {
			lines[i].Points = append(lines[i].Points, plotter.XY{X: float64(h.Leases), Y: math.Max(y, 0.01)})
		}
	}
	p, err := figure.NewPanel(r.Backend+": cost of holding leases", "leases", "", lines...)
	if err != nil {
		return nil, err
	}
	figure.LogAxis(&p.X)
	figure.LogAxis(&p.Y)
	return p, nil
}
