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
