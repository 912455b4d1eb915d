package main

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// results are the metrics of benchmarks, by "PACKAGE.NAME/CASE" without the module and
// the word Benchmark, such as "drivers/mongo.Ratio/Renew".
type results struct {
	cpu     string
	metrics map[string]map[string]float64
}

// absentError says that a benchmark did not run, or did not get to its end.
type absentError struct{ what string }

func (e *absentError) Error() string { return e.what + " is not there" }

const module = "github.com/holdfast-go/holdfast"

// processors is what the testing package puts behind a name.
var processors = regexp.MustCompile(`-\d+$`)

// parse reads the output of go test -bench.
func parse(in io.Reader) (results, error) {
	r := results{metrics: map[string]map[string]float64{}}
	pkg := ""
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		line := lines.Text()
		if cpu, ok := strings.CutPrefix(line, "cpu: "); ok {
			r.cpu = cpu
		}
		if name, ok := strings.CutPrefix(line, "pkg: "+module); ok {
			pkg = strings.TrimPrefix(name, "/")
		}
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") || len(fields)%2 != 0 {
			continue
		}
		name := pkg + "." + processors.ReplaceAllString(strings.TrimPrefix(fields[0], "Benchmark"), "")
		metrics := map[string]float64{}
		for i := 2; i < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return r, fmt.Errorf("%s: %w", name, err)
			}
			metrics[fields[i+1]] = value
		}
		r.metrics[name] = metrics
	}
	return r, lines.Err()
}

// reader takes values out of results; the first that is not there is its error.
type reader struct {
	results
	err error
}

func (r *reader) get(benchmark, unit string) float64 {
	value, ok := r.metrics[benchmark][unit]
	if !ok && r.err == nil {
		r.err = &absentError{benchmark + ": " + unit}
	}
	return value
}
