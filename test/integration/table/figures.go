package main

import (
	"fmt"
	"strings"
)

// figures are what the last runs have shown: of each test on which backends it ran, how often, and for how long.
type figures struct {
	caption string
	rows    map[string]scenario // by test
}

// parseFigures reads the file of the figures: a caption, and a line of three fields for each test.
func parseFigures(text string) (figures, error) {
	f := figures{rows: map[string]scenario{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if caption, ok := strings.CutPrefix(line, "# "); ok {
			f.caption = caption
			continue
		}
		fields := strings.Split(line, "\t")
		if len(fields) != 3 {
			return f, fmt.Errorf("a line has %d fields, want 3: %s", len(fields), line)
		}
		f.rows[fields[0]] = scenario{test: fields[0], backends: fields[1], figures: fields[2]}
	}
	return f, nil
}

// format is the inverse of parseFigures. Tests that never ran have no line.
func format(caption string, scenarios []scenario) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n", caption)
	for _, s := range scenarios {
		if s.figures != "" {
			fmt.Fprintf(&b, "%s\t%s\t%s\n", s.test, s.backends, s.figures)
		}
	}
	return b.String()
}

// render formats the table for readers.
func render(caption string, scenarios []scenario) string {
	var b strings.Builder
	b.WriteString("| what is done | what must hold | test | backends | runs × longest |\n|---|---|---|---|---|\n")
	for _, s := range scenarios {
		fmt.Fprintf(&b, "| %s | %s | `%s` | %s | %s |\n", cell(s.action), cell(s.expectation), s.test, s.backends, s.figures)
	}
	fmt.Fprintf(&b, "\n%s\n", caption)
	return b.String()
}

// cell replaces bars, which would end the cell. No text has one so far.
func cell(text string) string { return strings.ReplaceAll(text, "|", "/") }
