// Package exposition writes metrics in the text format of Prometheus. It does what this command needs of Prometheus's client library,
// which would make the command 2.5 MiB larger.
package exposition

import (
	"bytes"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ContentType is the media type of what [Write] writes.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// The types of a Family.
const (
	Counter   = "counter"
	Gauge     = "gauge"
	Histogram = "histogram"
)

// Family is a metric with its samples.
type Family struct {
	Name, Help, Type string
	samples          []sample
}

// sample is what belongs to one set of labels: one line, or all lines of a histogram.
type sample struct {
	labels string // in the form of the format
	lines  []line
}

type line struct {
	suffix string // of the metric's name
	le     string // the upper bound of a bucket
	value  float64
}

// Add adds a sample to a counter or gauge. labels are names, each with its value. A sample whose label is not UTF-8 is left out: names of
// locks are in a store that others may write to, and one such label would make the whole answer invalid.
func (f *Family) Add(value float64, labels ...string) {
	f.add([]line{{value: value}}, labels)
}

// AddHistogram adds the samples of a histogram. counts has one element more than bounds, and is not cumulative.
func (f *Family) AddHistogram(bounds []float64, counts []uint64, sum float64, labels ...string) {
	lines, total := make([]line, 0, len(counts)+2), uint64(0)
	for i, n := range counts {
		total += n
		le := "+Inf"
		if i < len(bounds) {
			le = number(bounds[i])
		}
		lines = append(lines, line{"_bucket", le, float64(total)})
	}
	f.add(append(lines, line{"_sum", "", sum}, line{"_count", "", float64(total)}), labels)
}

var escapeLabel = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

func (f *Family) add(lines []line, labels []string) {
	pairs := make([]string, 0, len(labels)/2)
	for i := 0; i < len(labels); i += 2 {
		if !utf8.ValidString(labels[i+1]) {
			return
		}
		pairs = append(pairs, labels[i]+`="`+escapeLabel.Replace(labels[i+1])+`"`)
	}
	slices.Sort(pairs)
	f.samples = append(f.samples, sample{strings.Join(pairs, ","), lines})
}

var escapeHelp = strings.NewReplacer(`\`, `\\`, "\n", `\n`)

// Write writes the metrics that have samples, ordered by name and labels.
func Write(w io.Writer, families []Family) error {
	var b bytes.Buffer
	slices.SortFunc(families, func(x, y Family) int { return strings.Compare(x.Name, y.Name) })
	for _, f := range families {
		if len(f.samples) == 0 {
			continue
		}
		b.WriteString("# HELP " + f.Name + " " + escapeHelp.Replace(f.Help) + "\n# TYPE " + f.Name + " " + f.Type + "\n")
		slices.SortFunc(f.samples, func(x, y sample) int { return strings.Compare(x.labels, y.labels) })
		for _, s := range f.samples {
			for _, l := range s.lines {
				labels := s.labels
				if l.le != "" {
					labels = strings.TrimPrefix(labels+`,le="`+l.le+`"`, ",")
				}
				if labels != "" {
					labels = "{" + labels + "}"
				}
				b.WriteString(f.Name + l.suffix + labels + " " + number(l.value) + "\n")
			}
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
