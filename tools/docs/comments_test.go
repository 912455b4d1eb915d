package docs

import (
	doccomment "go/doc/comment"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// numbered matches an item of a numbered list.
var numbered = regexp.MustCompile(`(?m)^\s*\d+\. `)

// A line of a list that has lost its indent ends the list, and go doc shows the items after it as code.
func TestListsInPackageComments(t *testing.T) {
	list := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard", "*.go")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Skipf("this is not a clone: git ls-files: %v", err)
	}
	for _, path := range strings.Fields(string(out)) {
		if strings.Contains(path, "testdata/") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil || file.Doc == nil {
			continue // removed and not committed yet, or without a comment; the compiler reports what cannot be parsed
		}
		for _, block := range new(doccomment.Parser).Parse(file.Doc.Text()).Content {
			if code, ok := block.(*doccomment.Code); ok && numbered.MatchString(code.Text) {
				t.Errorf("%s: go doc shows this list as code:\n%s", path, code.Text)
			}
		}
	}
}

// electionLines is how long the leader election may be that go doc shows.
const electionLines = 12

// The code that go doc shows of the root package compiles, and a leader election is among it.
func TestPackageCommentCompiles(t *testing.T) {
	fset := token.NewFileSet()
	load := exportedAPI(t, fset, root, prelude)
	file, err := parser.ParseFile(fset, filepath.Join(root, "doc.go"), nil, parser.PackageClauseOnly|parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	elections := 0
	for _, block := range new(doccomment.Parser).Parse(file.Doc.Text()).Content {
		code, ok := block.(*doccomment.Code)
		if !ok || !strings.Contains(code.Text, "err = ") {
			continue // a table
		}
		if lines := strings.Count(code.Text, "\n"); strings.Contains(code.Text, "NewLeaderAwareRunner") {
			if elections++; lines > electionLines {
				t.Errorf("the election has %d lines, more than %d", lines, electionLines)
			}
		}
		checkTypes(t, load, fset, prelude+"func _() error {\nvar bill func(context.Context) error\n//line doc.go:1\n"+
			strings.ReplaceAll(code.Text, "…\n", "\n")+"\npanic(0)\n}\n")
	}
	if elections != 1 {
		t.Errorf("doc.go has %d elections, want one", elections)
	}
}
