// Package figure draws panels with lines or ranges side by side, with gonum/plot.
package figure

import (
	"errors"
	"fmt"
	"io"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The size of each panel, and its margin.
const width, height, margin = 16 * vg.Centimeter, 12 * vg.Centimeter, vg.Centimeter / 2

// Line is one line of a panel. Its points are marked if there are few.
type Line struct {
	Name   string
	Points plotter.XYs
}

// Panel is a plot with its legend below it, where no line crosses it.
type Panel struct {
	*plot.Plot
	legend plot.Legend
}

// NewPanel makes a panel with lines.
func NewPanel(title, x, y string, lines ...Line) (*Panel, error) {
	p := &Panel{plot.New(), plot.NewLegend()}
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.Padding = vg.Millimeter * 3
	p.Add(plotter.NewGrid())
	p.legend.Left = true
	for i, l := range lines {
		line, points, err := plotter.NewLinePoints(l.Points)
		if err != nil {
			return nil, fmt.Errorf("plot %q: %w", l.Name, err)
		}
		line.Width = vg.Points(1.5)
		line.Color, points.Color, points.Shape = plotutil.Color(i), plotutil.Color(i), plotutil.Shape(i)
		p.Add(line)
		p.legend.Add(l.Name, line)
		if len(l.Points) < 20 {
			p.Add(points)
		}
	}
	p.sansSerif()
	return p, nil
}

func (p *Panel) sansSerif() {
	for _, style := range []*font.Font{&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.legend.TextStyle.Font} {
		style.Variant = "Sans"
	}
}

// LogAxis makes an axis logarithmic, with plain numbers at the powers of ten. All values on it
// must be greater than 0.
func LogAxis(a *plot.Axis) {
	a.Scale = logarithmic{}
	a.Min, a.Max = a.Min/1.2, a.Max*1.2 // keeps values off the edge
	a.Tick.Marker = plot.TickerFunc(func(low, high float64) []plot.Tick {
		var ticks []plot.Tick
		for power := math.Floor(math.Log10(low)); power <= math.Ceil(math.Log10(high)); power++ {
			for digit := 1.0; digit < 10; digit++ {
				t := plot.Tick{Value: digit * math.Pow(10, power)}
				if digit == 1 {
					t.Label = fmt.Sprintf("%.6g", t.Value)
				}
				if t.Value >= low && t.Value <= high {
					ticks = append(ticks, t)
				}
			}
		}
		return ticks
	})
}

type logarithmic struct{}

// Normalize implements plot.Normalizer.
func (logarithmic) Normalize(low, high, x float64) float64 {
	return (math.Log(x) - math.Log(low)) / (math.Log(high) - math.Log(low))
}

// Draw draws panels side by side.
func Draw(w io.Writer, format string, panels ...*Panel) error {
	if len(panels) == 0 {
		return errors.New("nothing to draw: nothing was measured")
	}
	total := width * vg.Length(len(panels))
	var canvas vg.CanvasWriterTo
	switch format {
	case "svg":
		canvas = vgsvg.New(total, height)
	case "png":
		canvas = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(total, height), vgimg.UseDPI(144))}
	default:
		return fmt.Errorf("unknown format %q; want svg or png", format)
	}
	dc := draw.New(canvas)
	var legend vg.Length // the height of the highest legend, so that all plots have the same height
	for _, p := range panels {
		legend = max(legend, p.legend.Rectangle(dc).Size().Y)
	}
	for i, p := range panels {
		left, right := width*vg.Length(i)+margin, width*vg.Length(i+1)-total-margin
		p.Draw(draw.Crop(dc, left, right, legend+2*margin, -margin))
		p.legend.Draw(draw.Crop(dc, left+4*margin, right, margin, 0))
	}
	_, err := canvas.WriteTo(w)
	return err
}
