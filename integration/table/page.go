package main

import (
	"errors"
	"fmt"
	"strings"
)

// The table lies between these lines of the page.
const (
	begin = "<!-- scenarios: written by integration/table -->\n"
	end   = "<!-- scenarios: end -->\n"
)

// written is what the page has.
type written struct {
	caption string
	rows    map[string]scenario // by test
}

// cut parts the page into the table and what is around it.
func cut(page string) (before string, table written, after string, err error) {
	before, rest, ok := strings.Cut(page, begin)
	text, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return "", table, "", errors.New("the page lacks the lines that the table lies between")
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
			return "", table, "", fmt.Errorf("a row has %d cells, not 5: %s", len(cells), line)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if test, ok := strings.CutPrefix(cells[2], "`"); ok {
			table.rows[strings.TrimSuffix(test, "`")] = scenario{done: cells[0], must: cells[1], test: strings.TrimSuffix(test, "`"), backends: cells[3], figures: cells[4]}
		}
	}
	return before + begin, table, end + after, nil
}

// render is the table as the page has it.
func render(caption string, scenarios []scenario) string {
	var b strings.Builder
	b.WriteString("\n| what is done | what must hold | test | backends | runs × longest |\n|---|---|---|---|---|\n")
	for _, s := range scenarios {
		fmt.Fprintf(&b, "| %s | %s | `%s` | %s | %s |\n", cell(s.done), cell(s.must), s.test, s.backends, s.figures)
	}
	fmt.Fprintf(&b, "\n%s\n\n", caption)
	return b.String()
}

// cell keeps a bar from ending the cell; none of the texts has one so far.
func cell(text string) string { return strings.ReplaceAll(text, "|", "/") }
