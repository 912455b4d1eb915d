package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Each mutant by hand fits the present code, a third of all are by hand, and with all of them the library is still code.
func TestMutantsFit(t *testing.T) {
	mutants, sources, err := all(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	of, generated := map[string]int{}, 0
	for _, m := range mutants {
		of[m.pkg()]++
		if m.Kind != "hand" && m.Kind != "time" {
			generated++
		}
	}
	if len(mutants) > 200 || len(mutants)-generated < len(mutants)/3 {
		t.Errorf("%d mutants, %d of them generated", len(mutants), generated)
	}
	for _, pkg := range packages {
		if of[pkg.dir] < 10 && pkg.generated > 0 {
			t.Errorf("%s has %d mutants", pkg.dir, of[pkg.dir])
		}
	}
	changed := schemata(sources, mutants)
	text := ""
	for file, changed := range changed {
		if _, err := parser.ParseFile(token.NewFileSet(), file, changed, 0); err != nil {
			t.Error(err)
		}
		text += changed
	}
	for _, m := range mutants {
		if name := fmt.Sprintf("%sMutant%d(", m.Func, m.number); strings.Count(text, name) != 2 {
			t.Errorf("%s is not in the changed code", m.What)
		}
	}
}

// The mutants are the same each time, so that the rows of an earlier run count.
func TestMutantsStay(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	first, _, err := all(root)
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := all(root)
	if err != nil {
		t.Fatal(err)
	}
	for i := range first {
		if first[i].ID != second[i].ID || first[i].Source != second[i].Source {
			t.Errorf("mutant %d is once %q and once %q", i, first[i].What, second[i].What)
		}
	}
}

// The output of tests shows which have failed, and which were running when the program crashed.
func TestOutputIsRead(t *testing.T) {
	out := "\x16=== RUN   TestA\nhello\x16=== RUN   TestA/one\n\x16--- FAIL: TestA (0.00s)\n    \x16--- FAIL: TestA/one (0.00s)\n" +
		"\x16=== RUN   TestP\n\x16=== PAUSE TestP\n\x16=== RUN   TestConformance\n\x16=== RUN   TestConformance/queue\n" +
		"    \x16--- PASS: TestConformance/other (0.00s)\npanic: no\n"
	o := parse([]byte(out))
	if failed := innermost(units(slices.Collect(maps.Keys(o.failed)))); !slices.Equal(failed, []string{"TestA"}) {
		t.Errorf("failed: %v", failed)
	}
	if running := innermost(units(o.running)); !slices.Equal(running, []string{"TestConformance/queue"}) {
		t.Errorf("running: %v", running)
	}
	if !o.ended["TestConformance/other"] || o.ended["TestP"] {
		t.Errorf("ended: %v", o.ended)
	}
}

// A row is read as it was written, and a short one stays as it is when it is written again.
func TestTable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "table.tsv")
	m := &mutant{ID: "1", Source: "2", Kind: "hand", File: "a/b.go", Func: "F", What: "x\ty"}
	killers := []string{". TestA", "a TestB", "a TestConformance/c", "a TestD", "a " + unknown}
	for _, c := range []struct {
		most int
		want []string
	}{{math.MaxInt, killers}, {2, []string{". TestA", "a TestB", "a TestConformance/c", "a +2"}}} {
		rows := map[string]*row{"1": m.row(killers)}
		for range 2 {
			if err := write(file, rows, []*mutant{m}, c.most); err != nil {
				t.Fatal(err)
			}
			var err error
			if rows, err = read(file); err != nil || rows["1"] == nil || !slices.Equal(rows["1"].killed, c.want) || rows["1"].source != "2" {
				t.Fatalf("%v %v", rows["1"], err)
			}
		}
	}
}
