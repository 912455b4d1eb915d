package doctor_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// subjectsOf are the constants that name what a package examines.
func subjectsOf(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for i, name := range n.Names {
					if strings.HasPrefix(name.Name, "subject") && i < len(n.Values) {
						text, err := strconv.Unquote(n.Values[i].(*ast.BasicLit).Value)
						if err != nil {
							t.Fatal(err)
						}
						found[text] = true
					}
				}
			case *ast.KeyValueExpr: // a subject that is no constant would miss on the page
				if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Subject" {
					if _, literal := n.Value.(*ast.BasicLit); literal {
						t.Errorf("%s: a Subject must be one of the constants subject…", path)
					}
				}
			}
			return true
		})
	}
	return found
}

// The page has a row for each check, in the section of its backend, and no other rows.
func TestPageListsEveryCheck(t *testing.T) {
	page, err := os.ReadFile("../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	rows, section := map[string]map[string]bool{}, ""
	for line := range strings.Lines(string(page)) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = strings.TrimSpace(title)
			rows[section] = map[string]bool{}
		}
		cells := strings.Split(line, "|")
		if len(cells) != 5 || section == "" || strings.Contains(cells[1], "--") || strings.TrimSpace(cells[1]) == "Check" {
			continue
		}
		if strings.TrimSpace(cells[2]) == "" || strings.TrimSpace(cells[3]) == "" {
			t.Errorf("%s: without a meaning or a remedy", strings.TrimSpace(cells[1]))
		}
		rows[section][strings.TrimSpace(cells[1])] = true
	}
	for title, dir := range map[string]string{"Every backend": ".", "MongoDB": "../../drivers/mongo", "Azure Blob Storage": "../../drivers/azblob", "A folder": "../../drivers/file"} {
		want := subjectsOf(t, dir)
		if len(want) == 0 {
			t.Errorf("%s: no checks in %s", title, dir)
		}
		if got := rows[title]; !maps.Equal(got, want) {
			t.Errorf("%s: the page has %q, the code %q", title, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
		delete(rows, title)
	}
	if len(rows) > 0 {
		t.Errorf("the page has other sections: %v", rows)
	}
}
