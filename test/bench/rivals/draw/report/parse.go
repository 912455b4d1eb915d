package main

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// results are the metrics of benchmarks, by "PACKAGE.NAME/CASE", without the module and the word
// Benchmark: for example "drivers/mongo.Ratio/Renew".
type results struct {
	cpu     string
	metrics map[string]map[string]float64
}

// missingError says that a benchmark did not run or did not finish.
type missingError struct{ what string }

func (e *missingError) Error() string { return e.what + " is missing" }

const module = "github.com/holdfast-go/holdfast"

// processorSuffix is what the testing package appends to a name: the number of processors.
var processorSuffix = regexp.MustCompile(`-\d+$`)

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
		name := pkg + "." + processorSuffix.ReplaceAllString(strings.TrimPrefix(fields[0], "Benchmark"), "")
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

// reader gets values from results. Its error is that of the first missing value.
type reader struct {
	results
	err error
}

func (r *reader) get(benchmark, unit string) float64 {
	value, ok := r.metrics[benchmark][unit]
	if !ok && r.err == nil {
		r.err = &missingError{benchmark + ": " + unit}
	}
	return value
}
