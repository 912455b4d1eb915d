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
	inBackticks  = regexp.MustCompile("`([^`]+)`")
	parenthesis  = regexp.MustCompile("\\(`[^)]*\\)")
	goFile       = regexp.MustCompile(`[\w/]+\.go`)
	modelDefined = regexp.MustCompile(`(?m)^(\w+)(?:\([^)]*\))? ==`)
	modelGuard   = regexp.MustCompile(`G\("(\w+)"\)`)
)

// test/spec/code.tsv maps actions and guards of the model to functions, which exist in the files that it names; the actions exist in the
// model.
func TestModelNamesTheCode(t *testing.T) {
	defined := modelDefinitions(t)
	actions, guards := 0, 0
	for _, row := range modelRows(t) {
		switch row[0] {
		case "action":
			actions++
			for _, name := range strings.Split(row[1], ", ") {
				if name, _, _ = strings.Cut(name, " "); !slices.Contains(defined, name) && name != "the" {
					t.Errorf("there is no action %s in the model", name)
				}
			}
		case "guard":
			guards++
		default:
			t.Errorf("a row is neither an action nor a guard: %q", row)
		}
		checkFunctions(t, row[3], goFile.FindAllString(row[4], -1))
	}
	if actions < 20 || guards < 25 {
		t.Errorf("only %d actions and %d guards were found", actions, guards)
	}
}

// modelRows returns the rows of test/spec/code.tsv.
func modelRows(t *testing.T) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "test", "spec", "code.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		row := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		switch {
		case strings.HasPrefix(line, "#"):
		case len(row) != 6:
			t.Errorf("a row of test/spec/code.tsv has %d fields, want 6: %s", len(row), line)
		default:
			rows = append(rows, row)
		}
	}
	return rows
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

// Each guard of the model has a row in code.tsv and a variant without it, and each variant a counterexample. What the model shows
// without a guard of its own is on the page.
func TestModelGuardsHaveVariants(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(root, "test", "spec", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	inCode := map[string]bool{}
	for _, row := range modelRows(t) {
		inCode[row[1]] = true
	}
	for _, model := range modelFiles(t) {
		for _, m := range modelGuard.FindAllStringSubmatch(model, -1) {
			if guard := m[1]; !inCode[guard] && !strings.Contains(string(readme), "`"+guard+"`") {
				t.Errorf("neither test/spec/code.tsv nor the page has the guard %s", guard)
			} else if _, err := os.Stat(filepath.Join(root, "test", "spec", "variants", guard+".cfg")); err != nil {
				t.Errorf("guard %s has no variant without it", guard)
			}
		}
	}
	variants, err := filepath.Glob(filepath.Join(root, "test", "spec", "variants", "*.cfg"))
	if err != nil || len(variants) < 30 {
		t.Fatalf("%d variants were found (%v)", len(variants), err)
	}
	for _, path := range variants {
		name := strings.TrimSuffix(filepath.Base(path), ".cfg")
		text, err := os.ReadFile(filepath.Join(root, "test", "spec", "counterexamples", name+".txt"))
		if err != nil || !strings.Contains(string(text), "\nViolated: ") {
			t.Errorf("variant %s has no counterexample", name)
		}
		if !inCode[name] && !strings.Contains(string(readme), "`"+name+"`") {
			t.Errorf("neither test/spec/code.tsv nor the page has the variant %s", name)
		}
	}
}

// modelFiles returns the texts of the models.
func modelFiles(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "test", "spec", "*.tla"))
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
