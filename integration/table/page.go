package main

import (
	"errors"
	"fmt"
	"strings"
)

// The table is between these lines of the page.
const (
	begin = "<!-- scenarios: written by integration/table -->\n"
	end   = "<!-- scenarios: end -->\n"
)

// pageTable is the table as the page has it.
type pageTable struct {
	caption string
	rows    map[string]scenario // by test
}

// splitPage splits the page into the table and the text around it.
func splitPage(page string) (before string, table pageTable, after string, err error) {
	before, rest, ok := strings.Cut(page, begin)
	text, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return "", table, "", errors.New("the page lacks the lines that mark the table")
	}
	table.rows = map[string]scenario{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			if line != "" {
				table.caption = line
			}
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 5 {
			return "", table, "", fmt.Errorf("a row has %d cells, want 5: %s", len(cells), line)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if test, ok := strings.CutPrefix(cells[2], "`"); ok {
			table.rows[strings.TrimSuffix(test, "`")] = scenario{action: cells[0], expectation: cells[1], test: strings.TrimSuffix(test, "`"), backends: cells[3], figures: cells[4]}
		}
	}
	return before + begin, table, end + after, nil
}

// render formats the table.
func render(caption string, scenarios []scenario) string {
	var b strings.Builder
	b.WriteString("\n| what is done | what must hold | test | backends | runs × longest |\n|---|---|---|---|---|\n")
	for _, s := range scenarios {
		fmt.Fprintf(&b, "| %s | %s | `%s` | %s | %s |\n", cell(s.action), cell(s.expectation), s.test, s.backends, s.figures)
	}
	fmt.Fprintf(&b, "\n%s\n\n", caption)
	return b.String()
}

// cell replaces bars, which would end the cell. No text has one so far.
func cell(text string) string { return strings.ReplaceAll(text, "|", "/") }
