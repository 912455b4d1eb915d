package figure

import (
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// Range is one row of a plot of ranges: values on a line, in ascending order.
type Range struct {
	Name   string
	Values []float64
}

// NewRanges makes a panel with a row for each range, from bottom to top, along a logarithmic
// axis.
func NewRanges(title, x string, rows ...Range) *Panel {
	p := &Panel{plot.New(), plot.NewLegend()}
	p.Title.Text, p.X.Label.Text = title, x
	p.Title.Padding = vg.Millimeter * 3
	p.Add(plotter.NewGrid())
	p.sansSerif()
	ticks := plot.ConstantTicks{}
	for i, row := range rows {
		y := float64(i)
		ticks = append(ticks, plot.Tick{Value: y, Label: row.Name})
		points := plotter.XYs{}
		for _, v := range row.Values {
			points = append(points, plotter.XY{X: math.Max(v, 0.001), Y: y})
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			continue // a row without values
		}
		line.Width, line.Color = vg.Points(1.5), plotutil.Color(2)
		marks.Color, marks.Shape, marks.Radius = plotutil.Color(2), plotutil.Shape(0), vg.Points(3.5)
		p.Add(line, marks)
	}
	LogAxis(&p.X)
	p.Y.Tick.Marker = ticks
	p.Y.Min, p.Y.Max = -0.5, float64(len(rows))-0.5
	return p
}
