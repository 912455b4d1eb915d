// Command table writes the table of scenarios in docs/reliability.md. The comment of each test
// says what is done and what must hold. The output of go test -json says on which backends the
// test ran, how often, and for how long:
//
//	cd integration && go test -json . | go run ./table
//
// The comment of a scenario's test begins with a sentence of the form "what is done — what must
// hold". Rows of tests that did not run keep their figures. If a test failed, nothing is written.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"
)

// paths are the inputs of the table, relative to integration/.
type paths struct{ tests, page string }

func main() {
	var p paths
	flag.StringVar(&p.tests, "tests", ".", "folder with the tests")
	flag.StringVar(&p.page, "page", "../docs/reliability.md", "page with the table")
	flag.Parse()
	if err := run(p, os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

// run updates the page with the results.
func run(p paths, output io.Reader) error {
	scenarios, err := findScenarios(p.tests)
	if err != nil {
		return err
	}
	page, err := os.ReadFile(p.page)
	if err != nil {
		return err
	}
	before, old, after, err := splitPage(string(page))
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
	text := before + render(caption, scenarios) + after
	if err := os.WriteFile(p.page, []byte(text), 0o600); err != nil {
		return err
	}
	return checkMissing(scenarios)
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
