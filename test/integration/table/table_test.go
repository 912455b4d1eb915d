package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each scenario has run at least once: it has figures, and nothing else has.
func TestScenariosHaveFigures(t *testing.T) {
	scenarios, err := findScenarios("..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../scenarios.tsv")
	if err != nil {
		t.Fatal(err)
	}
	old, err := parseFigures(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scenarios {
		row := old.rows[s.test]
		delete(old.rows, s.test)
		if row.backends == "" || row.figures == "" {
			t.Errorf("%s has no backends or no figures: the test was never run", s.test)
		}
	}
	for test := range old.rows {
		t.Errorf("there is no test %s", test)
	}
	if t.Failed() {
		t.Log("to update scenarios.tsv: cd test/integration && go test -json -run 'A|B' . | go run ./table")
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

// write creates figures and a test file in a folder.
func write(t *testing.T, figures, source string) paths {
	t.Helper()
	dir := t.TempDir()
	p := paths{tests: dir, figures: filepath.Join(dir, "scenarios.tsv"), page: filepath.Join(dir, "cache", "page.md")}
	for path, text := range map[string]string{p.figures: figures, filepath.Join(dir, "x_test.go"): source} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func TestTableIsUpdated(t *testing.T) {
	p := write(t, "# Last run: never.\nTestTwo\tmongodb\t7 × 8 s\nTestGone\tfile\t1 × 1 s\n", source)
	if err := run(p, strings.NewReader(output)); err != nil {
		t.Fatal(err)
	}
	for file, wants := range map[string][]string{
		p.page: {
			"backends: process.",
			"| Something is done, somewhere | it holds, and more | `TestOne` | azblob, mongodb | 2 × 21 s |\n",
			"| A thing | a rule | `TestTwo` | mongodb | 7 × 8 s |\n",
			"| No server | a row with a dash | `TestThree` | – | 1 × 1 s |\n",
		},
		p.figures: {"backends: process.", "TestOne\tazblob, mongodb\t2 × 21 s\n", "TestTwo\tmongodb\t7 × 8 s\n", "TestThree\t–\t1 × 1 s\n"},
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(string(text), want) {
				t.Errorf("no %q in:\n%s", want, text)
			}
		}
		if strings.Contains(string(text), "Gone") {
			t.Errorf("%s still has a row without a test", file)
		}
	}
}

func TestInvalidInputIsRefused(t *testing.T) {
	blank := "# Last run: never.\n"
	for name, c := range map[string]struct{ figures, source, output, want string }{
		"figures without fields":           {"Head.\n", source, "", "has 1 fields"},
		"a comment without what must hold": {blank, "package x\n\n// Something.\nfunc TestOne(t *testing.T) {}\n", "", "TestOne"},
		"a test without comment":           {blank, "package x\n\nfunc TestOne(t *testing.T) {}\n", "", "TestOne"},
		"no test":                          {blank, "package x\n", "", "no scenario"},
		"a failure":                        {blank, source, `{"Action":"fail","Test":"TestOne"}` + "\n", "TestOne failed"},
		"not JSON":                         {blank, source, "FAIL\n", "not the output"},
		"a test that did not run":          {blank, source, output, "not run yet: TestTwo"},
	} {
		err := run(write(t, c.figures, c.source), strings.NewReader(c.output))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
