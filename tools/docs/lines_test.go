package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is the length of a line that can be read without scrolling; a tab counts as one column.
const maxColumns = 140

// cannotBreak matches what cannot be broken: a row of a table, a picture, an address, and in Go a text in backquotes, such as the tag
// of a field.
var cannotBreak = regexp.MustCompile("^\\s*\\|.*\\|$|^!\\[|^\\S*https?://\\S+$|`[^`]{50,}`")

// No line of code, of a page or of a script is too long. Golden files and texts of others are left out.
func TestLinesAreNotTooLong(t *testing.T) {
	list := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard",
		"*.go", "*.md", "*.sh", "*.mk", "Makefile", "*.yml", "*.yaml", "*.py", ".ci/run")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Skipf("this is not a clone: git ls-files: %v", err)
	}
	for _, path := range strings.Fields(string(out)) {
		if strings.Contains(path, "testdata/") || strings.HasSuffix(path, "_test.yml") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			continue // removed, and not committed yet
		}
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			line = strings.TrimRight(line, "\r\n")
			if columns := utf8.RuneCountInString(line); columns > maxColumns && !cannotBreak.MatchString(line) {
				t.Errorf("%s:%d has %d columns, and may have %d", path, number, columns, maxColumns)
			}
		}
	}
}
