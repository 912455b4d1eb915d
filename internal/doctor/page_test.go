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

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/alldrivers"
)

// casImport is the package that examines the store of every driver which is built on it.
const casImport = "github.com/holdfast-go/holdfast/driver/cas"

// subjectsOf are the constants that name what a package examines, with those of package cas if it is built on that.
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
		if slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == strconv.Quote(casImport) }) {
			maps.Copy(found, subjectsOf(t, "../../driver/cas"))
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for i, name := range n.Names {
					if !strings.HasPrefix(strings.ToLower(name.Name), "subject") || i >= len(n.Values) {
						continue
					}
					literal, is := n.Values[i].(*ast.BasicLit)
					if !is {
						t.Errorf("%s: %s must be a text in quotes", path, name.Name)
						continue
					}
					text, err := strconv.Unquote(literal.Value)
					if err != nil {
						t.Fatal(err)
					}
					found[text] = true
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
		if len(cells) != 4 || section == "" || strings.Contains(cells[1], "--") || strings.TrimSpace(cells[1]) == "Check" {
			continue
		}
		if strings.TrimSpace(cells[2]) == "" {
			t.Errorf("%s: without a meaning", strings.TrimSpace(cells[1]))
		}
		rows[section][strings.TrimSpace(cells[1])] = true
	}
	folders := map[string]string{"Every backend": "."}
	add := func(name, dir string) {
		title := name
		for section := range rows { // such as Azure Blob Storage
			if len(section) >= len(name) && strings.EqualFold(section[:len(name)], name) {
				title = section
			}
		}
		folders[title] = dir
	}
	for _, d := range driver.Drivers() {
		if d.Reach != driver.ReachProcess { // the command examines it
			add(d.Name, "../../"+strings.TrimPrefix(alldrivers.PackageOf(d), "github.com/holdfast-go/holdfast/"))
		}
	}
	modules, err := filepath.Glob("../../drivers/*/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range modules { // of drivers that are modules of their own
		dirs := []string{filepath.Dir(module)}
		if several, err := filepath.Glob(dirs[0] + "/*/register.go"); err == nil && len(several) > 0 { // a module of several drivers
			dirs = nil
			for _, file := range several {
				dirs = append(dirs, filepath.Dir(file))
			}
		}
		for _, dir := range dirs {
			add(filepath.Base(dir), dir)
		}
	}
	for title, dir := range folders {
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

// A driver that is built on package cas examines what that package does, with checks of its own or without.
func TestChecksOfADriverOnCAS(t *testing.T) {
	for own, want := range map[string][]string{
		"// no checks of its own":        {"conditional writes", "race of writes", "store"},
		`const subjectBucket = "bucket"`: {"bucket", "conditional writes", "race of writes", "store"},
	} {
		dir := t.TempDir()
		text := "package acme\n\nimport _ \"" + casImport + "\"\n\n" + own + "\n"
		if err := os.WriteFile(filepath.Join(dir, "acme.go"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := slices.Sorted(maps.Keys(subjectsOf(t, dir))); !slices.Equal(got, want) {
			t.Errorf("%s: the checks are %q, want %q", own, got, want)
		}
	}
}
