package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The page has a row for each scenario with the words of the test's comment and the figures of a
// run, and no other rows.
func TestPageMatchesScenarios(t *testing.T) {
	scenarios, err := findScenarios("..")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _, err := splitPage(string(page))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scenarios {
		row, ok := table.rows[s.test]
		delete(table.rows, s.test)
		switch {
		case !ok:
			t.Errorf("%s has no row", s.test)
		case row.action != cell(s.action) || row.expectation != cell(s.expectation):
			t.Errorf("the row of %s differs from its comment", s.test)
		case row.backends == "" || row.figures == "":
			t.Errorf("the row of %s has no backends or no figures: the test was never run", s.test)
		}
	}
	for test := range table.rows {
		t.Errorf("the row of %s has no test", test)
	}
	if t.Failed() {
		t.Log("to update the table: cd integration && go test -json -run 'A|B' . | go run ./table")
	}
}

const source = `package x

import "testing"

// Something is done,
// somewhere — it holds, and more. The table ignores this.
func TestOne(t *testing.T) { onEachBackend(t, nil) }

func TestMain(m *testing.M) {}

func (x) TestMethod(t *testing.T) {}

// A thing — a rule.
func TestTwo(t *testing.T) { env.StartMongo(t) }

// No server — a row with a dash.
func TestThree(t *testing.T) {}
`

const output = `{"Action":"output","Output":"integration: mode process\n"}
{"Action":"pass","Test":"TestOne/mongodb","Elapsed":1.5}
{"Action":"pass","Test":"TestOne/azblob/deep","Elapsed":20.1}
{"Action":"pass","Test":"TestOne","Elapsed":0}
{"Action":"pass","Test":"TestOne","Elapsed":0}
{"Action":"pass","Test":"TestThree","Elapsed":1}
{"Action":"pass","Elapsed":30}
`

// write creates a page and a test file in a folder.
func write(t *testing.T, page, source string) paths {
	t.Helper()
	dir := t.TempDir()
	p := paths{dir, filepath.Join(dir, "page.md")}
	for path, text := range map[string]string{p.page: page, filepath.Join(dir, "x_test.go"): source} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func TestTableIsUpdated(t *testing.T) {
	old := "Head.\n" + begin + "| a | b | `TestTwo` | mongodb | 7 × 8 s |\n| a | b | `TestGone` | file | 1 × 1 s |\n" + end + "Tail.\n"
	p := write(t, old, source)
	if err := run(p, strings.NewReader(output)); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(p.page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Head.\n", "Tail.\n", "backends: process.",
		"| Something is done, somewhere | it holds, and more | `TestOne` | mongodb, azblob | 2 × 21 s |\n",
		"| A thing | a rule | `TestTwo` | mongodb | 7 × 8 s |\n",
		"| No server | a row with a dash | `TestThree` | – | 1 × 1 s |\n",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("no %q in:\n%s", want, page)
		}
	}
	if strings.Contains(string(page), "Gone") {
		t.Error("the page still has a row without a test")
	}
}

func TestInvalidInputIsRefused(t *testing.T) {
	blank := begin + end
	for name, c := range map[string]struct{ page, source, output, want string }{
		"a page without a table":           {"Head.\n", source, "", "lacks the lines"},
		"a comment without what must hold": {blank, "package x\n\n// Something.\nfunc TestOne(t *testing.T) {}\n", "", "TestOne"},
		"a test without comment":           {blank, "package x\n\nfunc TestOne(t *testing.T) {}\n", "", "TestOne"},
		"no test":                          {blank, "package x\n", "", "no scenario"},
		"a failure":                        {blank, source, `{"Action":"fail","Test":"TestOne"}` + "\n", "TestOne failed"},
		"not JSON":                         {blank, source, "FAIL\n", "not the output"},
		"a test that did not run":          {blank, source, output, "not run yet: TestTwo"},
	} {
		err := run(write(t, c.page, c.source), strings.NewReader(c.output))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
