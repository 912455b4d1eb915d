// Command table writes the table of scenarios into .cache/scenarios.md. The comment of each test says what is done and what must
// hold. The output of go test -json says on which backends the test ran, how often, and for how long; scenarios.tsv keeps that:
//
//	cd test/integration && go test -json . | go run ./table
//	cd test/integration && go run ./table </dev/null # the table alone
//
// The comment of a scenario's test begins with a sentence of the form "what is done — what must hold". Tests that did not run keep
// their figures. If a test failed, nothing is written.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// paths are the files that the command reads and writes, relative to test/integration/.
type paths struct{ tests, figures, page string }

func main() {
	var p paths
	flag.StringVar(&p.tests, "tests", ".", "folder with the tests")
	flag.StringVar(&p.figures, "figures", "scenarios.tsv", "file with the figures of the last runs")
	flag.StringVar(&p.page, "page", "../../.cache/scenarios.md", "page to write the table to")
	flag.Parse()
	if err := run(p, os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

// run updates the figures with the results, and writes the page.
func run(p paths, output io.Reader) error {
	scenarios, err := findScenarios(p.tests)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(p.figures)
	if err != nil {
		return err
	}
	old, err := parseFigures(string(text))
	if err != nil {
		return err
	}
	results, err := readResults(output)
	if err != nil {
		return err
	}
	caption := old.caption
	if len(results.tests) > 0 {
		caption = fmt.Sprintf("Last run: %s, %s/%s, %d processors, backends: %s.",
			time.Now().UTC().Format(time.DateOnly), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), results.mode)
	}
	for i, s := range scenarios {
		row := old.rows[s.test]
		scenarios[i].backends, scenarios[i].figures = row.backends, row.figures
		if r := results.tests[s.test]; r != nil {
			scenarios[i].backends, scenarios[i].figures = r.backendsOf(s), r.String()
		}
	}
	err = errors.Join(os.WriteFile(p.figures, []byte(format(caption, scenarios)), 0o600),
		os.MkdirAll(filepath.Dir(p.page), 0o750), os.WriteFile(p.page, []byte(render(caption, scenarios)), 0o600))
	return errors.Join(err, checkMissing(scenarios))
}

// checkMissing returns an error that names the scenarios without figures.
func checkMissing(scenarios []scenario) error {
	var names []string
	for _, s := range scenarios {
		if s.figures == "" {
			names = append(names, s.test)
		}
	}
	if names == nil {
		return nil
	}
	return errors.New("not run yet: " + strings.Join(names, ", "))
}
