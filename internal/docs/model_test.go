package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	modelRow     = regexp.MustCompile(`(?m)^\| .*\|$`)
	inBackticks  = regexp.MustCompile("`([^`]+)`")
	parenthesis  = regexp.MustCompile("\\(`[^)]*\\)")
	modelDefined = regexp.MustCompile(`(?m)^(\w+)(?:\([^)]*\))? ==`)
	modelGuard   = regexp.MustCompile(`G\("(\w+)"\)`)
)

// The README of the model maps actions and guards to functions, which exist in the files that it
// names; the actions exist in the model.
func TestModelNamesTheCode(t *testing.T) {
	defined := modelDefinitions(t)
	actions, guards := 0, 0
	var files []string // of the last row: "the same" refers to them
	for _, row := range modelRow.FindAllString(modelReadme(t), -1) {
		cells := strings.Split(strings.Trim(row, "|"), "|")
		var functions string
		switch first := strings.TrimSpace(cells[0]); {
		case len(cells) == 3 && strings.Contains(row, ".go"): // action, function, file
			actions++
			for _, m := range inBackticks.FindAllStringSubmatch(first, -1) {
				if !slices.Contains(defined, m[1]) {
					t.Errorf("there is no action %s in the model", m[1])
				}
			}
			functions = cells[1]
		case len(cells) == 5 && strings.HasPrefix(first, "`"): // guard, what it keeps, function, file, what breaks
			guards++
			functions = cells[2]
		case len(cells) == 3 && strings.HasSuffix(strings.TrimSpace(row), "| the same |"):
			functions = cells[1]
		default:
			continue
		}
		if found := inBackticks.FindAllStringSubmatch(cells[len(cells)-1-(len(cells)-3)/2], -1); len(found) > 0 {
			files = nil
			for _, m := range found {
				files = append(files, strings.Replace(m[1], "engine/", "internal/engine/", 1))
			}
		}
		checkFunctions(t, functions, files)
	}
	if actions < 20 || guards < 25 {
		t.Errorf("only %d actions and %d guards were found", actions, guards)
	}
}

// checkFunctions checks that the functions in a cell are declared in one of the files. What is in
// parentheses is a parameter or a field, which a file must have.
func checkFunctions(t *testing.T, cell string, files []string) {
	t.Helper()
	var declared []string
	var text strings.Builder
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("%s: %v", strings.TrimSpace(cell), err)
			return
		}
		source, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		text.Write(source)
		for _, d := range parsed.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil {
					name = receiver(d) + "." + name
				}
				declared = append(declared, name)
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if v, ok := s.(*ast.ValueSpec); ok {
						declared = append(declared, v.Names[0].Name)
					}
				}
			}
		}
	}
	for _, m := range inBackticks.FindAllStringSubmatch(parenthesis.ReplaceAllString(cell, ""), -1) {
		if !slices.Contains(declared, m[1]) {
			t.Errorf("no function %s in %s", m[1], strings.Join(files, ", "))
		}
	}
	for _, p := range parenthesis.FindAllString(cell, -1) {
		for _, m := range inBackticks.FindAllStringSubmatch(p, -1) {
			if !regexp.MustCompile(`\b` + regexp.QuoteMeta(m[1]) + `\b`).MatchString(text.String()) {
				t.Errorf("no %s in %s", m[1], strings.Join(files, ", "))
			}
		}
	}
}

// receiver returns the type of a method's receiver.
func receiver(f *ast.FuncDecl) string {
	typ := f.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if generic, ok := typ.(*ast.IndexExpr); ok {
		typ = generic.X
	}
	name, ok := typ.(*ast.Ident)
	if !ok {
		return ""
	}
	return name.Name
}

// Each guard of the model has a variant without it, and each variant a counterexample and a place in
// the README.
func TestModelGuardsHaveVariants(t *testing.T) {
	readme := modelReadme(t)
	var guards []string
	for _, model := range modelFiles(t) {
		for _, m := range modelGuard.FindAllStringSubmatch(model, -1) {
			guards = append(guards, m[1])
		}
	}
	for _, guard := range guards {
		if !strings.Contains(readme, "`"+guard+"`") {
			t.Errorf("the README has no guard %s", guard)
		}
		if _, err := os.Stat(filepath.Join(root, "spec", "variants", guard+".cfg")); err != nil {
			t.Errorf("guard %s has no variant without it", guard)
		}
	}
	variants, err := filepath.Glob(filepath.Join(root, "spec", "variants", "*.cfg"))
	if err != nil || len(variants) < 30 {
		t.Fatalf("%d variants were found (%v)", len(variants), err)
	}
	for _, path := range variants {
		name := strings.TrimSuffix(filepath.Base(path), ".cfg")
		text, err := os.ReadFile(filepath.Join(root, "spec", "counterexamples", name+".txt"))
		if err != nil || !strings.Contains(string(text), "\nViolated: ") {
			t.Errorf("variant %s has no counterexample", name)
		}
		if !strings.Contains(readme, "`"+name+"`") {
			t.Errorf("the README has no variant %s", name)
		}
	}
}

func modelReadme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "spec", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// modelFiles returns the texts of the models.
func modelFiles(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "spec", "*.tla"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no model was found (%v)", err)
	}
	var texts []string
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	return texts
}

func modelDefinitions(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, text := range modelFiles(t) {
		for _, m := range modelDefined.FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
	}
	return names
}
