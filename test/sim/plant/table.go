package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
)

// The summary of the generated faults stands between these lines of a page.
const (
	tableBegin = "<!-- mutants: written by test/sim/plant -->"
	tableEnd   = "<!-- mutants: end -->"
)

// writeTable writes the summary of the results into a page, and all of them into another file.
func writeTable(root, results, page, all string) error {
	mutants, err := generate(root)
	if err != nil {
		return err
	}
	done, err := load(results)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	head, rest, ok := bytes.Cut(text, []byte(tableBegin))
	_, tail, ok2 := bytes.Cut(rest, []byte(tableEnd))
	if !ok || !ok2 {
		return errors.New(page + " has no place for the table")
	}
	var b, full bytes.Buffer
	b.Write(head)
	b.WriteString(tableBegin + "\n\n")
	tabulate(&b, &full, mutants, done)
	b.WriteString("\n" + tableEnd)
	b.Write(tail)
	return errors.Join(os.WriteFile(all, full.Bytes(), 0o644), os.WriteFile(page, b.Bytes(), 0o644))
}

// finding is what is known of one mutant.
type finding struct {
	test, rule string  // by which it is found
	seconds    float64 // until then
	schedules  int
	tested     bool // its own tests have run
	simulated  bool
}

func findingOf(results map[string]result) (f finding) {
	for by, r := range results {
		switch {
		case by == "sim":
			f.simulated, f.rule, f.schedules = true, r.Found, r.Runs
		case r.Found != "":
			f.tested, f.test = true, r.Found
			if by != "" {
				f.test = fmt.Sprintf("%s (%s)", r.Found, strings.Replace(by, ".", "root", 1))
			}
			f.seconds = r.Seconds
		default:
			f.tested = true
		}
	}
	return f
}

// tabulate writes the summary and the survivors, and the table of all faults apart from them.
func tabulate(b, full *bytes.Buffer, mutants []*mutant, done map[string]map[string]result) {
	var rows, survivors, open bytes.Buffer
	var measured, byTests, bySim, found, alive, unmeasured int
	for _, m := range mutants {
		f := findingOf(done[m.name])
		if !f.tested {
			unmeasured++
			fmt.Fprintf(&open, "- `%s`\n", plain(m.name))
			continue
		}
		measured++
		if f.test != "" {
			byTests++
		}
		if f.rule != "" {
			bySim++
		}
		if f.test == "" && f.rule == "" {
			alive++
			why := survived[m.name]
			if why == "" {
				why = "not explained yet"
			}
			fmt.Fprintf(&survivors, "- `%s`:\n  %s\n", plain(m.name), why)
		} else {
			found++
		}
		test, rule := f.test, "not run"
		if test == "" {
			test = "–"
		} else {
			test = fmt.Sprintf("`%s`, %.1f s", test, f.seconds)
		}
		switch {
		case f.rule != "":
			rule = fmt.Sprintf("%s, %d", f.rule, f.schedules)
		case f.simulated:
			rule = "–"
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s |\n", strings.ReplaceAll(plain(m.name), "|", "\\|"), test, rule)
	}
	fmt.Fprintf(b, "Of %d generated faults %d have been measured: tests find %d, the simulator finds %d, %d are found by one of both, and "+
		"%d survive.\n",
		len(mutants), measured, byTests, bySim, found, alive)
	fmt.Fprintf(full, "| fault | found by the test | found by the rule of the simulator, schedules |\n|---|---|---|\n%s", &rows)
	if alive > 0 {
		fmt.Fprintf(b, "\n### Survivors\n\n%s", &survivors)
	}
	if unmeasured > 0 {
		fmt.Fprintf(full, "\nNot measured yet:\n\n%s", &open)
	}
}

// plain is a name that can stand in code on a page.
func plain(name string) string { return strings.ReplaceAll(name, "`", "'") }
