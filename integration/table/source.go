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
	done, must string // from the test's comment
	test       string
	uses       []string // backends, as far as the test's own text tells
	backends   string
	figures    string
}

// find reads the scenarios of a folder's tests, in the order of files and lines,
// whatever systems they are for.
func find(dir string) ([]scenario, error) {
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
			s, err := parse(f)
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

// dash parts what is done from what must hold.
const dash = " — "

func parse(f *ast.FuncDecl) (scenario, error) {
	text := strings.TrimPrefix(new(doc.Package).Synopsis(f.Doc.Text()), f.Name.Name+": ")
	done, must, ok := strings.Cut(text, dash)
	if !ok || done == "" || must == "" {
		return scenario{}, fmt.Errorf("the comment of %s does not begin with a sentence of the form \"what is done%swhat must hold\"", f.Name.Name, dash)
	}
	s := scenario{test: f.Name.Name, done: done, must: strings.TrimSuffix(must, ".")}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return true
		}
		for _, b := range users[id.Name] {
			if !slices.Contains(s.uses, b) {
				s.uses = append(s.uses, b)
			}
		}
		return true
	})
	return s, nil
}

// users are the functions by which a test gets its backends, for tests that have no
// subtest named for each.
var users = map[string][]string{
	"onEach":     {"mongodb", "azblob"},
	"StartMongo": {"mongodb"}, "SharedMongo": {"mongodb"}, "mongoTarget": {"mongodb"},
	"StartAzurite": {"azblob"}, "SharedAzurite": {"azblob"}, "azureTarget": {"azblob"},
	"fileTarget": {"file"},
}
