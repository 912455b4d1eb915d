package main

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// scenario is a row of the table.
type scenario struct {
	action, expectation string // from the test's comment
	test                string
	usedBackends        []string // backends, from the test's source code
	backends            string
	figures             string
}

// findScenarios reads the scenarios of a folder's tests, in the order of files and lines, for all
// operating systems.
func findScenarios(dir string) ([]scenario, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var all []scenario
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !isTest(f) {
				continue
			}
			s, err := parseScenario(f)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no scenario in %s", dir)
	}
	return all, nil
}

func isTest(f *ast.FuncDecl) bool {
	return strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain" && f.Type.Params.NumFields() == 1
}

// separator separates what is done from what must hold.
const separator = " — "

func parseScenario(f *ast.FuncDecl) (scenario, error) {
	text := strings.TrimPrefix(new(doc.Package).Synopsis(f.Doc.Text()), f.Name.Name+": ")
	action, expectation, ok := strings.Cut(text, separator)
	if !ok || action == "" || expectation == "" {
		return scenario{}, fmt.Errorf("the comment of %s does not begin with a sentence of the form \"what is done%swhat must hold\"",
			f.Name.Name, separator)
	}
	s := scenario{test: f.Name.Name, action: action, expectation: strings.TrimSuffix(expectation, ".")}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return true
		}
		for _, b := range backendFuncs[id.Name] {
			if !slices.Contains(s.usedBackends, b) {
				s.usedBackends = append(s.usedBackends, b)
			}
		}
		return true
	})
	return s, nil
}

// backendFuncs are the functions by which a test gets its backends. They serve tests without a
// subtest for each backend.
var backendFuncs = map[string][]string{
	"onEachBackend": {"mongodb", "azblob"},
	"StartMongo":    {"mongodb"}, "SharedMongo": {"mongodb"}, "mongoBackend": {"mongodb"},
	"StartPostgres": {"postgres"}, "SharedPostgres": {"postgres"}, "postgresBackend": {"postgres"},
	"StartAzurite": {"azblob"}, "SharedAzurite": {"azblob"}, "azureBackend": {"azblob"},
	"fileBackend": {"file"},
}
