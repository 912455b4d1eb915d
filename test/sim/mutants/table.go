package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// row is the result of one mutant.
type row struct {
	source string
	fields []string // all but the killers
	killed []string // folder and test
}

const (
	header    = "mutant\tsource\tkind\tpackage\tplace\twhat\tkilled by"
	testsFile = "tests.tsv"
)

func (m *mutant) row(killers []string) *row {
	place := filepath.Base(m.File) + ":" + m.Func
	return &row{m.Source, []string{m.ID, m.Source, m.Kind, m.pkg(), place, strings.ReplaceAll(m.What, "\t", " ")}, killers}
}

// fewNames are the killers of a folder that the short form of a row names. It counts the others: a mutant that fails hundreds of tests
// says nothing of any of them.
const fewNames = 6

// pack writes the killers with each folder once. most is how many of a folder are named.
func (r *row) pack(most int) string {
	tests := map[string][]string{}
	for _, k := range r.killed {
		dir, name, _ := strings.Cut(k, " ")
		tests[dir] = append(tests[dir], name)
	}
	var parts []string
	for _, dir := range slices.Sorted(maps.Keys(tests)) {
		names := tests[dir]
		if more := len(names) - most; more > 0 && !strings.HasPrefix(names[len(names)-1], "+") { // else it is short already
			names = append(slices.Clone(names[:most]), fmt.Sprintf("+%d", more))
		}
		parts = append(parts, dir+": "+strings.Join(names, " "))
	}
	return strings.Join(parts, "; ")
}

func unpack(text string) (killed []string) {
	for part := range strings.SplitSeq(text, "; ") {
		dir, names, _ := strings.Cut(part, ": ")
		for name := range strings.FieldsSeq(names) {
			killed = append(killed, dir+" "+name)
		}
	}
	return killed
}

// read returns the rows of a table by their IDs.
func read(file string) (map[string]*row, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return map[string]*row{}, nil
	}
	rows := map[string]*row{}
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		fields := strings.Split(line, "\t")
		if len(fields) != 7 {
			return nil, fmt.Errorf("%s:%d has %d columns, want 7", file, i+1, len(fields))
		}
		if i > 0 {
			rows[fields[0]] = &row{fields[1], fields[:6], unpack(fields[6])}
		}
	}
	return rows, err
}

// write writes the rows of the present mutants, in the order of their places, each with so many names of a folder.
func write(file string, rows map[string]*row, mutants []*mutant, most int) error {
	var lines []string
	for _, m := range mutants {
		if r := rows[m.ID]; r != nil {
			order := m.pkg() + "\t" + m.File + "\t" + fmt.Sprintf("%8d", m.from) + "\t"
			lines = append(lines, order+strings.Join(r.fields, "\t")+"\t"+r.pack(most))
		}
	}
	slices.Sort(lines)
	var out strings.Builder
	out.WriteString(header + "\n")
	for _, line := range lines {
		out.WriteString(strings.SplitN(line, "\t", 4)[3] + "\n")
	}
	next := file + ".next"
	if err := os.WriteFile(next, []byte(out.String()), 0o644); err != nil { //nolint:gosec // a file of the repository
		return err
	}
	return os.Rename(next, file)
}

// summarize prints what the table shows.
func summarize(rows map[string]*row, mutants []*mutant, cache string) error {
	alone, kills := map[string][]string{}, map[string]int{}
	survived, old, missing := []string{}, 0, 0
	type counts struct{ all, killed int }
	byPackage := map[string]*counts{}
	for _, m := range mutants {
		r := rows[m.ID]
		if r == nil {
			missing++
			continue
		}
		if r.source != m.Source {
			old++
		}
		c := byPackage[m.pkg()]
		if c == nil {
			c = &counts{}
			byPackage[m.pkg()] = c
		}
		c.all++
		about := m.File + ":" + m.Func + ": " + m.What
		if len(r.killed) == 0 {
			survived = append(survived, about)
			continue
		}
		c.killed++
		for _, k := range r.killed {
			kills[k]++
		}
		if len(r.killed) == 1 {
			alone[r.killed[0]] = append(alone[r.killed[0]], about)
		}
	}
	fmt.Printf("mutants\t%d, of which %d have not run, and %d before a change of their function\n", len(mutants), missing, old)
	for _, pkg := range slices.Sorted(maps.Keys(byPackage)) {
		fmt.Printf("killed\t%s\t%d of %d\n", pkg, byPackage[pkg].killed, byPackage[pkg].all)
	}
	for _, about := range survived {
		fmt.Printf("not killed\t%s\n", about)
	}
	for _, test := range slices.Sorted(maps.Keys(alone)) {
		fmt.Printf("kills alone\t%s\t%s\n", test, strings.Join(alone[test], "; "))
	}
	text, err := os.ReadFile(filepath.Join(cache, testsFile))
	if err != nil {
		return fmt.Errorf("which tests kill nothing is known after a run: %w", err)
	}
	for line := range strings.FieldsFuncSeq(string(text), func(c rune) bool { return c == '\n' }) {
		if test := strings.Replace(line, "\t", " ", 1); kills[test] == 0 {
			fmt.Printf("kills none\t%s\n", test)
		}
	}
	return nil
}
